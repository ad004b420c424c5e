"""Pauses of shipping that ranks ask for: bounded, counted by rank, and not heeded under a notice."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.conftest import Ground, until

from outlast.daemon.core.quiet import MOST_S, Quiet
from outlast.daemon.ship import limit
from outlast.daemon.ship.limit import Limit
from outlast.providers.base import SystemClock
from outlast.wire.messages import Progress

asks = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats() | st.sampled_from([0.0, 5.0, 60.0]), st.floats(0, 100)),
    max_size=20,
)


@given(asks)
def test_no_pause_lasts_longer_than_a_minute_from_its_first_word(
    asked: list[tuple[str, float, float]],
) -> None:
    """Whatever is asked for, in whatever order; and a rank that has ended its pause holds nothing back."""
    quiet, now = Quiet(), 1000.0
    began: dict[str, float] = {}
    for who, seconds, later in asked:
        now += later
        quiet.ask(who, seconds, now)
        if seconds > 0 and seconds != float("inf"):
            began.setdefault(who, now)
        else:
            began.pop(who, None)
        assert quiet.left(now) <= max([0.0, *(at + MOST_S - now for at in began.values())])
    for who in "abc":
        quiet.ask(who, 0.0, now)
    assert quiet.left(now) == 0.0


def test_the_pause_of_all_lasts_as_long_as_anybodys() -> None:
    """One rank that goes on does not end another's; one that is gone holds nothing."""
    quiet = Quiet()
    quiet.ask("a", 10, 0.0)
    quiet.ask("b", 30, 0.0)
    assert quiet.left(5.0) == 25.0
    quiet.forget("b", 5.0)
    assert quiet.left(5.0) == 5.0
    assert quiet.left(11.0) == 0.0


def test_a_transfer_in_a_pause_is_told_from_one_after_it() -> None:
    """What it took says nothing of the way, be the pause over by then, or ended early."""
    quiet = Quiet()
    assert not quiet.since(0.0)
    quiet.ask("a", 10, 100.0)
    assert quiet.since(50.0)
    assert quiet.since(105.0)
    assert not quiet.since(110.0)
    quiet.ask("a", 0, 104.0)
    assert quiet.since(103.0)
    assert not quiet.since(105.0)


async def test_a_paused_limit_lets_a_trickle_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions stay alive in a pause; once it ends, nobody waits for the rest of it."""
    monkeypatch.setattr(limit, "_TRICKLE_S", 0.2)
    clock, left = SystemClock(), 60.0
    held = Limit(None, clock)
    held.paused = lambda: left
    began = clock.monotonic()
    await held.take(1)
    assert 0.15 < clock.monotonic() - began < 10.0
    monkeypatch.setattr(limit, "_TRICKLE_S", 3600.0)
    waiting = asyncio.create_task(held.take(1))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    left = 0.0
    await asyncio.wait_for(waiting, 10.0)


async def test_a_ranks_word_counts_until_a_notice_or_its_end(ground: Ground) -> None:
    """The steps' pace stays as it was; a notice overrides the pause; a rank that leaves takes it along."""
    async with ground.life() as life:
        async with ground.trainer(ground.script()) as ranks:
            await until(lambda: life.job.ranks.step_s > 0)
            job = life.job
            (connection,) = job.ranks
            job.said(connection, Progress(ranks[0].step, pause_s=1e9))
            assert 50.0 < job.bulk_paused_s() <= MOST_S
            assert job.ranks.step_s > 0
            life.notice(600.0)
            assert job.bulk_paused_s() == 0.0
            job.noticed(None)
            assert job.bulk_paused_s() > 0.0
        await until(lambda: not len(job.ranks))
        assert job.bulk_paused_s() == 0.0
