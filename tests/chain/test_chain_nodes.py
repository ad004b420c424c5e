"""One job on two nodes: each node's daemon commits and ships its part, the peer makes one whole of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast.providers.base import SystemClock
from outlast.simulations.drill.chain import Chain
from outlast.simulations.drill.nodes import JOB, PRIMARY, Node, ScriptedTrainer, primary_settings
from outlast.simulations.drill.sandbox import Sandbox
from outlast.simulations.drill.scenario import Plan
from outlast.simulations.training.nodes import Home, Nodes
from outlast.wire.store import newest_usable, newest_whole

# The daemons under test are other processes: this loop only looks at what they left.
pytestmark = [pytest.mark.blocking, pytest.mark.timeout(120)]
OTHER = "us-east-1b"


class TwoNodes(Chain):
    """A primary of two nodes, two ranks each; the ranks are threads of this process."""

    def __init__(self, plan: Plan, sandbox: Sandbox) -> None:
        super().__init__(plan, sandbox)
        self.other = Node(OTHER, sandbox.folder / OTHER)
        self.job = self._new()

    def _new(self) -> Nodes:
        homes = [Home(node.checkpoints, node.socket) for node in (self.primary, self.other)]
        return Nodes(homes, pause_s=0.01, job=JOB)

    async def _start_primary_daemon(self, peer: Any) -> None:
        await self._start_standin()
        await asyncio.to_thread(self.other.make)
        for node, provider in ((self.primary, self._provider()), (self.other, {"name": "none"})):
            settings = primary_settings(node, provider, peer, None)
            settings["jobs"][0]["nodes"] = [PRIMARY, OTHER]
            await asyncio.to_thread(node.write, settings)
            await self.start_daemon(node)

    async def _start_standby(self) -> None:
        """What receives is the SSH server; no daemon is needed for it."""

    async def _start_primary_trainer(self) -> None:
        self.job.start()

    async def retrain(self) -> None:
        """The trainer ends on all nodes and is started again."""
        await asyncio.to_thread(self.job.finish)
        self.job = self._new()
        self.job.start()

    async def look(self, node: Node) -> dict[str, Any]:
        """What a node's daemon tells of the job."""
        job: dict[str, Any] = (await self.order(node, "status"))["jobs"][0]
        return job

    async def job_until(self, node: Node, what: str, holds: Any) -> dict[str, Any]:
        """Wait until a node's word of the job ``holds``."""
        while not holds(job := await self.look(node)):
            await self._pause(what, self._ends_at)
        return job

    @property
    def replicas(self) -> Path:
        """Where the peer keeps what it is sent."""
        return self.standby.replicas / JOB


@asynccontextmanager
async def two_nodes() -> AsyncIterator[TwoNodes]:
    """Both nodes' daemons, the peer's SSH server and four ranks in training."""
    plan = Plan(trainer=ScriptedTrainer(steps=100_000, world=4), poll="200ms", bound_s=60.0)
    async with Sandbox(SystemClock()) as sandbox, TwoNodes(plan, sandbox) as stage:
        await stage.begin()
        for node in (stage.primary, stage.other):
            await stage.job_until(node, "its ranks", lambda job: job["trainer"]["ranks"] == 2)
        yield stage


def whole_at(step: int) -> Any:
    """Whether the peer has a whole checkpoint of that step or a later one."""
    return lambda job: job["peer"]["newest"] is not None and job["peer"]["newest"]["step"] >= step


async def test_a_checkpoint_asked_for_at_one_node_iswhole_at_the_peer() -> None:
    """All ranks of both nodes save one step; each node sends its part, and both know when it is whole."""
    async with two_nodes() as stage:
        step = int((await stage.order(stage.other, "checkpoint", 30.0))["step"])
        for node in (stage.primary, stage.other):
            job = await stage.job_until(node, "a whole replica", whole_at(step))
            assert (job["peer"]["waiting"], job["newest"]["step"]) == ([], step)
            assert (job["trainer"]["ranks"], job["trainer"]["here"], job["trainer"]["world"]) == (2, 2, 4)
        whole = await asyncio.to_thread(newest_whole, stage.replicas)
        assert whole is not None
        assert whole.step == step
        names = [entry.path for entry in whole.manifest.files]
        assert names == ["mp_rank_00_model_states.pt"] + [f"outlast_rank_0000{rank}.pt" for rank in range(4)]
        await asyncio.to_thread(stage.job.finish)


