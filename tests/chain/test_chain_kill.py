"""kill -9 of each part at each step of the chain: nothing committed is lost, nothing half-made is taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlast.simulations.drill.chain import Chain, playing
from outlast.simulations.drill.nodes import JOB, STANDBY, Node, ScriptedTrainer
from outlast.simulations.drill.scenario import Plan
from outlast.wire.store import scan, verify

pytestmark = pytest.mark.timeout(90)

DAEMON = (
    "notice_seen", "flush_asked", "step_agreed", "saved", "committed", "ship_began", "shipped",
    "verified", "handed_over",
)  # fmt: skip
RANK_EARLY = ("notice_seen", "flush_asked", "step_agreed")
RANK = ("saved", "committed", "verified")
RECEIVER = ("ship_began", "shipped", "verified", "handed_over")

TWO = Plan(trainer=ScriptedTrainer(steps=100_000, shard_bytes=10_000, world=2), poll="200ms", bound_s=80.0)


@asynccontextmanager
async def doomed(victim: str, at: str) -> AsyncIterator[Chain]:
    """Everything running, a death appointed, and a guardian for the primary's daemon."""

    def program(folder: Path) -> tuple[str, ...]:
        replicas = Node(STANDBY, folder / STANDBY).replicas
        places = ("--mark", str(folder / "mark"), "--replicas", str(replicas))
        what = ("--at", at, "--victim", victim, "--rank-pid-file", str(folder / "rank1.pid"))
        return ("outlast.simulations.crashing", *what, *places)

    async with playing(TWO, program) as chain:
        folder = chain.sandbox.folder
        await asyncio.to_thread((folder / "rank1.pid").write_text, str(chain.ranks[1].pid))
        async with chain.guarded(chain.primary):
            yield chain
        assert (folder / "mark").exists(), "nobody was killed"


@pytest.mark.parametrize(
    ("victim", "at"),
    [("daemon", at) for at in DAEMON] + [("rank", at) for at in RANK] + [("receiver", at) for at in RECEIVER],
)
async def test_kill_at_each_step(victim: str, at: str) -> None:
    """A notice, a kill -9 at one step of the chain, and the standby carries on from whole bytes."""
    await kill(victim, at, flushed=True)


async def test_kill_rank_before_it_has_saved() -> None:
    """A rank killed before it has saved is waited for, ten seconds; then the standby carries on from the
    checkpoint before. The three cases wait side by side."""
    async with asyncio.TaskGroup() as group:
        for at in RANK_EARLY:
            group.create_task(kill("rank", at, flushed=False), name=f"rank {at}")


async def kill(victim: str, at: str, *, flushed: bool) -> None:
    """Play one case. ``flushed``: the notice's own checkpoint gets to the standby."""
    async with doomed(victim, at) as chain:
        first = await chain.protected()
        if victim == "rank":
            chain.spare(chain.ranks[1])
        await chain.say("notice", in_s=25)
        seen = await chain.until("the takeover", lambda s: s.mark("first_step", STANDBY) is not None)
        resumed = seen.story.all("resumed", STANDBY)[-1].whole("step")
        assert resumed is not None
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
