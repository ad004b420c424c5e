"""The job goes to the peer and comes back: both nodes are configured alike, only the first role differs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast.daemon.cli.client import ask
from outlast.providers.base import SystemClock
from outlast.simulations.drill.chain import Chain
from outlast.simulations.drill.nodes import (
    JOB,
    PRIMARY,
    STANDBY,
    Node,
    ScriptedTrainer,
    primary_settings,
    standby_settings,
)
from outlast.simulations.drill.sandbox import Sandbox
from outlast.simulations.drill.scenario import Plan
from outlast.simulations.sshd import Sshd, receive_command

# The daemons under test are other processes: this loop only looks at what they left.
pytestmark = [pytest.mark.blocking, pytest.mark.timeout(120)]


class BothWays(Chain):
    """Each node receives from the other."""

    async def _start_sshd(self) -> dict[str, str]:
        there = await super()._start_sshd()
        folder = self.sandbox.folder / "back"
        await asyncio.to_thread(folder.mkdir)
        self.back = Sshd(folder, receive_command(self.primary.replicas, JOB))
        await self.back.start()
        here = {
            "ssh": f"{self.back.user}@{self.back.host}:{self.back.port}",
            "host_key": self.back.host_key,
            "key": str(self.back.client.private),
        }
        self._override(there, here)
        return there

    def _override(self, there: dict[str, str], here: dict[str, str]) -> None:
        trainer = self.plan.trainer
        first = primary_settings(self.primary, self._provider(), there, None)
        second = standby_settings(self.standby, trainer, "warning")
        start = standby_settings(self.primary, trainer, "warning")["jobs"][0]
        first["jobs"][0] |= {"replicas": start["replicas"], "start": start["start"]}
        second["jobs"][0]["peer"] = here
        self.settings = {PRIMARY: first, STANDBY: second}

    async def start_daemon(self, node: Node, program: Any = None) -> Any:
        await asyncio.to_thread(node.write, self.settings[node.name])
        return await super().start_daemon(node, program)


def _fenced(stage: BothWays) -> bool:
    """The one who trained in epoch 2 has learnt of epoch 3: its ranks are gone and it stands by."""
    job = ask(stage.standby.control, {"op": "status"}, 5.0)["jobs"][0]
    return bool(job["role"] == "standby" and job["trainer"]["ranks"] == 0)


def _stands_by(status: dict[str, Any]) -> bool:
    """A node with a notice in force would hand the job over again as soon as it had it."""
    job = status["jobs"][0]
    return bool(job["role"] == "standby" and job["trainer"]["ranks"] == 0 and not status["notices"])


async def test_the_job_comes_back() -> None:
    """Handed over at a notice, taken back by an operator in epoch 3, and the other yields."""
    plan = Plan(trainer=ScriptedTrainer(steps=100_000, world=2), poll="200ms", bound_s=90.0)
    async with Sandbox(SystemClock()) as sandbox, BothWays(plan, sandbox) as stage:
        try:
            await stage.begin()
            await stage.protected()
            await stage.say("notice", action="terminate", in_s=30)
            await stage.until("the takeover", lambda seen: seen.mark("first_step", STANDBY) is not None)
            await stage.say("withdraw")
            await stage.status_until("standing by without a notice", _stands_by)
            answer = await stage.order(stage.primary, "takeover")
            assert answer["epoch"] == 3
            back = await stage.status_until("back", lambda seen: seen["jobs"][0]["trainer"]["ranks"] == 2)
            assert back["jobs"][0]["role"] == "primary"
            await stage.order(stage.standby, "checkpoint")
            await stage.until("the other yields", lambda _: _fenced(stage))
        finally:
            await stage.back.stop()
