"""One node of several: what its daemon believes of flushes asked for elsewhere, and what it decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from outlast.daemon.core.facts import (
    Cause,
    Commit,
    Facts,
    FlushFact,
    NoticeFact,
    PeerFact,
    Place,
    RankFact,
    Ship,
    Wish,
)
from outlast.daemon.core.flushes import Flushes
from outlast.daemon.core.plan import plan
from outlast.daemon.core.ranks import Ranks
from outlast.daemon.core.trainers import Connection
from outlast.providers.base import SystemClock
from outlast.wire.manifest import Part
from outlast.wire.messages import At, Hello, Layout, Saved

NOW = 1000.0
HERE = (RankFact(2, 70, 110), RankFact(3, 71, 110))
FLUSH = FlushFact("i-1@7", Cause.NODE, NOW - 1.0, NOW + 100.0, hold=True)
QUIET = Facts(now=NOW, epoch=1, world=2, ranks=HERE, nodes=2)
NEW = Place(1, "global_step120", 120, "i-1@7", 4_000)


def connection(rank: int, world: int = 4) -> Connection:
    """A rank's connection; nothing is said on it."""
    return Connection(cast("Any", None), 100 + rank, 0, Hello("tune", rank, 100 + rank, "/d", Layout(world)))


@pytest.fixture
def flushes() -> Flushes:
    """Node 1 of two with its two ranks, 2 and 3."""
    own = Flushes("tune", None, SystemClock(), Part(1, ("a", "b")))
    for rank in (2, 3):
        own.ranks.add(connection(rank))
    return own


def say(own: Flushes, rank: int, message: At | Saved) -> None:
    """A rank of this node says it."""
    known = next(c for c in own.ranks if c.hello.rank == rank)
    if isinstance(message, At):
        own._called(message)
        own.ranks.at(known, message)
    else:
        own.ranks.saved(known, message)
        own._adopt()


def test_the_ranks_of_this_node_are_half_of_the_world() -> None:
    """Complete with two of four; a third one, or a world that does not spread evenly, is refused."""
    ranks = Ranks(2)
    ranks.add(connection(2))
    assert ranks.refusal(connection(3)) is None
    ranks.add(connection(3))
    assert (ranks.world, ranks.numbers) == (2, (2, 3))
    assert "do jobs.nodes name all nodes?" in (ranks.refusal(connection(0)) or "")
    assert "do not spread evenly over the 2 nodes" in (Ranks(2).refusal(connection(0, 3)) or "")


def test_a_flush_of_another_node_is_taken_up(flushes: Flushes) -> None:
    """The ranks' promise tells of it: what was asked, until when, and that it holds."""
    say(flushes, 2, At("f", 8, "notice", 20.0, True))
    flush = flushes.flush
    assert flush is not None
    assert (flush.id, flush.cause, flush.hold) == ("f", Cause.NODE, True)
    assert flushes.flush_words() == []


def test_flushes_end_in_the_order_of_the_ranks(flushes: Flushes) -> None:
    """This daemon asked for g; its ranks were at f, of another node, first: f is committed, then g."""
    flushes.flush = FlushFact("g", Cause.NOTICE, NOW, NOW + 100.0, hold=True)
    say(flushes, 2, At("f", 8))
    assert flushes.flush is not None
    assert flushes.flush.id == "f"
    flushes.flush_ended(Place(1, "global_step8", 8, "f"), "")
    assert flushes.flush is not None
    assert (flushes.flush.id, flushes.flush.cause) == ("g", Cause.NOTICE)


def test_a_later_flush_waits_for_the_one_in_progress(flushes: Flushes) -> None:
    """One rank is at g already while f is being committed: f ends first, and no word of g is lost."""
    for rank in (2, 3):
        say(flushes, rank, At("f", 8))
        say(flushes, rank, Saved("f", 8, "global_step8", 0.1))
    say(flushes, 2, At("g", 9))
    say(flushes, 2, Saved("g", 9, "global_step9", 0.1))
    assert flushes.flush is not None
    assert flushes.flush.id == "f"
    assert [rank.saved for rank in flushes.ranks.facts("f")] == ["global_step8"] * 2
    flushes.flush_ended(Place(1, "global_step8", 8, "f"), "")
    assert flushes.flush is not None
    assert flushes.flush.id == "g"
    assert [rank.saved for rank in flushes.ranks.facts("g")] == ["global_step9", None]


