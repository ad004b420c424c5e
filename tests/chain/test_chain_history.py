"""Whole daemons: what the primary saw is at its peer, also when it went without a last word."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.history.counting import count, merge
from outlast.daemon.history.reading import read_rows
from outlast.daemon.history.rows import Rows
from outlast.daemon.history.segments import read_folder
from outlast.simulations.drill.chain import Chain, playing
from outlast.simulations.drill.nodes import JOB, PRIMARY, STANDBY, ScriptedTrainer
from outlast.simulations.drill.scenario import Plan

pytestmark = pytest.mark.timeout(90)

PLAN = Plan(trainer=ScriptedTrainer(steps=100_000, shard_bytes=10_000), poll="200ms", bound_s=60.0)


def stats(chain: Chain) -> Path:
    """What the primary has sent of its history."""
    return chain.standby.replicas / JOB / "stats"


def sent(status: dict[str, Any]) -> bool:
    peers = status["history"]["segments"]["peers"]
    return bool(peers) and peers[0]["sent_s_ago"] is not None and peers[0]["waiting"] == 0


async def at_peer(chain: Chain) -> Rows:
    """The rows at the peer; every segment there is whole."""
    read = await asyncio.to_thread(read_folder, stats(chain))
    assert read.notes == ()
    return read.rows


async def seen_in(read: Callable[[], Awaitable[Rows]], name: str) -> Rows:
    """The rows once they hold any of the table ``name``."""
    async with asyncio.timeout(30):
        while not getattr(rows := await read(), name):  # noqa: ASYNC110 - other processes write them
            await asyncio.sleep(0.1)
    return rows


async def own(chain: Chain) -> Rows:
    """The standby's own history."""
    return await asyncio.to_thread(read_rows, chain.standby.history)


async def test_the_peer_holds_the_primarys_last_words_and_times_the_restore() -> None:
    """A start, a notice, a handover: stay and notice are at the peer, the restore is in its own history."""
    async with playing(PLAN) as chain:
        await chain.protected()
        await chain.status_until("the first segment sent", sent)
        before = await at_peer(chain)
        assert [spell.node for spell in before.spells] == [PRIMARY]
        await chain.say("notice", in_s=30)
        await chain.until("the takeover", lambda seen: seen.mark("first_step", STANDBY) is not None)
        rows = await seen_in(lambda: at_peer(chain), "notices")
        assert rows.notices[0].spell == rows.spells[0].id == before.spells[0].id
        here = await seen_in(lambda: own(chain), "restores")
        (restore,) = here.restores
        assert (restore.outcome, restore.place) == ("done", "replica")
        assert restore.seconds is not None
        assert 0 < restore.seconds < 30
        assert here.losses == (), "a handover is no loss"


async def test_a_node_that_goes_without_a_word_is_told_by_its_peer() -> None:
    """The primary dies under a notice: the peer names its stay, and the two files count one loss, once."""
    async with playing(PLAN) as chain:
        await chain.protected()
        await chain.status_until("the first segment sent", sent)
        await chain.say("notice", in_s=6)
        await seen_in(lambda: at_peer(chain), "notices")
        daemon = chain.daemons[PRIMARY]
        chain.spare(daemon)
        daemon.kill_group()
        await daemon.wait()
        await chain.until("the takeover", lambda seen: seen.mark("taken_over", STANDBY) is not None)
        here = await seen_in(lambda: own(chain), "losses")
        there = await at_peer(chain)
        (loss,), (spell,) = here.losses, there.spells
        assert (loss.victim, loss.pool, loss.seen_by) == (spell.victim, spell.pool, "peer")
        assert loss.drill, "an endpoint on this machine is a rehearsal"
        counts = count(merge(here, there, here), loss.at + 1000)
        assert counts.total.interruptions == 0, "and no rate"