async def test_a_notice_for_one_node_moves_the_whole_job() -> None:
    """All save at the notice and are held; the job is handed over whole, and both nodes' ranks leave."""
    async with two_nodes() as stage:
        await stage.say("notice", action="terminate", in_s=40)
        await asyncio.to_thread(stage.job.ended, 30.0)
        assert [type(error) for error in stage.job.errors] == [SystemExit] * 4
        steps = set(stage.job.steps)
        assert len(steps) == 1
        whole = await asyncio.to_thread(newest_whole, stage.replicas)
        assert whole is not None
        assert whole.step == steps.pop()
        for node in (stage.primary, stage.other):
            await stage.job_until(node, "the end of its epoch", lambda job: job["role"] != "primary")


async def test_a_withdrawn_notice_lets_all_nodes_train_on() -> None:
    """The peer is gone, so nothing is handed over; when the notice is withdrawn both nodes' ranks go on."""
    async with two_nodes() as stage:
        await stage.lose_peer()
        await stage.say("notice", action="terminate", in_s=40)
        held = await stage.job_until(stage.primary, "the held ranks", lambda job: job["held"])
        step = held["newest"]["step"] if held["newest"] else 0
        await stage.say("withdraw")
        await stage.job_until(stage.other, "training", lambda job: job["trainer"]["step"] > step + 20)
        await asyncio.to_thread(stage.job.finish)


async def test_the_peer_waits_for_the_part_of_a_node_whose_daemon_is_down() -> None:
    """Its ranks save all the same; once its daemon is back its part is committed and sent."""
    async with two_nodes() as stage:
        daemon = stage.daemons[OTHER]
        stage.spare(daemon)
        daemon.kill_group()
        await daemon.wait()
        step = int((await stage.order(stage.primary, "checkpoint", 30.0))["step"])
        job = await stage.job_until(stage.primary, "the missing part", lambda job: job["peer"]["waiting"])
        assert job["peer"]["waiting"] == [OTHER]
        assert await asyncio.to_thread(newest_whole, stage.replicas) is None
        await stage.start_daemon(stage.other)
        await stage.job_until(stage.other, "a whole replica", whole_at(step))
        await stage.job_until(stage.primary, "a whole replica", whole_at(step))
        await asyncio.to_thread(stage.job.finish)


async def test_the_job_goes_on_from_the_parts_that_are_known_to_be_whole() -> None:
    """Restarted on the same nodes, each loads its own part; a part that the peer lacks others of does not
    count."""
    async with two_nodes() as stage:
        step = int((await stage.order(stage.primary, "checkpoint", 30.0))["step"])
        for node in (stage.primary, stage.other):
            await stage.job_until(node, "a whole replica", whole_at(step))
        await stage.lose_peer()
        later = int((await stage.order(stage.other, "checkpoint", 30.0))["step"])
        assert later > step
        for node in (stage.primary, stage.other):
            usable = await asyncio.to_thread(newest_usable, node.checkpoints)
            assert usable is not None
            assert usable.step == step
        await stage.regain_peer()
        for node in (stage.primary, stage.other):
            await stage.job_until(node, "a whole replica", whole_at(later))
        await stage.retrain()
        for node in (stage.primary, stage.other):
            await stage.job_until(node, "its ranks", lambda job: job["trainer"]["step"] > later)
        assert {guard.resumed_from for guard in stage.job.guards.values()} == {f"global_step{later}"}
        await asyncio.to_thread(stage.job.finish)
