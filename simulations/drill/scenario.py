"""A stage on which interruptions are played: a stand-in, two daemons, SSH and a trainer, all real processes.

async with Sandbox(clock) as sandbox, Stage(Plan(), sandbox) as stage:
    await stage.begin()
    await stage.until("step 12", lambda seen: seen.step(PRIMARY) >= 12)
    await stage.say("notice", in_s=120)
    await stage.until("the takeover", lambda seen: seen.mark("first_step", STANDBY) is not None)
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from outlast.daemon.cli.client import RefusedError, UnreachableError, ask
from outlast.simulations.drill.losses import StepLine, last_step, read_steps
from outlast.simulations.drill.nodes import (
    JOB,
    PRIMARY,
    STANDBY,
    GptTrainer,
    Node,
    Trainer,
    primary_settings,
    standby_settings,
)
from outlast.simulations.drill.reap import NODE
from outlast.simulations.drill.sandbox import Child, DrillError, Sandbox
from outlast.simulations.drill.timeline import Mark, Story, read_marks
from outlast.simulations.drill.word import NOTICE_S, Said, Word
from outlast.simulations.sshd import Sshd, free_port, receive_command

LOOK_S = 0.1
STOP_S = 15.0


@dataclass(frozen=True)
class Plan:
    """What is played. ``every``: an interval between checkpoints, such as "2s"; ``when``: start.when;
    ``alone``: without a standby and a peer; ``rtt_s`` and ``bytes_s``: how far away the peer is, and how wide
    the way to it (None: as it comes); ``endpoint``: a stand-in that serves already; ``bound_s``: how
    long all of it may take."""

    provider: str = "aws"
    trainer: Trainer = GptTrainer(steps=40)  # noqa: RUF009 - frozen
    poll: str = "1s"
    every: str | None = None
    when: str = "warning"
    hints: bool = True
    acknowledge: bool = False
    alone: bool = False
    rtt_s: float = 0.0
    bytes_s: float | None = None
    endpoint: str | None = None
    bound_s: float = 300.0


@dataclass(frozen=True)
class Seen:
    """What the two nodes have noted by one instant."""

    steps: dict[str, list[StepLine]]
    story: Story

    def step(self, node: str) -> int:
        """The step that node trained last; 0 before the first."""
        return last_step(self.steps[node])

    def mark(self, kind: str, node: str | None = None) -> Mark | None:
        """The first event of this kind since the provider's word, or since the start before it."""
        return self.story.first(kind, node)


