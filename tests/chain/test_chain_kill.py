"""kill -9 of each part at each step of the chain: nothing committed is lost, nothing half-made is taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlast.providers.base import SystemClock
from outlast.simulations.drill.chain import Chain
from outlast.simulations.drill.nodes import JOB, STANDBY, Node, ScriptedTrainer
from outlast.simulations.drill.sandbox import Sandbox
from outlast.simulations.drill.scenario import Plan
from outlast.wire.store import scan, verify

pytestmark = pytest.mark.timeout(90)

DAEMON = (
    "notice_seen", "flush_asked", "step_agreed", "saved", "committed", "ship_began", "shipped",
    "verified", "handed_over",
)  # fmt: skip
RANK = ("notice_seen", "flush_asked", "step_agreed", "saved", "committed", "verified")
RECEIVER = ("ship_began", "shipped", "verified", "handed_over")

TWO = Plan(trainer=ScriptedTrainer(steps=100_000, shard_bytes=10_000, world=2), poll="200ms", bound_s=80.0)


@asynccontextmanager
async def doomed(victim: str, at: str) -> AsyncIterator[Chain]:
    """Everything running, a death appointed, and a guardian for the primary's daemon."""
    async with Sandbox(SystemClock()) as sandbox:
        pid_file, mark = sandbox.folder / "rank1.pid", sandbox.folder / "mark"
        replicas = Node(STANDBY, sandbox.folder / STANDBY).replicas
        words = ("--at", at, "--victim", victim, "--mark", str(mark), "--replicas", str(replicas))
        program = ("outlast.simulations.crashing", *words, "--rank-pid-file", str(pid_file))
        async with Chain(TWO, sandbox, program) as chain:
            await chain.begin()
            await asyncio.to_thread(pid_file.write_text, str(chain.ranks[1].pid))
            async with chain.guarded(chain.primary):
                yield chain
            assert mark.exists(), "nobody was killed"


@pytest.mark.parametrize(
    ("victim", "at"),
    [("daemon", at) for at in DAEMON] + [("rank", at) for at in RANK] + [("receiver", at) for at in RECEIVER],
)
async def test_kill_at_each_step(victim: str, at: str) -> None:
    """A notice, a kill -9 at one step of the chain, and the standby carries on from whole bytes."""
    async with doomed(victim, at) as chain:
        first = await chain.protected()
        if victim == "rank":
            chain.spare(chain.ranks[1])
        await chain.say("notice", in_s=25)
        seen = await chain.until("the takeover", lambda s: s.mark("first_step", STANDBY) is not None)
        resumed = seen.story.all("resumed", STANDBY)[-1].whole("step")
        assert resumed is not None
        flushed = victim != "rank" or at in ("saved", "committed", "verified")
        assert resumed > first if flushed else resumed == first
        assert len(seen.story.all("trainer_started", STANDBY)) == 1
        replicas = chain.standby.replicas / JOB
        assert resumed == (await asyncio.to_thread(scan, replicas))[0].step
        for store in (chain.primary.checkpoints, replicas):
            assert await asyncio.to_thread(plain_but_broken, store) == []
        killed = [await chain.ended(rank) for rank in chain.ranks]
        assert killed == [0, -9 if victim == "rank" else 0]


def plain_but_broken(store: Path) -> list[Path]:
    """Folders that bear a plain name, as a checkpoint does, and are none that verifies."""
    plain = [p for p in store.glob("epoch-*/*") if p.is_dir() and "." not in p.name]
    assert plain, f"{store} is empty"
    return [folder for folder in plain if verify(folder)]
