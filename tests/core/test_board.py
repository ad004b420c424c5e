"""The board of live notices under any order of views, clock steps, restarts and reboots."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from outlast.daemon.core import notices
from outlast.daemon.core.notices import Board
from outlast.providers.base import Action, Hint, Notice, View

if TYPE_CHECKING:
    from tests.conftest import ManualClock

MAKE: list[Callable[[], ManualClock]] = []
NAMES = ["i-1", "i-2", "evt-3"]
SLACK_S = 0.5  # a notice must be this much earlier to count as earlier


def notice(name: str, deadline: float) -> Notice:
    return Notice(name, Action.TERMINATE, deadline, "stand-in")


class BoardLife(RuleBasedStateMachine):
    """One node's board; ``model`` holds the deadline each live notice must have."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = MAKE[0]()
        self.boot = 0
        self.board = Board(self.clock, "boot-0")
        self.model: dict[str, float] = {}
        self.episodes: dict[str, str] = {}
        self.appearances = self.expected = 0

    @rule(seconds=st.floats(0.0, 400.0))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.floats(-1e5, 1e5))
    def wall_clock_is_set(self, seconds: float) -> None:
        self.clock.step_wall(seconds)

    @rule(left=st.dictionaries(st.sampled_from(NAMES), st.floats(-100.0, 420.0)))
    def the_endpoint_shows(self, left: dict[str, float]) -> None:
        now = self.clock.monotonic()
        shown = {name: now + seconds for name, seconds in left.items()}
        fresh, gone = shown.keys() - self.model.keys(), self.model.keys() - shown.keys()
        change = self.board.apply(View(now, tuple(notice(n, d) for n, d in shown.items())))
        assert {n.id for n in change.appeared} == fresh
        assert {n.id for n in change.withdrawn} == gone
        assert {n.id for n in change.earlier} == {
            n for n, d in shown.items() if n in self.model and d < self.model[n] - SLACK_S
        }
        self.appearances += len(change.appeared)
        self.expected += len(fresh)
        for name, deadline in shown.items():
            old = self.model.get(name, deadline)
            shown[name] = deadline if deadline < old - SLACK_S else old
        self.model = shown

    @rule(polls=st.integers(1, 60))
    def nothing_changes_for_a_while(self, polls: int) -> None:
        for _ in range(polls):
            self.clock.advance(1.0)
            view = View(self.clock.monotonic(), tuple(notice(n, d) for n, d in self.model.items()))
            assert not self.board.apply(view)

    @rule()
    def the_daemon_is_restarted(self) -> None:
        kept, self.board = self.board.dump(), Board(self.clock, f"boot-{self.boot}")
        self.board.restore(kept)

    @rule(seconds=st.floats(0.0, 300.0))
    def the_node_reboots(self, seconds: float) -> None:
        walls = {name: live.deadline_wall for name, live in self.board.live.items()}
        kept = self.board.dump()
        self.clock.epoch += seconds
        self.clock.mono = 5.0  # the monotonic clock begins anew
        self.boot += 1
        self.board = Board(self.clock, f"boot-{self.boot}")
        self.board.restore(kept)
        for name, wall in walls.items():
            self.model[name] = 5.0 + (wall - self.clock.wall())

    @invariant()
    def the_board_is_as_the_model(self) -> None:
        assert {n: live.deadline for n, live in self.board.live.items()} == self.model
        assert self.appearances == self.expected
        urgent = self.board.urgent
        assert (urgent is None) == (not self.model)
        if urgent is not None:
            assert urgent.deadline == min(self.model.values())

    @invariant()
    def an_episode_keeps_its_name(self) -> None:
        live = {name: item.episode for name, item in self.board.live.items()}
        for name in live.keys() & self.episodes.keys():
            assert live[name] == self.episodes[name]
        self.episodes = live


def test_board_through_a_hard_life(new_clock: Callable[[], ManualClock]) -> None:
    """Deadlines only move earlier and survive restarts exactly; a notice appears once and leaves once."""
    MAKE[:] = [new_clock]
    run_state_machine_as_test(BoardLife, settings=settings(max_examples=60, stateful_step_count=25))


def test_one_notice_in_sixty_polls_appears_once(manual_clock: ManualClock) -> None:
    """Sixty polls with a restart in the middle: one appearance, one deadline (T15)."""
    board, appeared = Board(manual_clock, "boot"), 0
    seen = notice("i-1", manual_clock.monotonic() + 120.0)
    for poll in range(60):
        appeared += len(board.apply(View(manual_clock.monotonic(), (seen,))).appeared)
        manual_clock.advance(1.0)
        if poll == 30:
            kept, board = board.dump(), Board(manual_clock, "boot")
            board.restore(kept)
    assert appeared == 1
    assert board.urgent is not None
    assert board.urgent.deadline == seen.deadline


def test_one_id_twice_in_a_view_is_one_notice(manual_clock: ManualClock) -> None:
    """An endpoint that lists a notice twice is believed the nearer deadline, whichever comes last."""
    board = Board(manual_clock, "boot")
    now = manual_clock.monotonic()
    change = board.apply(View(now, (notice("i-1", now + 30), notice("i-1", now + 120))))
    assert [live.deadline for live in change.appeared] == [now + 30]
    assert board.urgent == change.appeared[0]


