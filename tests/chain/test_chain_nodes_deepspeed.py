"""DeepSpeed over two nodes: launchers that meet over TCP, a rank and a daemon on each, torch's own store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from tests.chain.test_chain_nodes import TwoNodes, whole_at

from outlast.providers.base import SystemClock
from outlast.simulations.drill.losses import compare, read_steps
from outlast.simulations.drill.nodes import GptTrainer, Meeting, Node
from outlast.simulations.drill.sandbox import Child, Sandbox
from outlast.simulations.drill.scenario import Plan
from outlast.simulations.sshd import free_port
from outlast.wire.store import newest_whole, verify

pytestmark = [pytest.mark.blocking, pytest.mark.long, pytest.mark.timeout(280)]
TRAINER = GptTrainer(steps=100_000, pace_s=0.2, world=1, size="tiny")


class TwoLaunchers(TwoNodes):
    """The same two nodes, with torchrun on each."""

    launchers: tuple[Child, ...] = ()

    async def _start_primary_trainer(self) -> None:
        port = free_port()
        self.launchers = tuple(
            [
                await self.start_trainer(node, replace(TRAINER, meeting=Meeting(rank, 2, port)))
                for rank, node in enumerate((self.primary, self.other))
            ]
        )

    def _may_end(self, child: Child) -> bool:
        return super()._may_end(child) or (child in self.launchers and child.status == 0)


@asynccontextmanager
async def two_launchers() -> AsyncIterator[TwoLaunchers]:
    """Both nodes in training, past DeepSpeed's start."""
    plan = Plan(trainer=TRAINER, poll="200ms", bound_s=240.0)
    async with Sandbox(SystemClock()) as sandbox, TwoLaunchers(plan, sandbox) as stage:
        await stage.begin()
        for node in (stage.primary, stage.other):
            await stage.job_until(node, "training", lambda job: (job["trainer"]["step"] or 0) > 2)
        yield stage


async def _trained(stage: TwoLaunchers, node: Node, steps: int) -> None:
    """Both ranks on one node, from what lies in its checkpoint folder up to ``steps``, without a daemon."""
    child = await stage.start_trainer(node, replace(TRAINER, world=2, steps=steps, pace_s=0.0))
    stage.spare(child)
    assert await child.wait() == 0, await child.tail()


async def test_deepspeed_on_two_nodes_is_saved_whole_and_goes_on_to_the_last_bit() -> None:
    """A checkpoint asked for at one node, then a notice for the other: the peer has all ranks' shards of one
    step each time, both launchers end with 0, and who goes on from there has the losses of a run undisturbed.
    """
    async with two_launchers() as stage:
        step = int((await stage.order(stage.other, "checkpoint", 30.0))["step"])
        for node in (stage.primary, stage.other):
            await stage.job_until(node, "a whole replica", whole_at(step))
        await stage.say("notice", action="terminate", in_s=60)
        assert [await launcher.wait() for launcher in stage.launchers] == [0, 0]
        whole = await asyncio.to_thread(newest_whole, stage.replicas)
        assert whole is not None
        assert whole.step > step
        assert await asyncio.to_thread(verify, whole.path) == []
        shards = [entry.path for entry in whole.manifest.files if "optim_states" in entry.path]
        assert len(shards) == 2

        after = Node("after", stage.sandbox.folder / "after")
        alone = Node("alone", stage.sandbox.folder / "alone")
        for node in (after, alone):
            await asyncio.to_thread(node.make)
        await asyncio.to_thread(after.checkpoints.rmdir)
        await asyncio.to_thread(after.checkpoints.symlink_to, stage.replicas)
        for node in (after, alone):
            await _trained(stage, node, whole.step + 5)
        pieces = [*read_steps(stage.primary.losses), *read_steps(after.losses)]
        compared = compare(pieces, read_steps(alone.losses))
        assert compared.exact, compared
        assert compared.again == ()
