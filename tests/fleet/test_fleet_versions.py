"""Versions of one stay, each merged when it was read: whatever changed in between, it counts once."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.fleet.filling import fill
from outlast.daemon.fleet.load import observe, read
from outlast.daemon.fleet.parquet import partitions
from outlast.daemon.fleet.place import place_of
from outlast.daemon.history.db import History
from outlast.daemon.rates.table import Observed
from outlast.providers.base import Identity

if TYPE_CHECKING:
    from tests.conftest import ManualClock

    NewClock = Callable[[], ManualClock]

WHO = Identity("aws", "us-east-1", "us-east-1a", "use1-az4", "p5.48xlarge", "i-0victim")
MARCH = dt.datetime(2027, 3, 1, tzinfo=dt.UTC).timestamp()
HOUR = 3600.0
ORDERS = [["early", "late"], ["late", "early"], ["late", "early", "late"]]


class Node:
    """A node of which copies are taken as time goes by."""

    def __init__(self, folder: Path, clock: ManualClock, identity: Identity = WHO) -> None:
        self.folder, self.clock, self.file = folder, clock, folder / "node.sqlite3"
        self.start(identity)

    def start(self, identity: Identity = WHO) -> None:
        """The daemon comes up, in the same boot."""
        self.history = History.open(self.file, self.clock)
        self.spell = self.history.begin_spell(identity, "a", "boot-1")

    def live(self, hours: float) -> None:
        """So long goes by."""
        self.clock.advance(hours * HOUR)
        self.history.heartbeat(self.spell)

    def copy(self, name: str) -> None:
        """The file as it is now, under this name."""
        self.history.close()
        shutil.copy(self.file, self.folder / name)
        self.history = History.open(self.file, self.clock)


def told(seen: Observed) -> tuple[list[tuple[str, str]], list[int], int, float]:
    """Pools, spells, losses and hours."""
    table = seen.table
    pools = [(pool.provider, pool.region) for pool in table.pools]
    return pools, table.spells.tolist(), int(table.losses.sum()), round(float(table.exposure.sum()), 6)


def merged(folder: Path, order: list[str], parquet: bool, now: float) -> Path:
    """The copies merged one by one."""
    into = folder / "-".join(["into", *order])
    for name in order:
        fill(str(into), read([str(folder / name)]), now, parquet=parquet)
    return into


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("parquet", [False, True], ids=["file", "parquet"])
@pytest.mark.parametrize("step", [-2 * HOUR, 2 * HOUR], ids=["back", "ahead"])
def test_a_clock_set_across_a_month_leaves_one_spell(
    step: float, parquet: bool, order: list[str], tmp_path: Path, new_clock: NewClock
) -> None:
    """The stay began within the hour of a new month; the clock then moves it to the other side."""
    clock = new_clock()
    clock.epoch = MARCH - 0.5 * HOUR if step > 0 else MARCH + 0.5 * HOUR
    node = Node(tmp_path, clock)
    node.live(0.25)
    node.copy("early")
    clock.step_wall(step)
    node.live(1)
    node.copy("late")
    node.history.close()
    into = merged(tmp_path, order, parquet, clock.wall() + 24 * HOUR)
    seen = observe([str(into)], clock.wall() + 24 * HOUR)
    assert told(seen) == ([("aws", "us-east-1")], [1], 0, 1.25)
    if parquet:
        (one,) = partitions(place_of(str(into)))
        assert one.month == ("2027-02" if step > 0 else "2027-03")


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("parquet", [False, True], ids=["file", "parquet"])
@pytest.mark.parametrize("early", [Identity(""), Identity("aws")], ids=["nothing", "provider"])
def test_a_pool_that_is_learned_later_is_the_only_one(
    early: Identity, parquet: bool, order: list[str], tmp_path: Path, new_clock: NewClock
) -> None:
    """A daemon that came up before the metadata did: its hours are those of the pool it then found."""
    node = Node(tmp_path, new_clock(), early)
    node.live(1)
    node.copy("early")
    node.history.close()
    node.start()
    node.live(1)
    node.copy("late")
    node.history.close()
    now = node.clock.wall() + 24 * HOUR
    into = merged(tmp_path, order, parquet, now)
    expected = ([("aws", "us-east-1")], [1], 0, 2.0)
    assert told(observe([str(into)], now)) == expected
    assert told(observe([str(into), str(tmp_path / "early")], now)) == expected


def test_a_pool_that_was_never_learned_counts_beside_the_others(tmp_path: Path, new_clock: NewClock) -> None:
    """No provider is a name as good as any: nothing of it is left out."""
    clock = new_clock()
    for folder, identity in ((tmp_path / "one", Identity("")), (tmp_path / "two", WHO)):
        folder.mkdir()
        node = Node(folder, clock, identity)
        node.live(1)
        node.copy("late")
        node.history.end_spell(node.spell, "interruption")
        node.copy("end")
        node.history.close()
    into, now = str(tmp_path / "fleet"), clock.wall() + 24 * HOUR
    for name in ("late", "end"):
        fill(into, read([str(tmp_path / one / name) for one in ("one", "two")]), now, parquet=True)
    assert told(observe([into], now)) == ([("", ""), ("aws", "us-east-1")], [1, 1], 2, 2.0)
