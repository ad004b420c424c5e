"""`every: auto` in the running core: what is measured sets the interval, and the interval asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.core import pace as paces
from outlast.daemon.core.pace import FIRST_S, LEAST_S, interval
from outlast.daemon.core.pacing import Pacing
from outlast.daemon.core.status import job_status
from outlast.daemon.history.counting import PoolCounts
from outlast.daemon.history.db import History
from outlast.daemon.history.rows import Cause, Pool
from outlast.providers.base import Identity

if TYPE_CHECKING:
    from tests.conftest import ManualClock
    from tests.core.conftest import Ground


@pytest.fixture
def ground(ground: Ground, tmp_path: Path) -> Ground:
    """Jobs whose interval is chosen."""
    return type(ground)(tmp_path, every="auto")


async def until(condition: Callable[[], object]) -> None:
    """Wait for what has no event of its own."""
    async with asyncio.timeout(15.0):
        while not condition():  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.01)


async def test_a_checkpoint_is_measured_and_the_interval_follows(ground: Ground) -> None:
    """Before the first: five minutes. After it: Daly's for the slowest rank's save; a rougher pool and a
    slower link change it at the next look."""
    slow, fast = ground.script(0, 2, save_s=0.3), ground.script(1, 2)
    async with ground.life() as life, ground.trainer(slow, fast):
        job = life.job
        await life.record.until("first_step")
        assert job.pace is not None
        assert job.pace.seconds == FIRST_S
        assert FIRST_S - 15 < (job.interval_left() or 0) <= FIRST_S
        await job.ask_checkpoint("measure")
        await until(lambda: job.pace is not None and job.pace.seconds != FIRST_S)
        assert job.stall_s is not None
        assert 0.3 <= job.stall_s < 3.0
        assert job.pace == interval(job.stall_s, None, None)
        assert job.pace.seconds > LEAST_S
        job.hazard_per_hour = 10.0
        job.facts(None, {})
        assert job.pace.seconds == LEAST_S
        assert job.newest is not None
        job.ship_bytes_s = job.newest.size / 400.0
        job.facts(None, {})
        assert job.pace.seconds == pytest.approx(400.0)
        desk = next(iter(life.desks.values()))
        told = job_status(job, desk.errands, parked=0)["interval"]
        assert told == {"seconds": job.pace.seconds, "auto": True, "because": job.pace.sentence}


async def test_the_chosen_interval_asks_by_itself(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks, and checkpoints come: the first to measure, the next at the pace that was chosen."""
    monkeypatch.setattr(paces, "FIRST_S", 0.2)
    monkeypatch.setattr(paces, "LEAST_S", 0.3)
    async with ground.life() as life, ground.trainer(ground.script()):
        life.job.hazard_per_hour = 1e4
        await life.record.until("committed", 2)
        asked = life.record.of("flush_asked")
        assert {told["cause"] for told in asked} == {"interval"}
        assert life.job.pace is not None
        assert life.job.pace.seconds == 0.3


async def test_a_fixed_interval_is_left_alone(tmp_path: Path, ground: Ground) -> None:
    """`every: 1h` stays an hour whatever is measured, and the status says whose it is."""
    hourly = type(ground)(tmp_path, every="1h")
    async with hourly.life() as life, hourly.trainer(hourly.script()):
        await life.record.until("first_step")
        await life.job.ask_checkpoint("measure")
        life.job.hazard_per_hour = 10.0
        life.job.facts(None, {})
        assert life.job.pace == paces.Pace(3600.0, "every 60.0 min, as configured")
        assert not life.job.auto


HERE = Identity("aws", "us-east-1", "us-east-1a", "", "p5.48xlarge", "i-1")
POOL = Pool("aws", "us-east-1", "us-east-1a", "p5.48xlarge")


def test_a_nodes_record_of_its_own_pool(tmp_path: Path, manual_clock: ManualClock) -> None:
    """One interruption in twenty hours here; another pool has nothing; an unknown stay has no pool."""
    history = History.open(tmp_path / "history.sqlite3", manual_clock)
    stays: list[tuple[str, int, Cause]] = [("i-1", 15, "interruption"), ("i-2", 5, "user-stop")]
    for instance, hours, cause in stays:
        spell = history.begin_spell(replace(HERE, instance_id=instance), "here", "boot", False)
        manual_clock.advance(hours * 3600)
        history.end_spell(spell, cause)
    elsewhere = history.begin_spell(
        replace(HERE, zone="us-west-2b", instance_id="i-3"), "there", "boot", False
    )
    now = history.begin_spell(HERE, "here", "boot-2", False)
    counts, other = history.pool_of(now), history.pool_of(elsewhere)
    assert counts is not None
    assert other is not None
    assert (counts.pool, counts.interruptions, round(counts.exposure_hours, 3)) == (POOL, 1, 20.0)
    assert (other.pool.zone, other.interruptions, other.exposure_hours) == ("us-west-2b", 0, 0.0)
    assert history.pool_of(now + 1) is None
    history.close()


@pytest.mark.parametrize(
    ("counts", "rate"),
    [(PoolCounts(POOL, interruptions=1, exposure_hours=20.0), 2 / 30), (PoolCounts(POOL), 0.1), (None, None)],
    ids=["a record", "no record", "not known yet"],
)
async def test_the_jobs_hear_of_their_pool(
    ground: Ground, counts: PoolCounts | None, rate: float | None
) -> None:
    """The record with the prior; nothing while the node does not know which pool is its own."""
    asked = asyncio.Event()

    async def ask() -> PoolCounts | None:
        asked.set()
        return counts

    async with ground.life() as life:
        task = asyncio.create_task(Pacing(ask, [life.job]).run())
        await asked.wait()
        await asyncio.sleep(0)  # what follows the answer runs before the next wait
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert life.job.hazard_per_hour == (None if rate is None else pytest.approx(rate))