class Stage:
    """An async context. Whatever is waited for ends by ``plan.bound_s`` seconds after it was entered.

    ``look`` is called with each sight of the nodes. Every method raises DrillError where a process that has
    to live ends, or a wait comes to its end.
    """

    def __init__(self, plan: Plan, sandbox: Sandbox, look: Callable[[Seen], None] | None = None) -> None:
        self.plan = plan
        self.sandbox = sandbox
        self.first_word: Said | None = None
        self.primary = Node(PRIMARY, sandbox.folder / PRIMARY)
        self.standby = Node(STANDBY, sandbox.folder / STANDBY)
        self.daemons: dict[str, Child] = {}
        self.trainer: Child | None = None
        self.word = Word(plan.endpoint or f"http://127.0.0.1:{free_port()}")
        self._look = look or (lambda _: None)
        self._ends_at = sandbox.clock.monotonic() + plan.bound_s
        self._sshd: Sshd | None = None
        self._needed: list[Child] = []

    async def __aenter__(self) -> Self:
        await self.word.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.word.__aexit__(kind, exc, trace)
        if self._sshd is not None:
            await self._sshd.stop()

    # ---- setting the stage

    async def begin(self) -> None:
        """Start everything, the primary's trainer last."""
        for node in (self.primary, self.standby):
            await asyncio.to_thread(node.make)
        peer = None if self.plan.alone else await self._start_sshd()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._start_primary_daemon(peer))
                if not self.plan.alone:
                    group.create_task(self._start_standby())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        await self._start_primary_trainer()

    async def _start_primary_daemon(self, peer: Mapping[str, str] | None) -> None:
        if self.plan.endpoint is None:
            await self._start_standin()
        settings = primary_settings(self.primary, self._provider(), peer, self.plan.every)
        await asyncio.to_thread(self.primary.write, settings)
        await self.start_daemon(self.primary)

    async def _start_primary_trainer(self) -> None:
        self.trainer = await self.start_trainer(self.primary)

    async def _start_standby(self) -> None:
        settings = standby_settings(self.standby, self.plan.trainer, self.plan.when)
        await asyncio.to_thread(self.standby.write, settings)
        await self.start_daemon(self.standby)

    async def start_daemon(self, node: Node, program: Sequence[str] = ("outlast",)) -> Child:
        """Start a node's daemon, again if it had been killed, and wait until it serves. ``program``: the
        module that is run, with the words before ``run``."""
        if node.name in self.daemons:
            self.spare(self.daemons[node.name])
        words = (sys.executable, "-m", *program, "run", "-c", str(node.config))
        daemon = await self.sandbox.spawn(f"{node.name}.daemon", *words, env={NODE: node.name})
        self.daemons[node.name] = daemon
        self._needed.append(daemon)
        await self._exists(f"the daemon of {node.name}", lambda: self._serves(node))
        return daemon

    def _serves(self, node: Node) -> bool:
        try:
            ask(node.control, {"op": "status"}, STOP_S)
        except UnreachableError:
            return False
        return node.socket.exists()

    async def start_trainer(self, node: Node, trainer: Trainer | None = None) -> Child:
        """Start a trainer on a node as its user would; it talks to the node's daemon if there is one."""
        trainer = trainer or self.plan.trainer
        env = {**trainer.env, "OUTLAST_SOCKET": str(node.socket), NODE: node.name}
        child = await self.sandbox.spawn(f"{node.name}.trainer", *trainer.command(node), env=env)
        self._needed.append(child)
        return child

    async def _start_standin(self) -> None:
        port = self.word.url.rpartition(":")[2]
        words = (sys.executable, "-m", "outlast", "simulate", self.plan.provider, "--port", port)
        self._needed.append(await self.sandbox.spawn("provider", *words))
        deadline = self.sandbox.clock.monotonic() + STOP_S
        while not await self.word.answers():
            await self._pause("the provider's stand-in", deadline)

    async def _start_sshd(self) -> dict[str, str]:
        folder = self.sandbox.folder / "sshd"
        await asyncio.to_thread(folder.mkdir)
        self._sshd = Sshd(folder, receive_command(self.standby.replicas, JOB))
        try:
            await self._sshd.start()
        except OSError as exc:
            raise DrillError(f"the SSH server does not start: {exc}") from exc
        sshd = self._sshd
        return {
            "ssh": f"{sshd.user}@{sshd.host}:{await self._way_to(sshd)}",
            "host_key": sshd.host_key,
            "key": str(sshd.client.private),
        }

    async def _way_to(self, sshd: Sshd) -> int:
        """The port to dial: the server's own, or that of a relay that is far away and narrow."""
        plan = self.plan
        if not plan.rtt_s and plan.bytes_s is None:
            return sshd.port
        port = free_port()
        words = ["--to", f"{sshd.host}:{sshd.port}", "--port", str(port), "--rtt", f"{plan.rtt_s:.6f}s"]
        if plan.bytes_s is not None:
            words += ["--bandwidth", f"{plan.bytes_s:.0f}B/s"]
        relay = await self.sandbox.spawn("way", sys.executable, "-m", "outlast.simulations.wan", *words)
        self._needed.append(relay)
        await self._exists("the way to the peer", lambda: b"ready" in relay.log.read_bytes())
        return port

    def _provider(self) -> dict[str, Any]:
        plan = self.plan
        provider = {"name": plan.provider, "endpoint": self.word.url, "poll": plan.poll, "hints": plan.hints}
        if plan.acknowledge:
            provider["acknowledge"] = True
        if plan.provider == "gcp":
            provider["notice"] = f"{NOTICE_S['gcp']:.0f}s"
        return provider

    # ---- playing

    async def say(self, what: str, **body: Any) -> Said:
        """The provider says a word: "notice", "withdraw", "hint"… The first one is the story's zero."""
        said = await self.word.tell(what, **body)
        self.first_word = self.first_word or said
        return said

    async def seen(self) -> Seen:
        """What the nodes have noted by now."""
        seen = await asyncio.to_thread(self._read)
        self._look(seen)
        return seen

    async def order(self, node: Node, op: str, within_s: float = STOP_S) -> dict[str, Any]:
        """What a node's daemon answers to a request of its command line, such as "status"."""
        try:
            return await asyncio.to_thread(ask, node.control, {"op": op}, within_s)
        except (UnreachableError, RefusedError) as exc:
            raise DrillError(f"{node.name} does not do '{op}': {exc}") from exc

    async def until(self, what: str, holds: Callable[[Seen], bool], within_s: float | None = None) -> Seen:
        """Wait until ``holds``; returns what was seen then."""
        ends_at = self._ends_at
        if within_s is not None:
            ends_at = min(ends_at, self.sandbox.clock.monotonic() + within_s)
        while not holds(seen := await self.seen()):
            self._check_standby(seen)
            await self._pause(what, ends_at)
        return seen

    async def ended(self, child: Child) -> int:
        """The exit status of a process that is to end by itself."""
        self.spare(child)
        while child.status is None:
            await self._pause(f"the end of {child.name}", self._ends_at)
        return child.status

    def spare(self, child: Child) -> None:
        """This process may end from now on."""
        self._needed = [needed for needed in self._needed if needed is not child]

    async def cut_power(self, node: Node) -> None:
        """kill -9 for the daemon, the launcher and every rank of a node."""
        self._needed = [child for child in self._needed if not child.name.startswith(f"{node.name}.")]
        await self.sandbox.kill_node(node.name)

    async def stop_daemons(self) -> dict[str, int]:
        """SIGTERM to both daemons; their exit statuses."""
        for daemon in self.daemons.values():
            self.spare(daemon)
            daemon.send(signal.SIGTERM)
        self._ends_at = max(self._ends_at, self.sandbox.clock.monotonic() + STOP_S)
        return {name: await self.ended(daemon) for name, daemon in self.daemons.items()}

    # ---- waiting

    def _read(self) -> Seen:
        nodes = (self.primary, self.standby)
        steps = {node.name: read_steps(node.losses) for node in nodes}
        word = self.first_word or Said("", 0.0)
        return Seen(steps, Story(word.mono, read_marks(nodes), word.wall))

    async def _exists(self, what: str, there: Callable[[], bool]) -> None:
        deadline = self.sandbox.clock.monotonic() + STOP_S
        while not await asyncio.to_thread(there):
            await self._pause(what, deadline)

    async def _pause(self, what: str, deadline: float) -> None:
        for child in self._needed:
            if child.status is not None and not self._may_end(child):
                ended = f"{child.name} ended with status {child.status} while waiting for {what}"
                raise DrillError(f"{ended}; its last words:\n{await child.tail()}")
        if self.sandbox.clock.monotonic() >= deadline:
            raise DrillError(f"waited in vain for {what}; the logs tell more")
        await asyncio.sleep(LOOK_S)

    def _may_end(self, child: Child) -> bool:
        return child is self.trainer and child.status == 0

    def _check_standby(self, seen: Seen) -> None:
        ended = seen.mark("trainer_ended", STANDBY)
        if ended is not None and ended.number("status") != 0:
            raise DrillError(f"the standby's trainer ended with status {ended.fields.get('status')}")
