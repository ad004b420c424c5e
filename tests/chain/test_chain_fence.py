"""One epoch, one primary: a peer that comes back, a node that has handed over, strangers at its door."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from outlast.daemon.checkpoint.destinations import Refused
from outlast.daemon.config import load
from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.providers.base import SystemClock
from outlast.simulations.drill.chain import Chain, playing
from outlast.simulations.drill.nodes import JOB, PRIMARY, STANDBY, ScriptedTrainer
from outlast.simulations.drill.scenario import Plan
from outlast.wire.store import scan

pytestmark = pytest.mark.timeout(60)

TWO = Plan(trainer=ScriptedTrainer(steps=100_000, shard_bytes=10_000, world=2), poll="200ms", bound_s=50.0)


@asynccontextmanager
async def peer_of(chain: Chain) -> AsyncIterator[Peer]:
    """The primary's peer, reached with the primary's own key."""
    settings = await asyncio.to_thread(load, chain.primary.config)
    told = settings.jobs[0].peer
    assert told is not None
    peer = Peer(
        PeerSettings(told.host, told.port, told.user, host_key=told.host_key, key=told.key),
        JOB,
        SystemClock(),
    )
    running = asyncio.create_task(peer.run())
    try:
        yield peer
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_peer_that_comes_back_before_the_deadline() -> None:
    """With the peer down at the notice the checkpoint is kept, the ranks are held and the status says why;
    once the peer is back the job is handed over without a lost step."""
    async with playing(TWO) as chain:
        await chain.status_until("ranks", lambda status: status["jobs"][0]["trainer"]["ranks"] == 2)
        await chain.lose_peer()
        await chain.say("notice", in_s=45)
        status = await chain.status_until(
            "the peer is missed", lambda s: s["jobs"][0]["held"] and s["jobs"][0]["newest"] is not None
        )
        assert status["jobs"][0]["peer"]["reachable"] is False
        assert status["jobs"][0]["because"].startswith("peer not reachable: ")
        await chain.regain_peer()
        seen = await chain.until("the takeover", lambda s: s.mark("first_step", STANDBY) is not None)
        assert len(seen.story.all("committed", PRIMARY)) == 1
        assert seen.steps[STANDBY][0].step == seen.step(PRIMARY) + 1
        assert [await chain.ended(rank) for rank in chain.ranks] == [0, 0]


async def test_t13_fenced_primary_stays_fenced() -> None:
    """After a handover the old primary sends new trainers home, also after a restart, and what it pushes
    in its old epoch is refused by the receiver."""
    async with playing(TWO) as chain:
        await chain.status_until("ranks", lambda status: status["jobs"][0]["trainer"]["ranks"] == 2)
        await chain.say("notice", in_s=45)
        seen = await chain.until("the takeover", lambda s: s.mark("first_step", STANDBY) is not None)
        assert [await chain.ended(rank) for rank in chain.ranks] == [0, 0]
        trained = seen.step(PRIMARY)
        await chain.restart_daemon(chain.primary)
        again = await chain.start_trainer(chain.primary)
        assert await chain.ended(again) == 0
        assert (await again.tail()).splitlines()[-1] == "exit exit"
        assert (await chain.seen()).step(PRIMARY) == trained
        status = await chain.order(chain.primary, "status")
        assert status["jobs"][0]["role"] == "fenced"
        newest = (await asyncio.to_thread(scan, chain.primary.checkpoints))[0]
        async with peer_of(chain) as peer:
            with pytest.raises(Refused) as refused:
                await peer.ship(newest)
            assert refused.value.code == "fenced"
            with pytest.raises(Refused) as refused:
                await peer.warn("notice", 10.0, newest.step, newest.epoch)
            assert refused.value.code == "fenced"
        at = (await chain.seen()).step(STANDBY)
        await chain.until("training on", lambda s: s.step(STANDBY) >= at + 10)


async def test_strangers_are_told_apart() -> None:
    """A trainer of another job, one with another folder and a second one of the same job are refused with
    a line that says why; the job's own ranks train on."""
    async with playing(TWO) as chain:
        await chain.status_until("ranks", lambda status: status["jobs"][0]["trainer"]["ranks"] == 2)
        elsewhere = chain.sandbox.folder / "elsewhere"
        mine = ("--world", "2", "--checkpoints", str(chain.primary.checkpoints))
        strangers = {
            "job other is not configured on this node (there are: drill)": ("--job", "other", *mine),
            f"the trainer saves to {elsewhere}, the configuration says {chain.primary.checkpoints}": (
                ("--job", JOB, "--world", "2", "--checkpoints", str(elsewhere))
            ),
            "two trainers may not share one job name": ("--job", JOB, *mine),
        }
        for because, words in strangers.items():
            rank = (sys.executable, "-m", "outlast.simulations.rank", "--socket", str(chain.primary.socket))
            stranger = await chain.sandbox.spawn("stranger", *rank, *words)
            line = await chain.log_until("trainer_refused", because)
            assert line["level"] == "warning"
            assert line["pid"] == stranger.pid
            stranger.kill_group()
            await stranger.wait()
        at = (await chain.seen()).step(PRIMARY)
        await chain.until("training on", lambda s: s.step(PRIMARY) >= at + 10)
        status = await chain.order(chain.primary, "status")
        assert set(status["jobs"][0]["trainer"]["pids"]) == {rank.pid for rank in chain.ranks}
