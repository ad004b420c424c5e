"""Ranks of several nodes that are held: whatever lets one of them go lets go all, and nothing else does."""

from __future__ import annotations

import threading

import pytest

from outlast.hooks.agreement import HELD_LOST_S, Agreement
from outlast.hooks.ballot import LocalBallot
from outlast.hooks.flushes import Save
from outlast.wire.messages import Failed, Flush, Saved


class Ranks:
    """Two nodes of one rank each, with one clock; each call of ``look`` is far from the one before."""

    def __init__(self) -> None:
        self.now = 1000.0
        shared: dict[str, str] = {}
        self.both = [
            Agreement(LocalBallot(rank, 2, shared), lambda: self.now, several=True) for rank in range(2)
        ]
        for rank in self.both:
            rank.connected()
            rank.step_count = 7
            rank.phase = -1

    def hear(self, *flushes: Flush) -> None:
        """The first node's daemon asks for each of them; the ranks are in the midst of a step."""
        for flush in flushes:
            self.both[0].hear(flush)
        self.look()
        for rank in self.both:
            rank.step_count = 8

    def look(self) -> None:
        """What a link's thread does ten times a second."""
        for _ in range(2):
            self.now += 0.2
            for rank in self.both:
                rank.look()

    def at_boundary(self, number: int) -> Save | None:
        """What the rank would do there; None where it trains on."""
        found: list[object] = []
        thread = threading.Thread(target=lambda: found.append(self.both[number].meet()), daemon=True)
        thread.start()
        thread.join(0.5)
        if not found:
            pytest.fail("the rank is held")
        return found[0] if isinstance(found[0], Save) else None

    def saves(self, number: int, flush_id: str) -> Save:
        """The rank saves for this flush."""
        todo = self.at_boundary(number)
        assert todo is not None
        assert (todo.order.id, todo.step) == (flush_id, 8)
        return todo


def _saved(rank: Agreement, todo: Save) -> None:
    rank.answered(Saved(todo.order.id, todo.step, "t", 0.1, hold=todo.order.hold), hold=todo.order.hold)


def test_a_rank_that_could_not_save_lets_the_held_ranks_of_other_nodes_go() -> None:
    """Its disk is full: it trains on, and would wait in its next collective for those that are held."""
    ranks = Ranks()
    ranks.hear(Flush("f", "notice", 120.0, True))
    for number, rank in enumerate(ranks.both):
        todo = ranks.saves(number, "f")
        if number == 0:
            _saved(rank, todo)
        else:
            rank.answered(Failed("f", "no space"), hold=True)
    ranks.look()
    assert ranks.at_boundary(1) is None
    assert ranks.at_boundary(0) is None


def test_ranks_held_for_a_lost_daemon_go_on_together_with_the_other_nodes() -> None:
    """One node's daemon is gone for a minute, the other's still holds: nobody trains on alone."""
    ranks = Ranks()
    ranks.hear(Flush("f", "notice", None, True))
    for number, rank in enumerate(ranks.both):
        _saved(rank, ranks.saves(number, "f"))
    ranks.both[1].lost()
    ranks.now += HELD_LOST_S + 1.0
    assert ranks.at_boundary(1) is None
    ranks.look()
    assert ranks.at_boundary(0) is None


def test_a_flush_that_waited_for_another_one_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes get notice in one second and the first save takes longer than ranks are waited for."""
    ranks = Ranks()
    ranks.hear(Flush("f", "notice", 120.0, True), Flush("g", "notice", 120.0, True))
    todos = [ranks.saves(number, "f") for number in range(2)]
    ranks.now += 70.0
    _saved(ranks.both[0], todos[0])
    monkeypatch.setattr("outlast.hooks.agreement.SLICE_S", 0.01)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(ranks.both[0].meet()), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert not any(isinstance(word, Failed) for word in ranks.both[0].outbox)
    _saved(ranks.both[1], todos[1])
    ranks.look()
    waiting.join(2.0)
    assert [word.order.id for word in found if isinstance(word, Save)] == ["g"]
    assert ranks.saves(1, "g").step == 8
