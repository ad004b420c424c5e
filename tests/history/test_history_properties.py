"""Invariants under any order of restarts, crashes, reboots, wall-clock steps, and pure rules of counting."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from outlast.daemon.history.counting import BURST_S, bursts, count, merge
from outlast.daemon.history.db import History
from outlast.daemon.history.deadlines import Deadline, settle
from outlast.daemon.history.progress import flush_after, ship_after
from outlast.daemon.history.reading import read_rows, rows_of
from outlast.daemon.history.rows import FlushRow, Moment, Rows, ShipRow
from outlast.providers.base import Action, Hint, Identity, Notice

if TYPE_CHECKING:
    from tests.conftest import ManualClock

MAKE: list[Callable[[], ManualClock]] = []
NAMES = st.sampled_from(["n-1", "n-2"])
TIMES = st.floats(0, 1e6, allow_nan=False)


class Life(RuleBasedStateMachine):
    """One node's daemon through a hard life; the model keeps what must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "history.sqlite3"
        self.clock = MAKE[0]()
        self.boot = 1
        self.lived = 0.0  # monotonic seconds since this spell began
        self.exposure = 0.0  # what the heartbeats of ended spells left behind
        self.beaten = 0.0
        self.deadlines: dict[str, float] = {}
        self.withdrawn = 0
        self.ever: dict[int, tuple[float, float]] = {}
        self.open()

    def open(self) -> None:
        self.history = History.open(self.path, self.clock)
        self.spell = self.history.begin_spell(
            Identity("aws", "r", "z", "", "t", "i"), "a", f"boot-{self.boot}"
        )
        self.beaten = self.lived

    def teardown(self) -> None:
        self.history.close()
        self.folder.cleanup()

    @rule(seconds=st.floats(0, 5000))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.lived += seconds

    @rule(seconds=st.floats(-1e6, 1e6))
    def wall_clock_is_set(self, seconds: float) -> None:
        self.clock.step_wall(seconds)

    @rule()
    def heartbeat(self) -> None:
        self.history.heartbeat(self.spell)
        self.beaten = self.lived

    @rule()
    def daemon_is_killed(self) -> None:
        """The connection is dropped in the middle of a transaction."""
        self.history._db.execute("BEGIN IMMEDIATE")
        self.history._db.execute("UPDATE spells SET cause = 'torn', ended = 0")
        self.history._db.close()
        self.open()

    @rule()
    def node_reboots(self) -> None:
        self.history.close()
        self.boot += 1
        self.clock.mono = 1.0
        self.exposure += self.beaten
        self.lived = self.beaten = 0.0
        self.deadlines.clear()
        self.open()

    @rule(name=NAMES, seconds=st.floats(-10, 1000), repeated=st.booleans())
    def notice_is_polled(self, name: str, seconds: float, repeated: bool) -> None:
        known = self.deadlines.get(name)
        mono = known if repeated and known is not None else self.clock.monotonic() + seconds
        wall = self.clock.wall() + mono - self.clock.monotonic()
        held = self.history.notice_seen(
            self.spell, Notice(name, Action.TERMINATE, mono, "s"), wall, f"boot-{self.boot}"
        )
        if known is None:
            assert held == mono
        else:
            assert held <= known
        self.deadlines[name] = held

    @precondition(lambda self: self.deadlines)
    @rule()
    def notice_is_withdrawn(self) -> None:
        name, _ = self.deadlines.popitem()
        self.history.notice_withdrawn(self.spell, name)
        self.history.notice_withdrawn(self.spell, name)
        self.withdrawn += 1

    @rule(name=NAMES)
    def hint_is_polled(self, name: str) -> None:
        self.history.hint_seen(self.spell, Hint(name, "rebalance", "s"))

    @invariant()
    def deadlines_are_kept(self) -> None:
        held = {n.id: n.deadline for n in self.history.open_notices(self.spell)}
        assert held == self.deadlines

    @invariant()
    def exposure_is_monotonic_time(self) -> None:
        rows = rows_of(self.history._db)
        total = sum(row.alive_s for row in rows.spells)
        assert total == pytest.approx(self.exposure + self.beaten)
        assert all(row.ended is None or row.ended >= row.began for row in rows.spells)
        assert [row.id for row in rows.spells if row.ended is None] == [self.spell]
        assert sum(notice.withdrawn is not None for notice in rows.notices) == self.withdrawn
        assert all(row.cause != "torn" for row in rows.spells)

    @invariant()
    def an_ended_spell_stays_as_it_is(self) -> None:
        for row in rows_of(self.history._db).spells:
            if row.ended is not None:
                assert self.ever.setdefault(row.id, (row.ended, row.alive_s)) == (row.ended, row.alive_s)

    @invariant()
    def reading_beside_the_writer_agrees(self) -> None:
        assert merge(read_rows(self.path)) == merge(rows_of(self.history._db))