def test_a_notice_that_comes_back_is_another_episode(manual_clock: ManualClock) -> None:
    """Withdrawn and seen again later: the second sighting has a flush of its own (T5)."""
    board = Board(manual_clock, "boot")
    seen = notice("i-1", manual_clock.monotonic() + 120.0)
    (first,) = board.apply(View(0.0, (seen,))).appeared
    manual_clock.advance(10.0)
    (gone,) = board.apply(View(0.0)).withdrawn
    assert gone == first
    assert board.urgent is None
    manual_clock.advance(10.0)
    (second,) = board.apply(View(0.0, (replace(seen, deadline=seen.deadline + 20),))).appeared
    assert second.episode != first.episode


def test_a_reboot_counts_the_deadline_by_the_wall_clock(manual_clock: ManualClock) -> None:
    """After a reboot that took 30 of 120 seconds, 90 are left."""
    board = Board(manual_clock, "boot-1")
    board.apply(View(0.0, (notice("i-1", manual_clock.monotonic() + 120.0),)))
    manual_clock.epoch += 30.0
    manual_clock.mono = 2.0
    again = Board(manual_clock, "boot-2")
    again.restore(board.dump())
    assert again.urgent is not None
    assert again.urgent.deadline == pytest.approx(92.0)
    assert again.urgent.boot_id == "boot-2"


def test_a_set_wall_clock_does_not_move_a_deadline(manual_clock: ManualClock) -> None:
    """Within one boot only the monotonic clock counts, also across a restart."""
    board = Board(manual_clock, "boot")
    board.apply(View(0.0, (notice("i-1", manual_clock.monotonic() + 120.0),)))
    manual_clock.step_wall(-3600.0)
    again = Board(manual_clock, "boot")
    again.restore(board.dump())
    assert again.urgent == board.urgent


def test_hints_are_news_once(manual_clock: ManualClock) -> None:
    """A hint shown for half an hour is one hint; gone and back it is news again (T3)."""
    board, hint = Board(manual_clock, "boot"), Hint("h-1", "rebalance", "stand-in")
    shown = View(0.0, (), (hint,))
    assert board.apply(shown).hints == (hint,)
    assert not any(board.apply(shown) for _ in range(1800))
    board.apply(View(0.0))
    assert board.apply(shown).hints == (hint,)


def test_hints_switched_off_change_nothing(manual_clock: ManualClock) -> None:
    """Without hints a view that holds only hints is no change at all; its notices count (T3)."""
    board, hint = Board(manual_clock, "boot", hints=False), Hint("h-1", "rebalance", "stand-in")
    assert not board.apply(View(0.0, (), (hint,)))
    both = board.apply(View(0.0, (notice("i-1", 1100.0),), (hint,)))
    assert [n.id for n in both.appeared] == ["i-1"]
    assert both.hints == ()


# ---- the board's file


def test_the_file_keeps_the_board(tmp_path: Path, manual_clock: ManualClock) -> None:
    """What is saved is taken up by the next life; no file is an empty board."""
    path, board = tmp_path / "state" / "notices.json", Board(manual_clock, "boot")
    notices.load(board, path)
    assert board.live == {}
    board.apply(View(0.0, (notice("i-1", 1100.0), notice("i-2", 1090.0))))
    notices.save(board, path)
    again = Board(manual_clock, "boot")
    notices.load(again, path)
    assert again.live == board.live
    assert again.urgent is not None
    assert again.urgent.id == "i-2"


def damaged(manual_clock: ManualClock, **fields: object) -> bytes:
    """A board of two notices; the second one has these fields instead of its own."""
    board = Board(manual_clock, "boot")
    board.apply(View(0.0, (notice("i-1", 1100.0), notice("i-2", 1090.0))))
    first, second = json.loads(board.dump())
    return json.dumps([first, second | fields]).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'[{"id": "i-1", "ep',
        b"\xff\xfe",
        b"null",
        b"7",
        b'{"a": 1}',
        b"[1]",
        b"[[]]",
        b"[{}]",
        b"[" * 9**5,
    ],
    ids=lambda data: repr(data[:20]),
)
def test_a_damaged_file_is_set_aside(tmp_path: Path, manual_clock: ManualClock, data: bytes) -> None:
    """The watch goes on with an empty board; the endpoint will say again what is live."""
    path, board = tmp_path / "notices.json", Board(manual_clock, "boot")
    path.write_bytes(data)
    notices.load(board, path)
    assert board.live == {}
    assert board.urgent is None
    assert not path.exists()
    assert path.with_suffix(".damaged").read_bytes() == data


@pytest.mark.parametrize(
    "fields",
    [
        {"deadline": "soon"},
        {"deadline": None},
        {"deadline_wall": []},
        {"id": 7},
        {"boot_id": None},
        {"mood": 1},
    ],
    ids=str,
)
def test_a_board_with_one_bad_notice_is_set_aside_whole(
    tmp_path: Path, manual_clock: ManualClock, fields: dict[str, object]
) -> None:
    """Nothing of a damaged file is believed, and it cannot stop the watch."""
    path, board = tmp_path / "notices.json", Board(manual_clock, "boot")
    path.write_bytes(damaged(manual_clock, **fields))
    notices.load(board, path)
    assert board.live == {}
    assert path.with_suffix(".damaged").exists()
