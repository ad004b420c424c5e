"""A stage for what goes wrong along the chain: ranks that are processes of their own, daemons that die.

async with playing(Plan(trainer=ScriptedTrainer(steps=100_000, world=2))) as chain:
    step = await chain.protected()
    async with chain.guarded(chain.primary):
        chain.daemons[PRIMARY].kill_group()
        ...
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from outlast.providers.base import SystemClock
from outlast.simulations.drill.nodes import PRIMARY, Node, ScriptedTrainer
from outlast.simulations.drill.sandbox import Child, Sandbox
from outlast.simulations.drill.scenario import Plan, Stage
from outlast.simulations.standins import StandIn, create

OUTLAST = ("outlast",)


class Chain(Stage):
    """A stage whose primary trains with one process a rank. ``program``: what the primary's daemon is."""

    def __init__(self, plan: Plan, sandbox: Sandbox, program: Sequence[str] = OUTLAST) -> None:
        super().__init__(plan, sandbox)
        self.ranks: tuple[Child, ...] = ()
        self._program = tuple(program)
        self._guarded: set[str] = set()

    async def start_daemon(self, node: Node, program: Sequence[str] | None = None) -> Child:
        """Start a node's daemon, again if it had been killed, and wait until it serves."""
        own = self._program if node is self.primary else OUTLAST
        return await super().start_daemon(node, program or own)

    async def _start_primary_trainer(self) -> None:
        trainer = self.plan.trainer
        assert isinstance(trainer, ScriptedTrainer), "only scripted ranks can be started one by one"
        self.ranks = tuple([await self.start_trainer(self.primary, one) for one in trainer.apart()])

    def _may_end(self, child: Child) -> bool:
        guarded = any(child.name == f"{name}.daemon" for name in self._guarded)
        return guarded or (child in self.ranks and child.status == 0)

    # ---- playing

    async def protected(self) -> int:
        """Have a checkpoint made and wait until the peer has it: its step."""
        await self.status_until("all ranks in training", _trains)
        step = int((await self.order(self.primary, "checkpoint"))["step"])
        await self.status_until("the replica", lambda status: _job(status)["peer"]["newest"] is not None)
        return step

    async def status_until(self, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the primary's status ``holds``; returns it."""
        while not holds(status := await self.order(self.primary, "status")):
            await self._pause(what, self._ends_at)
        return status

    @asynccontextmanager
    async def guarded(self, node: Node) -> AsyncIterator[None]:
        """Inside, a daemon that dies is started again, as systemd does."""
        self._guarded.add(node.name)
        guardian = asyncio.create_task(self._guard(node), name=f"guardian of {node.name}")
        try:
            yield
        finally:
            guardian.cancel()
            with suppress(asyncio.CancelledError):
                await guardian
            self._guarded.discard(node.name)

    async def _guard(self, node: Node) -> None:
        while True:
            await self.daemons[node.name].wait()
            await self.start_daemon(node)

    async def restart_daemon(self, node: Node) -> None:
        """kill -9, and start it again."""
        daemon = self.daemons[node.name]
        self.spare(daemon)
        daemon.kill_group()
        await daemon.wait()
        await self.start_daemon(node)

    async def lose_peer(self) -> None:
        """The peer's SSH server ends, its sessions with it."""
        assert self._sshd is not None
        await self._sshd.stop()

    async def regain_peer(self) -> None:
        """The peer's SSH server is back, at the same address and with the same keys."""
        assert self._sshd is not None
        await self._sshd.start()

    async def log(self, event: str, node: str = PRIMARY) -> list[dict[str, Any]]:
        """What a node's daemon has logged under this event's name, over all of its lives."""
        text = await asyncio.to_thread((self.sandbox.folder / "logs" / f"{node}.daemon.log").read_text)
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    async def log_until(self, event: str, because: str = "") -> dict[str, Any]:
        """Wait for a line of this event in the primary's log whose reason holds ``because``; the first."""
        while not (found := [line for line in await self.log(event) if because in line.get("because", "")]):
            await self._pause(f"'{event}' in the log", self._ends_at)
        return found[0]


@asynccontextmanager
async def playing(
    plan: Plan, program: Callable[[Path], Sequence[str]] = lambda _: OUTLAST, standin: StandIn | None = None
) -> AsyncIterator[Chain]:
    """A chain on a sandbox of its own, with everything running; this process serves the provider's endpoint.

    ``program`` is given the sandbox's folder; ``standin`` replaces the usual one of ``plan.provider``.
    """
    async with standin or create(plan.provider) as endpoint, Sandbox(SystemClock()) as sandbox:
        whole = replace(plan, endpoint=endpoint.url)
        async with Chain(whole, sandbox, program(sandbox.folder)) as chain:
            await chain.begin()
            yield chain


def _job(status: dict[str, Any]) -> dict[str, Any]:
    job: dict[str, Any] = status["jobs"][0]
    return job


def _trains(status: dict[str, Any]) -> bool:
    trainer = _job(status)["trainer"]
    return bool(trainer["ranks"] == trainer["world"] and trainer["step"])
