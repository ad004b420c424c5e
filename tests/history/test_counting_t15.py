"""T15: what a fleet's files count to, with polls, restarts, bursts, drills and second thoughts in them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.history.counting import count, merge
from outlast.daemon.history.db import History
from outlast.daemon.history.reading import read_rows
from outlast.daemon.history.rows import Rows
from outlast.providers.base import Action, Hint, Identity, Notice

if TYPE_CHECKING:
    from tests.conftest import ManualClock

    NewClock = Callable[[], ManualClock]

NOW = 1_800_000_000.0 + 40 * 3600


class Node:
    """One machine with its own file, clock and daemon."""

    def __init__(self, folder: Path, clock: ManualClock, name: str, zone: str, start_h: float) -> None:
        self.path, self.clock, self.name = folder / f"{name}.sqlite3", clock, name
        self.identity = Identity("aws", "us-east-1", zone, f"{zone}-id", "p4d.24xlarge", f"i-{name}")
        clock.advance(start_h * 3600)
        self.history = History.open(self.path, clock)
        self.spell = 0

    def start(self, drill: bool = False) -> Node:
        self.spell = self.history.begin_spell(self.identity, self.name, f"boot-{self.name}", drill)
        return self

    def run(self, seconds: float) -> Node:
        self.clock.advance(seconds)
        self.history.heartbeat(self.spell)
        return self

    def notice(self, deadline: float) -> float:
        notice = Notice("n-1", Action.TERMINATE, deadline, "spot/instance-action")
        wall = self.clock.wall() + deadline - self.clock.monotonic()
        return self.history.notice_seen(self.spell, notice, wall, f"boot-{self.name}")

    def restart(self) -> None:
        """The daemon is killed and started again: same boot, same instance."""
        self.history.close()
        self.history = History.open(self.path, self.clock)
        self.start()


def taken_with_notice(node: Node) -> None:
    node.start().run(600)
    node.notice(node.clock.monotonic() + 120)
    node.run(100).history.close()


@pytest.fixture
def fleet(tmp_path: Path, new_clock: NewClock) -> list[Node]:
    """Eleven nodes: polled 60 times, six at once, one silent, one withdrawn, one drill, one with a hint."""
    polled = Node(tmp_path, new_clock(), "polled", "use1-az1", 1)
    polled.start().run(60)
    deadline = polled.clock.monotonic() + 120
    seen = set()
    for poll in range(60):
        seen.add(polled.notice(deadline))
        polled.run(1)
        if poll == 30:
            polled.restart()
    polled.history.close()
    assert seen == {deadline}, "the deadline is unchanged by polls and by the restart"

    nodes = [polled]
    for number in range(6):
        node = Node(tmp_path, new_clock(), f"six-{number}", "use1-az2", 10 + number * 20 / 3600)
        taken_with_notice(node)
        nodes.append(node)

    silent = Node(tmp_path, new_clock(), "silent", "use1-az1", 20).start().run(60).run(60)
    silent.history.close()
    watcher = Node(tmp_path, new_clock(), "watcher", "use1-az3", 20).start().run(300)
    watcher.history.loss(silent.identity, "peer", silent.clock.wall() + 40, node="silent")
    watcher.history.loss(silent.identity, "peer", silent.clock.wall() + 70, node="silent")
    watcher.history.hint_seen(watcher.spell, Hint("r-1", "rebalance", "events"))
    watcher.history.end_spell(watcher.spell, "user-stop")

    withdrawn = Node(tmp_path, new_clock(), "withdrawn", "use1-az1", 5).start().run(60)
    withdrawn.notice(withdrawn.clock.monotonic() + 120)
    withdrawn.run(10).history.notice_withdrawn(withdrawn.spell, "n-1")
    withdrawn.run(600).history.end_spell(withdrawn.spell, "user-stop")

    drill = Node(tmp_path, new_clock(), "drill", "use1-az1", 6).start(drill=True).run(60)
    drill.notice(drill.clock.monotonic() + 120)
    drill.run(130).history.end_spell(drill.spell, "interruption")
    return [*nodes, silent, watcher, withdrawn, drill]


def test_t15_fleet_counts_eight_interruptions_in_three_bursts(fleet: list[Node]) -> None:
    """1 noticed, 6 of one zone within two minutes and 1 silent are 8 in 3 bursts; no more is counted."""
    total = count(merge(*(read_rows(node.path) for node in fleet)), NOW).total
    assert (total.interruptions, total.bursts, total.silent) == (8, 3, 1)
    assert (total.hints, total.withdrawn, total.drills) == (1, 1, 1)
    assert total.spells == 10, "all spells but the drill's"
    expected = (60 + 60) + 6 * 700 + 120 + 300 + 670
    assert total.exposure_hours == pytest.approx(expected / 3600)


def test_t15_pools_are_told_apart(fleet: list[Node]) -> None:
    """Each zone has its own counts: the six of one zone are one burst of six."""
    pools = {p.pool.zone: p for p in count(merge(*(read_rows(n.path) for n in fleet)), NOW).pools}
    assert (pools["use1-az2-id"].interruptions, pools["use1-az2-id"].bursts) == (6, 1)
    assert (pools["use1-az1-id"].interruptions, pools["use1-az1-id"].bursts) == (2, 2)
    assert pools["use1-az3-id"].interruptions == 0


def test_t15_order_and_repetition_of_files_do_not_matter(fleet: list[Node]) -> None:
    """Merging is idempotent and free of order."""
    rows = [read_rows(node.path) for node in fleet]
    whole = merge(*rows)
    for order in itertools.islice(itertools.permutations(rows), 0, 5000, 500):
        assert merge(*order, *order[:3]) == whole
    stepwise = Rows()
    for part in reversed(rows):
        stepwise = merge(part, stepwise, part)
    assert stepwise == whole


def test_t15_an_older_copy_of_a_file_changes_nothing(
    fleet: list[Node], tmp_path: Path, new_clock: NewClock
) -> None:
    """Of two versions of one spell the further advanced counts, whichever is read first."""
    node = Node(tmp_path, new_clock(), "copied", "use1-az4", 2).start().run(60)
    old = read_rows(node.path)
    node.notice(node.clock.monotonic() + 30)
    node.run(25).history.end_spell(node.spell, "interruption")
    new = read_rows(node.path)
    assert merge(old, new) == merge(new, old) == new
    assert count(merge(new, old), NOW).total.interruptions == 1


def test_t15_a_node_that_comes_back_is_counted_once(tmp_path: Path, new_clock: NewClock) -> None:
    """The victim's own file (closed at its next start) and its peer's sighting are one interruption."""
    victim = Node(tmp_path, new_clock(), "victim", "use1-az1", 1).start().run(60)
    peer = Node(tmp_path, new_clock(), "peer", "use1-az2", 1).start().run(200)
    peer.history.loss(victim.identity, "peer", victim.clock.wall() + 45)
    victim.clock.advance(900)
    victim.history.begin_spell(victim.identity, "victim", "boot-2")
    victim.history.loss(victim.identity, "victim", victim.clock.wall())
    rows = merge(read_rows(victim.path), read_rows(peer.path))
    total = count(rows, victim.clock.wall()).total
    assert (total.interruptions, total.silent) == (1, 1)


def test_t15_a_drill_on_a_real_spell_is_no_interruption(tmp_path: Path, new_clock: NewClock) -> None:
    """The spell's hours are at risk, but the rehearsed notice and its end are counted as a drill."""
    node = Node(tmp_path, new_clock(), "rehearsed", "use1-az1", 1).start().run(60)
    notice = Notice("n-1", Action.TERMINATE, node.clock.monotonic() + 30, "drill")
    node.history.notice_seen(node.spell, notice, node.clock.wall() + 30, "boot-rehearsed", drill=True)
    node.run(30).history.end_spell(node.spell, "interruption")
    total = count(read_rows(node.path), NOW).total
    assert (total.interruptions, total.drills, total.spells) == (0, 1, 1)


def test_t15_a_node_that_lives_on_was_not_lost(tmp_path: Path, new_clock: NewClock) -> None:
    """A peer that lost sight of a node which beats on, or was stopped by its user, saw no interruption."""
    node = Node(tmp_path, new_clock(), "alive", "use1-az1", 1).start().run(60)
    node.history.loss(node.identity, "peer", node.clock.wall() + 30)
    node.run(600)
    assert count(read_rows(node.path), NOW).total.interruptions == 0
    node.history.end_spell(node.spell, "user-stop")
    node.history.loss(node.identity, "peer", node.clock.wall() + 30)
    assert count(read_rows(node.path), NOW).total.interruptions == 0


def test_t15_since_cuts_exposure_and_events(tmp_path: Path, new_clock: NewClock) -> None:
    """Only what happened in the asked time is counted, with the hours of that time."""
    node = Node(tmp_path, new_clock(), "long", "use1-az1", 0).start().run(7200)
    node.history.end_spell(node.spell, "interruption")
    end = node.clock.wall()
    half = count(read_rows(node.path), end, since=end - 3600).total
    assert half.interruptions == 1
    assert half.exposure_hours == pytest.approx(1.0)
    assert count(read_rows(node.path), end + 10, since=end + 5).pools == ()
