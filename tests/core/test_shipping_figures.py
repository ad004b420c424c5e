"""What a daemon reckons with for the next checkpoint, and how much of one is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.core.conftest import until

from outlast.daemon.checkpoint.destinations import Shipped
from outlast.daemon.core.facts import Place, Role
from outlast.daemon.core.status import job_status
from outlast.daemon.history.db import History
from outlast.daemon.ship.link import PeerState
from outlast.providers.base import SystemClock

if TYPE_CHECKING:
    from tests.core.conftest import Ground, Life

    from outlast.daemon.core.errands import Errands
    from outlast.wire.store import Committed


MIB = 1024 * 1024


class Taker:
    """A peer that takes everything and lacks ``lacks`` bytes of it, once it ``may`` answer."""

    name = "there:22"
    streams = False

    def __init__(self, lacks: int, early: int = 0) -> None:
        self.lacks, self.early = lacks, early
        self.may = asyncio.Event()
        self.may.set()
        self.state = PeerState(False, "away", None, 0, 0.0)

    async def ship(self, committed: Committed, _progress: object) -> Shipped:
        """As Peer.ship."""
        await self.may.wait()
        return Shipped(self.lacks, committed.manifest.total_bytes, 0.5, self.early)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """An empty one, on the disk."""
    made = History.open(tmp_path / "h.sqlite3", SystemClock())
    yield made
    made.close()


def has_peer(life: Life, taker: Taker) -> Errands:
    """The first job's errands, with that peer. The plan thinks it is away, so nothing is shipped unasked."""
    errands = life.desks["tune"].errands
    errands._peer = cast("Any", taker)
    return errands


async def committed(life: Life) -> Place:
    """A checkpoint of this life."""
    await until(lambda: life.job.ranks.step > 1)
    place = await life.job.ask_checkpoint("an operator asked")
    assert isinstance(place, Place)
    return place


async def test_the_rest_of_an_earlier_life_is_no_measure(ground: Ground) -> None:
    """The peer has most of what the last life was sending: the next one is not as small as the rest."""
    async with ground.life() as first, ground.trainer(ground.script()):
        await committed(first)
    async with ground.life() as life:
        old = life.job.newest
        assert old is not None
        assert old.size > 100
        errands = has_peer(life, Taker(100))
        await errands.ship(old)
        reckoned = job_status(life.job, errands, parked=0)["peer"]["next"]
        assert (reckoned["bytes"], reckoned["bytes_per_s"]) == (old.size, 200.0)
        async with ground.trainer(ground.script()):
            await errands.ship(await committed(life))
        assert job_status(life.job, errands, parked=0)["peer"]["next"]["bytes"] == 100


async def test_a_transfer_that_begins_has_everything_before_it(ground: Ground) -> None:
    """What the last one had sent is not taken for what this one has."""
    async with ground.life() as life, ground.trainer(ground.script()):
        taker = Taker(100)
        errands = has_peer(life, taker)
        place = await committed(life)
        errands.sent = (5_000, 5_000)
        taker.may.clear()
        async with asyncio.TaskGroup() as group:
            errands.start(group, "ship", errands.ship(place), place)
            await asyncio.sleep(0)
            assert errands.unsent == place.size
            taker.may.set()


@pytest.mark.blocking  # the record is written at once
@pytest.mark.parametrize(
    ("early", "paused", "measured"),
    [(0, False, 200 * MIB), (60 * MIB, False, 80 * MIB), (99 * MIB, False, None), (0, True, None)],
)
async def test_the_next_life_reckons_with_the_same_rate(
    ground: Ground,
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    early: int,
    *,
    paused: bool,
    measured: float | None,
) -> None:
    """What went during the save is not counted as if it had taken the seconds after it; nor is a pause."""
    async with ground.life() as life, ground.trainer(ground.script()):
        errands = has_peer(life, Taker(100 * MIB, early))
        place = await committed(life)
        if paused:
            life.job._quiet.ask("a rank", 60.0, life.clock.monotonic())
        with monkeypatch.context() as patch:
            patch.setattr(life.record, "ship", history.ship_event)
            await errands.ship(place)
    assert (life.job.ship_bytes_s, history.measured("tune").ship_bytes_s) == (measured, measured)


async def test_a_failure_that_is_made_good_is_no_trouble(ground: Ground) -> None:
    """Refused once, then taken elsewhere or by a later way: the status has nothing to say of it."""
    async with ground.life() as life, ground.trainer(ground.script()):
        taker = Taker(100)
        errands = has_peer(life, taker)
        place = await committed(life)
        errands._back_off("the disk there is full")
        assert job_status(life.job, errands, parked=0)["peer"]["because"] == "the disk there is full"
        newest = (place.epoch, place.tag, place.step)
        taker.state = replace(taker.state, reachable=True, because="", newest=newest)
        assert job_status(life.job, errands, parked=0)["peer"]["because"] == ""
        taker.state = replace(taker.state, newest=None)
        life.job.state = replace(life.job.state, role=Role.FENCED)
        assert job_status(life.job, errands, parked=0)["destinations"][0]["because"] == ""
