"""What peers saw of a node that could say no last word, in Parquet: one death is one loss in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from outlast.daemon.fleet.filling import fill
from outlast.daemon.fleet.load import observe, read
from outlast.daemon.history.counting import SILENT_S
from outlast.daemon.history.db import History
from outlast.daemon.rates.table import CAUSES, Table
from outlast.providers.base import Identity

if TYPE_CHECKING:
    from tests.conftest import ManualClock

    NewClock = Callable[[], ManualClock]

WHO = Identity("aws", "us-east-1", "us-east-1a", "use1-az4", "p5.48xlarge", "i-0victim")
THERE = Identity("aws", "us-west-2", "us-west-2a", "usw2-az1", "p5.48xlarge", "i-0peer")
ORDERS = [
    [["victim", "peer", "other"]],
    [["victim"], ["peer"], ["other"]],
    [["peer"], ["other"], ["victim"]],
    [["peer"], ["victim", "peer"], ["other"]],
    [["victim"], ["other", "peer"], ["victim", "peer"], ["other"]],
]
NAMES = ["-".join("+".join(group) for group in order) for order in ORDERS]


class Node:
    """One machine with a file of its own, which beats each minute."""

    def __init__(self, folder: Path, clock: ManualClock, identity: Identity, name: str) -> None:
        self.clock = clock
        self.history = History.open(folder / name, clock)
        self.spell = self.history.begin_spell(identity, name, "boot-1")

    def live(self, minutes: int) -> Node:
        """So many heartbeats."""
        for _ in range(minutes):
            self.clock.advance(60)
            self.history.heartbeat(self.spell)
        return self

    def sees_gone(self, identity: Identity = WHO) -> Node:
        """Its peer does not answer any more."""
        self.history.loss(identity, "peer", node="victim")
        return self

    def stop(self) -> float:
        """Close the file; a day later is now."""
        self.history.close()
        return self.clock.wall() + 86_400


@pytest.fixture
def files(tmp_path: Path, new_clock: NewClock) -> tuple[Path, float]:
    """A victim silent after an hour and a half, and two peers that saw it, a minute apart."""
    clock = new_clock()
    clock.mono = 60.0  # seen from its start, so that its age is known
    victim = Node(tmp_path, clock, WHO, "victim").live(90)
    peer = Node(tmp_path, new_clock(), THERE, "peer").live(95).sees_gone()
    other = Node(tmp_path, new_clock(), replace(THERE, instance_id="i-0other"), "other").live(96).sees_gone()
    return tmp_path, max([node.stop() for node in (victim, peer, other)])


def merged(folder: Path, order: list[list[str]], now: float) -> str:
    """Merged into Parquet, group by group."""
    into = str(folder / "fleet")
    for group in order:
        fill(into, read([str(folder / name) for name in group]), now, parquet=True)
    return into


def causes(table: Table) -> dict[str, int]:
    """How many stays ended how."""
    return {cause: int(n) for cause, n in zip(CAUSES, table.causes.sum(axis=0), strict=True) if n}


def checked(table: Table) -> None:
    """One loss of a known age, after an hour and a half; two peers go on."""
    assert causes(table) == {"silent-loss": 1, "running": 2}
    assert table.losses.sum(axis=(0, 2)).tolist() == [0, 0, 1, 0, 0, 0]
    assert table.bursts.sum() == len(table.burst_at) == 1
    assert table.spells.sum() == 3
    assert float(table.exposure.sum()) == pytest.approx((90 + 95 + 96) / 60)


@pytest.mark.parametrize("order", ORDERS, ids=NAMES)
def test_one_death_is_one_loss(order: list[list[str]], files: tuple[Path, float]) -> None:
    """The victim's own stay ends with it, whether its file came first, last or with the peers'."""
    folder, now = files
    into = merged(folder, order, now)
    checked(observe([into], now).table)
    checked(observe([into, str(folder / "peer"), str(folder / "victim")], now).table)


@pytest.mark.parametrize("order", ORDERS, ids=NAMES)
def test_one_death_is_one_loss_in_what_is_merged_on(
    order: list[list[str]], files: tuple[Path, float]
) -> None:
    """From Parquet into a file, into Parquet elsewhere, and read beside what it came from."""
    folder, now = files
    into = merged(folder, order, now)
    for target, parquet in ((str(folder / "fleet.sqlite3"), False), (str(folder / "copy"), True)):
        fill(target, read([into]), now, parquet=parquet)
        checked(observe([target], now).table)
        checked(observe([into, target], now).table)
        assert fill(target, read([into]), now, parquet=parquet) == 0


def test_the_word_of_one_place_and_the_stay_of_another_meet(files: tuple[Path, float]) -> None:
    """A collector in each region: what is known together is what counts, in either order of the two."""
    folder, now = files
    one, two = str(folder / "one"), str(folder / "two")
    fill(one, read([str(folder / "victim")]), now, parquet=True)
    fill(two, read([str(folder / "peer"), str(folder / "other")]), now, parquet=True)
    checked(observe([one, two], now).table)
    checked(observe([two, one], now).table)
    assert causes(observe([one], now).table) == {"running": 1}
    alone = observe([two], now).table
    assert causes(alone) == {"silent-loss": 1, "running": 2}, "two sightings within minutes are one death"
    assert alone.spells.sum() == 2


def test_a_stay_that_went_on_was_not_lost(tmp_path: Path, new_clock: NewClock) -> None:
    """The peer was wrong: what it said ends nothing, though it was believed when it was merged."""
    victim = Node(tmp_path, new_clock(), WHO, "victim").live(90)
    peer = Node(tmp_path, new_clock(), THERE, "peer").live(95).sees_gone()
    now = peer.stop()
    into = merged(tmp_path, [["victim", "peer"]], now)
    assert causes(observe([into], now).table) == {"silent-loss": 1, "running": 1}
    victim.live(90)
    now = victim.stop()
    fill(into, read([str(tmp_path / "victim")]), now)
    table = observe([into], now).table
    assert causes(table) == {"running": 2}
    assert float(table.exposure.sum()) == pytest.approx((180 + 95) / 60)


def test_silence_is_not_believed_before_its_time(files: tuple[Path, float]) -> None:
    """A node may miss heartbeats for three minutes, whatever was merged of what its peer says."""
    folder, now = files
    into = merged(folder, [["victim", "peer"]], now)
    (beat,) = observe([into], now).table.burst_at.tolist()
    assert causes(observe([into], beat + SILENT_S).table) == {"running": 2}
    assert causes(observe([into], beat + SILENT_S + 1).table) == {"silent-loss": 1, "running": 1}


def test_a_node_without_an_instance_is_found_by_its_name(tmp_path: Path, new_clock: NewClock) -> None:
    """On a machine of no provider the peer knows the node's name alone."""
    nobody = Identity("")
    Node(tmp_path, new_clock(), nobody, "victim").live(90).stop()
    now = Node(tmp_path, new_clock(), THERE, "peer").live(95).sees_gone(nobody).stop()
    into = merged(tmp_path, [["peer"], ["victim"]], now)
    table = observe([into], now).table
    assert causes(table) == {"silent-loss": 1, "running": 1}
    assert float(table.exposure.sum()) == pytest.approx((90 + 95) / 60)


def test_parquet_of_an_earlier_release_is_read_and_added_to(files: tuple[Path, float]) -> None:
    """Files without the newer columns: stays are what they were, and go on in newer files."""
    folder, now = files
    into = Path(merged(folder, [["victim", "other"]], now))
    for file in into.glob("spells/**/*.parquet"):
        with duckdb.connect(":memory:") as db:
            db.execute(
                f"COPY (SELECT * EXCLUDE (instance, observed) FROM read_parquet('{file}',"
                f" hive_partitioning = false)) TO '{file}.new' (FORMAT parquet)"
            )
        Path(f"{file}.new").rename(file)
    table = observe([str(into)], now).table
    assert table.losses.sum() == 1
    assert float(table.exposure.sum()) == pytest.approx((90 + 96) / 60)
    fill(str(into), read([str(folder / "peer")]), now)
    table = observe([str(into)], now).table
    assert table.losses.sum() == 1
    assert float(table.exposure.sum()) == pytest.approx((90 + 95 + 96) / 60)