def test_a_flush_that_ended_is_not_taken_up_again(flushes: Flushes) -> None:
    """A rank that comes back says its promise again."""
    say(flushes, 2, At("f", 8))
    flushes.flush_ended(None, "given up")
    say(flushes, 3, At("f", 8))
    assert flushes.flush is None


def test_ranks_held_by_another_node_are_known_as_held(flushes: Flushes) -> None:
    """Until one of them has trained a step: meanwhile the peer is asked often whether the job has moved."""
    say(flushes, 2, At("f", 8, "notice", 20.0, True))
    flushes.flush_ended(Place(1, "global_step8", 8, "f"), "")
    assert flushes.held_elsewhere
    say(flushes, 2, At("g", 10))
    assert not flushes.held_elsewhere


def test_only_the_first_node_asks_by_the_interval() -> None:
    """Else each of them would, one after another."""
    asked = []
    for index in (0, 1):
        own = Flushes("tune", 0.001, SystemClock(), Part(index, ("a", "b")))
        for rank in (2 * index, 2 * index + 1):
            own.ranks.add(connection(rank))
            own.ranks.at(connection(rank), At("x", 5))
        for known in own.ranks:
            own.ranks.at(known, At("x", 5))
        own._since = 0.0
        own._wish_on_interval()
        assert (own.interval_left() is None) is bool(index)
        asked.append([wish.cause for wish in own._wishes])
    assert asked == [[Cause.INTERVAL], []]


def test_the_step_is_agreed_by_the_ranks() -> None:
    """All promised: the daemon of one node says nothing, and names who has not saved."""
    ranks = tuple(replace(rank, at=112) for rank in HERE)
    decision = plan(replace(QUIET, flush=FLUSH, ranks=ranks))
    assert decision.actions == ()
    assert "ranks 2, 3 (pid 70, 71) did not save" in decision.because


def test_a_part_is_committed_once_all_here_have_saved() -> None:
    """The other nodes commit theirs."""
    ranks = tuple(replace(rank, at=112, saved="global_step112", saved_step=112) for rank in HERE)
    decision = plan(replace(QUIET, flush=FLUSH, ranks=ranks))
    assert decision.actions == (Commit("i-1@7", "global_step112", 112),)


def test_a_missing_rank_of_this_node_is_counted() -> None:
    """Which of the job's ranks it is cannot be known."""
    decision = plan(replace(QUIET, flush=FLUSH, ranks=HERE[:1]))
    assert "1 of the 2 ranks of this node not connected" in decision.because


def test_the_peer_is_asked_again_while_it_lacks_a_part() -> None:
    """Not at once and not never; the sentence says whose part it is."""
    peer = PeerFact(reachable=True, retry_at=NOW + 2.0, waiting=("b",))
    decision = plan(replace(QUIET, newest=NEW, peer=peer))
    assert (decision.actions, decision.because) == (
        (),
        "global_step120 waits at the peer for the part of b",
    )
    later = plan(replace(QUIET, newest=NEW, peer=replace(peer, retry_at=NOW)))
    assert later.actions == (Ship(NEW),)


def test_a_part_under_way_is_not_overtaken() -> None:
    """Other nodes may wait for it, whatever is newer here."""
    old = Place(1, "global_step100", 100, "interval-1", 4_000)
    notice = NoticeFact("i-1", "i-1@7", "terminate", NOW + 120.0)
    facts = replace(QUIET, notice=notice, newest=NEW, peer=PeerFact(reachable=True), shipping=old, held=True)
    assert plan(facts).actions == ()
    assert plan(replace(facts, nodes=1)).actions != ()


def test_a_wish_waits_for_the_ranks_of_this_node_only() -> None:
    """Two of four are all that connect here."""
    wish = Wish("operator-1", Cause.OPERATOR, "an operator asked")
    assert plan(replace(QUIET, wishes=(wish,))).actions != ()
    assert plan(replace(QUIET, wishes=(wish,), ranks=HERE[:1])).actions == ()