@pytest.mark.timeout(120)
def test_no_order_of_faults_breaks_the_history(new_clock: Callable[[], ManualClock]) -> None:
    """Deadlines never move later, exposure is exact, ended spells stay ended, whatever happens in between."""
    MAKE[:] = [new_clock]
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@given(st.lists(st.tuples(TIMES, TIMES)))
def test_a_deadline_in_one_boot_never_moves_later(sightings: list[tuple[float, float]]) -> None:
    """Whatever the provider says and wherever the wall clock jumps."""
    held: Deadline | None = None
    for mono, wall in sightings:
        before = held
        held = settle(held, Deadline(mono, wall, "boot"), Moment(wall, 0.0))
        assert before is None or held.mono <= before.mono


@given(TIMES, st.floats(-1e5, 1e5), st.floats(0, 100))
def test_a_wall_clock_step_does_not_move_an_instant_the_provider_repeats(
    deadline: float, step: float, left: float
) -> None:
    """The same UTC deadline reckoned with a clock that was set in between is no earlier deadline."""
    first = settle(None, Deadline(left, deadline, "boot"), Moment(deadline - left, 0.0))
    again = settle(first, Deadline(left - step, deadline, "boot"), Moment(deadline - left + step, 0.0))
    assert again == first


@given(TIMES, st.floats(0, 1000), st.floats(0, 900))
def test_after_a_reboot_the_deadline_comes_from_the_wall_clock(
    wall: float, left: float, passed: float
) -> None:
    """The monotonic clock began anew; the same instant is reckoned from UTC."""
    known = Deadline(5000.0, wall + left, "boot-1")
    seen = Deadline(1e9, wall + 1e9, "boot-2")
    held = settle(known, seen, Moment(wall + passed, 3.0))
    assert held.boot_id == "boot-2"
    assert held.mono == pytest.approx(3.0 + left - passed, abs=1e-3)


@given(st.lists(TIMES, min_size=1))
def test_bursts_are_chains(times: list[float]) -> None:
    """As many bursts as gaps of more than 180 s, plus one; order and repetition do not matter."""
    ordered = sorted(times)
    gaps = sum(b - a > BURST_S for a, b in itertools.pairwise(ordered))
    assert bursts(times) == bursts(times * 2) == gaps + 1


@pytest.mark.parametrize(("gap", "expected"), [(180.0, 1), (180.1, 2)])
def test_a_burst_ends_after_180_s(gap: float, expected: int) -> None:
    """Three interruptions are one burst while each follows the one before within 180 s."""
    assert bursts([0.0, 100.0, 100.0 + gap]) == expected


@given(st.lists(st.sampled_from(["asked", "agreed", "saved", "committed", "failed"]), max_size=8))
def test_a_committed_flush_stays_committed(steps: list[str]) -> None:
    """No later word takes a commit back; repeating a step changes nothing."""
    row = FlushRow("job", "f")
    for number, what in enumerate(steps):
        row = flush_after(row, what, "boot", Moment(100.0 + number, float(number)), {})
        assert flush_after(row, what, "boot", Moment(999.0, 999.0), {}) == row
    assert (row.outcome == "committed") == ("committed" in steps) or row.outcome == "failed"
    assert row.seconds is None or row.seconds >= 0


@given(st.lists(st.sampled_from(["began", "shipped", "verified", "failed"]), max_size=8))
def test_a_ship_that_is_done_stays_done(steps: list[str]) -> None:
    """A failed transfer may begin again; its time is that of the attempt that succeeded."""
    row = ShipRow("job", 1, "t", "p")
    for number, what in enumerate(steps):
        row = ship_after(row, what, "boot", Moment(100.0, float(number)), {})
    done = "verified" in steps
    assert (row.outcome == "done") == done
    if done and "began" in (before := steps[: steps.index("verified")]):
        began = len(before) - 1 - before[::-1].index("began")
        assert row.seconds == len(before) - began


def test_nothing_counts_to_nothing() -> None:
    """No rows, no pools, and a total of zero."""
    counts: Any = count(Rows(), 0.0)
    assert counts.pools == ()
    assert counts.total.exposure_hours == 0
