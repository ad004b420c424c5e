"""The primary's decision as a table: for these facts, these actions, and a sentence that says why."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from outlast.daemon.core.facts import (
    Action,
    AskFlush,
    Cause,
    Commit,
    Facts,
    Fence,
    FlushFact,
    GiveUp,
    HandOver,
    NoticeFact,
    PeerFact,
    Place,
    RankFact,
    Release,
    Retire,
    Role,
    SayAgree,
    Ship,
    StandDownAll,
    StopShip,
    Wish,
)
from outlast.daemon.core.plan import MARGIN_S, NO_WARNING_S, PATIENCE_S, REJOIN_S, next_look, plan

NOW = 1000.0
OLD = Place(1, "global_step100", 100, "interval-1", 4_000)
NEW = Place(1, "global_step120", 120, "i-1@7", 4_000)
BOTH = (RankFact(0, 70, 110), RankFact(1, 71, 110))
NOTICE = NoticeFact("i-1", "i-1@7", "terminate", NOW + 120.0)
FLUSH = FlushFact("i-1@7", Cause.NOTICE, NOW - 1.0, NOW + 100.0, hold=True)
AGREED = replace(FLUSH, agreed=112)
PEER = PeerFact(reachable=True)
PEER_AT_OLD = PeerFact(reachable=True, newest=OLD, fence=1)
PEER_AT_NEW = PeerFact(reachable=True, newest=NEW, fence=1)
INTERVAL = Wish("interval-2", Cause.INTERVAL, "the interval is over")
OPERATOR = Wish("operator-3", Cause.OPERATOR, "an operator asked")
HINT = Wish("hint-4", Cause.HINT, "hint: rebalance")
SIGNAL = Wish("signal-5", Cause.SIGNAL, "SIGTERM")
QUIET = Facts(now=NOW, epoch=1, world=2, ranks=BOTH)
FLUSHING = replace(QUIET, notice=NOTICE, flush=FLUSH)
NOTICED = replace(QUIET, notice=NOTICE)
DONE = replace(NOTICED, newest=NEW, held=True)


def at(first: int | None, second: int | None) -> tuple[RankFact, ...]:
    return tuple(replace(r, at=a) for r, a in zip(BOTH, (first, second), strict=True))


def saved(first: str | None, second: str | None) -> tuple[RankFact, ...]:
    return tuple(replace(r, at=112, saved=s) for r, s in zip(BOTH, (first, second), strict=True))


def asked(wish: Wish) -> AskFlush:
    """A flush without a deadline: no rank is held."""
    return AskFlush(wish.id, wish.cause, wish.reason, NOW + PATIENCE_S, None, hold=False)


def for_notice(notice: NoticeFact, give_up_at: float, *, hold: bool) -> AskFlush:
    left = notice.deadline - NOW
    when = f"in {left:.1f} s" if left > 0 else "now"
    reason = f"notice: {notice.action} {when}"
    return AskFlush(notice.episode, Cause.NOTICE, reason, give_up_at, notice.deadline, hold)


def due(seconds: float) -> NoticeFact:
    return replace(NOTICE, deadline=NOW + seconds)


@dataclass(frozen=True)
class Case:
    """``why`` are words of the sentence."""

    name: str
    facts: Facts
    actions: tuple[Action, ...]
    why: str


WISHES = [
    Case("quiet", QUIET, (), "training, 2 ranks"),
    Case("no trainer", Facts(now=NOW, epoch=1), (), "no trainer is connected"),
    Case("half a trainer", replace(QUIET, ranks=BOTH[:1]), (), "1 of 2 ranks are connected"),
    Case(
        "interval", replace(QUIET, wishes=(INTERVAL,)), (asked(INTERVAL),), "the interval is over: checkpoint"
    ),
    Case("operator", replace(QUIET, wishes=(OPERATOR,)), (asked(OPERATOR),), "an operator asked: checkpoint"),
    Case("hint holds nobody", replace(QUIET, wishes=(HINT,), peer=PEER), (asked(HINT),), "hint: rebalance"),
    Case("signal before operator", replace(QUIET, wishes=(OPERATOR, SIGNAL)), (asked(SIGNAL),), "SIGTERM"),
    Case("operator before hint", replace(QUIET, wishes=(HINT, OPERATOR)), (asked(OPERATOR),), "operator"),
    Case("hint before interval", replace(QUIET, wishes=(INTERVAL, HINT)), (asked(HINT),), "hint"),
    Case(
        "wish waits for all ranks",
        replace(QUIET, wishes=(OPERATOR,), ranks=BOTH[:1]),
        (),
        "an operator asked: waiting for all 2 ranks to connect",
    ),
    Case("wish without trainer", Facts(now=NOW, epoch=1, wishes=(HINT,)), (), "no trainer is connected"),
    Case(
        "wish given up",
        replace(QUIET, wishes=(OPERATOR,), given_up=frozenset({OPERATOR.id})),
        (),
        "training",
    ),
    Case(
        "notice outranks wishes",
        replace(NOTICED, wishes=(OPERATOR,), peer=PEER),
        (for_notice(NOTICE, NOW + 120 - MARGIN_S, hold=True),),
        "notice: terminate in 120.0 s: flush, then ship it and hand over",
    ),
]

NOTICES = [
    Case(
        "notice with a peer",
        replace(NOTICED, peer=PEER),
        (for_notice(NOTICE, NOW + 120 - MARGIN_S, hold=True),),
        "not measured yet how long that takes",
    ),
    Case(
        "notice without a peer holds nobody",
        NOTICED,
        (for_notice(NOTICE, NOW + 120 - MARGIN_S, hold=False),),
        "keep it here (no peer is configured)",
    ),
    Case(
        "deadline now",
        replace(NOTICED, notice=due(0.0), peer=PEER),
        (for_notice(due(0.0), NOW + NO_WARNING_S, hold=True),),
        "notice: terminate now: flush",
    ),
    Case(
        "deadline past",
        replace(NOTICED, notice=due(-60.0), peer=PEER),
        (for_notice(due(-60.0), NOW + NO_WARNING_S, hold=True),),
        "notice: terminate now: flush",
    ),
    Case(
        "five seconds",
        replace(NOTICED, notice=due(5.0), peer=PEER),
        (for_notice(due(5.0), NOW + 5 - 1.25, hold=True),),
        "terminate in 5.0 s: flush",
    ),
    Case(
        "measured and it fits",
        replace(NOTICED, peer=PEER_AT_OLD, newest=OLD, flush_s=10.0, ship_bytes_s=100.0),
        (for_notice(NOTICE, NOW + 120 - MARGIN_S, hold=True),),
        "ship it and hand over (50.0 s needed, 120.0 s left)",
    ),
    Case(
        "measured and shipping does not fit",
        replace(NOTICED, peer=PEER_AT_OLD, newest=OLD, flush_s=10.0, ship_bytes_s=20.0),
        (for_notice(NOTICE, NOW + 120 - MARGIN_S, hold=True),),
        "ship what fits: 210.0 s needed, 120.0 s left; else the peer's newest counts",
    ),
    Case(
        "flush too long: ship what is committed",
        replace(NOTICED, notice=due(8.0), peer=PEER, newest=OLD, flush_s=20.0),
        (
            GiveUp("i-1@7", "8.0 s are too short for a flush of 20.0 s: ship global_step100 instead"),
            Ship(OLD),
        ),
        "8.0 s are too short for a flush of 20.0 s: ship global_step100 instead",
    ),
    Case(
        "flush too long, nothing to ship: try",
        replace(NOTICED, notice=due(8.0), peer=PEER_AT_OLD, newest=OLD, flush_s=20.0),
        (for_notice(due(8.0), NOW + 8 - MARGIN_S, hold=True),),
        "ship",
    ),
    Case(
        "flush too long, peer down: try",
        replace(NOTICED, notice=due(8.0), peer=PeerFact(False, "refused"), newest=OLD, flush_s=20.0),
        (for_notice(due(8.0), NOW + 8 - MARGIN_S, hold=True),),
        "flush",
    ),
    Case(
        "notice, no trainer, nothing committed",
        replace(Facts(now=NOW, epoch=1), notice=NOTICE, peer=PEER),
        (),
        "no trainer is connected, the last committed checkpoint counts",
    ),
    Case(
        "notice, no trainer, something committed",
        replace(Facts(now=NOW, epoch=1), notice=NOTICE, peer=PEER, newest=OLD),
        (Ship(OLD),),
        "no trainer is connected, the last committed checkpoint counts",
    ),
    Case(
        "a second notice for a node whose flush was given up",
        replace(NOTICED, notice=replace(NOTICE, episode="i-1@9"), given_up=frozenset({"i-1@7"})),
        (for_notice(replace(NOTICE, episode="i-1@9"), NOW + 120 - MARGIN_S, hold=False),),
        "flush",
    ),
]

FLUSHES = [
    Case("nobody has answered", FLUSHING, (), "waiting: ranks 0, 1 (pid 70, 71) did not answer yet"),
    Case(
        "one has not answered",
        replace(FLUSHING, ranks=at(111, None)),
        (),
        "waiting: rank 1 (pid 71) did not answer yet",
    ),
    Case(
        "all answered: the highest step",
        replace(FLUSHING, ranks=at(111, 112)),
        (SayAgree("i-1@7", 112),),
        "all 2 ranks save at the end of step 112",
    ),
    Case(
        "a rank is missing: no agreement",
        replace(FLUSHING, ranks=at(111, 112)[:1]),
        (),
        "waiting: rank 1 of 2 not connected yet",
    ),
    Case(
        "agreed, one still saves",
        replace(FLUSHING, flush=AGREED, ranks=saved("global_step112", None)),
        (),
        "waiting: rank 1 (pid 71) did not save yet",
    ),
    Case(
        "all saved: commit",
        replace(FLUSHING, flush=AGREED, ranks=saved("global_step112", "global_step112")),
        (Commit("i-1@7", "global_step112", 112),),
        "all 2 ranks have saved global_step112: commit",
    ),
    Case(
        "all that are here have saved, one is not here: no commit",
        replace(FLUSHING, flush=AGREED, ranks=saved("t", "t")[:1]),
        (),
        "waiting: rank 1 of 2 not connected yet",
    ),
    Case(
        "saved without agreement (adopted): the ranks' step",
        replace(FLUSHING, ranks=saved("global_step110", "global_step110")),
        (Commit("i-1@7", "global_step110", 110),),
        "commit",
    ),
    Case(
        "different tags",
        replace(FLUSHING, flush=AGREED, ranks=saved("global_step112", "global_step111")),
        (GiveUp("i-1@7", "ranks saved different tags (global_step111, global_step112)"),),
        "the last committed checkpoint counts",
    ),
    Case(
        "committing",
        replace(FLUSHING, flush=AGREED, ranks=saved("t", "t"), committing=True),
        (),
        "committing the checkpoint of flush i-1@7",
    ),
    Case(
        "commit failed",
        replace(FLUSHING, flush=AGREED, ranks=saved("t", "t"), commit_failed="no space left"),
        (GiveUp("i-1@7", "the checkpoint could not be committed: no space left"),),
        "no space left; the last committed checkpoint counts",
    ),
    Case(
        "a rank could not save",
        replace(FLUSHING, ranks=(BOTH[0], replace(BOTH[1], failed="disk full"))),
        (GiveUp("i-1@7", "rank 1 could not save: disk full"),),
        "rank 1 could not save: disk full",
    ),
    Case(
        "frozen rank, never answered",
        replace(FLUSHING, now=FLUSH.give_up_at, ranks=at(111, None)),
        (GiveUp("i-1@7", "rank 1 (pid 71) did not answer in time"),),
        "rank 1 (pid 71) did not answer in time; the last committed checkpoint counts",
    ),
    Case(
        "frozen rank, agreed and never saved",
        replace(FLUSHING, now=FLUSH.give_up_at, flush=AGREED, ranks=saved(None, "global_step112")),
        (GiveUp("i-1@7", "rank 0 (pid 70) did not save in time"),),
        "rank 0 (pid 70) did not save in time",
    ),
    Case(
        "a rank left and comes back in time",
        replace(FLUSHING, ranks=BOTH[:1], incomplete_since=NOW - REJOIN_S + 1),
        (),
        "waiting: rank 1 of 2 not connected yet",
    ),
    Case(
        "a rank left for good",
        replace(FLUSHING, ranks=BOTH[:1], incomplete_since=NOW - 60, flush=replace(FLUSH, asked_at=NOW - 60)),
        (GiveUp("i-1@7", "rank 1 of 2 not connected any more"),),
        "rank 1 of 2 not connected any more",
    ),
    Case(
        "the trainer left",
        replace(FLUSHING, ranks=()),
        (GiveUp("i-1@7", "the trainer left before it had saved"),),
        "the trainer left before it had saved",
    ),
    Case(
        "withdrawn during the flush: the flush goes on",
        replace(FLUSHING, notice=None, flush=AGREED, ranks=saved("t", "t"), held=True),
        (Commit("i-1@7", "t", 112),),
        "commit",
    ),
    Case(
        "a wish waits for the flush in progress",
        replace(FLUSHING, notice=None, wishes=(OPERATOR,), ranks=at(111, 112)),
        (SayAgree("i-1@7", 112),),
        "step 112",
    ),
]

REPLICATION = [
    Case("committed: ship", replace(DONE, peer=PEER_AT_OLD), (Ship(NEW),), "ship global_step120 to the peer"),
    Case("ship in quiet times", replace(QUIET, newest=OLD, peer=PEER), (Ship(OLD),), "ship global_step100"),
    Case("shipping", replace(DONE, peer=PEER, shipping=NEW), (), "shipping global_step120"),
    Case(
        "peer not asked yet",
        replace(QUIET, newest=OLD, peer=PeerFact()),
        (),
        "training, 2 ranks",
    ),
    Case(
        "peer down under a notice",
        replace(DONE, peer=PeerFact(False, "connection refused")),
        (),
        "peer not reachable: connection refused",
    ),
    Case(
        "shipping failed: wait",
        replace(DONE, peer=replace(PEER, retry_at=NOW + 2, because="no space left")),
        (),
        "shipping global_step120 failed: no space left; trying again soon",
    ),
    Case("shipping failed: again", replace(DONE, peer=replace(PEER, retry_at=NOW)), (Ship(NEW),), "ship"),
    Case(
        "overtaken under a notice",
        replace(DONE, peer=PEER, shipping=OLD),
        (StopShip(OLD),),
        "global_step120 overtakes the transfer of global_step100",
    ),
    Case(
        "not overtaken in quiet times",
        replace(QUIET, newest=NEW, peer=PEER, shipping=OLD),
        (),
        "shipping global_step100",
    ),
    Case(
        "not overtaken where the newer cannot arrive",
        replace(DONE, notice=due(5.0), peer=PEER, shipping=OLD, ship_bytes_s=100.0),
        (),
        "shipping global_step100",
    ),
    Case(
        "verified at the peer: hand over",
        replace(DONE, peer=PEER_AT_NEW),
        (HandOver(NEW),),
        "global_step120 is verified at the peer: hand over",
    ),
    Case("no handover without a notice", replace(QUIET, newest=NEW, peer=PEER_AT_NEW), (), "training"),
    Case(
        "no handover while the notice's flush is out",
        replace(FLUSHING, newest=OLD, peer=PEER_AT_OLD),
        (),
        "waiting",
    ),
    Case(
        "no handover during a later flush",
        replace(DONE, peer=PEER_AT_NEW, flush=replace(FLUSH, id="operator-3", cause=Cause.OPERATOR)),
        (),
        "waiting",
    ),
    Case(
        "handing over failed: wait",
        replace(DONE, peer=replace(PEER_AT_NEW, retry_at=NOW + 1, because="refused: io")),
        (),
        "handing over failed: refused: io; trying again soon",
    ),
    Case("handing over", replace(DONE, peer=PEER_AT_NEW, handing_over=True), (), "handing over to the peer"),
    Case(
        "flush given up: hand over what the peer has",
        replace(NOTICED, newest=OLD, peer=PEER_AT_OLD, given_up=frozenset({"i-1@7"})),
        (HandOver(OLD),),
        "global_step100 is verified at the peer: hand over",
    ),
    Case(
        "no trainer, all at the peer: hand over",
        replace(NOTICED, ranks=(), newest=OLD, peer=PEER_AT_OLD),
        (HandOver(OLD),),
        "no trainer is connected",
    ),
    Case(
        "committed here, no peer",
        replace(DONE, held=False),
        (),
        "notice: terminate in 120.0 s; global_step120 is committed",
    ),
    Case(
        "withdrawn: held ranks train on",
        replace(DONE, notice=None, peer=PEER_AT_NEW),
        (Release("the notice was withdrawn"),),
        "the notice was withdrawn: train on",
    ),
    Case(
        "withdrawn before the transfer: train on and ship",
        replace(DONE, notice=None, peer=PEER_AT_OLD),
        (Release("the notice was withdrawn"), Ship(NEW)),
        "the notice was withdrawn: train on",
    ),
]

EPOCHS = [
    Case(
        "fenced: everyone leaves",
        replace(DONE, role=Role.FENCED, peer=PEER_AT_OLD),
        (StandDownAll("epoch 1 is over: the job was handed over"),),
        "epoch 1 is over: the job was handed over",
    ),
    Case("fenced, nobody here", Facts(now=NOW, epoch=1, role=Role.FENCED), (), "epoch 1 is over"),
    Case(
        "fenced, nobody here, and the job may come back",
        Facts(now=NOW, epoch=1, role=Role.FENCED, can_stand_by=True),
        (Retire(),),
        "epoch 1 is over: the job was handed over; standing by for it",
    ),
    Case(
        "a higher epoch at the peer",
        replace(FLUSHING, flush=AGREED, ranks=saved("t", "t"), peer=PeerFact(True, fence=2)),
        (Fence(2),),
        "the peer is at epoch 2, this node at 1: the job lives there",
    ),
    Case(
        "a higher epoch counts though the peer is silent now",
        replace(QUIET, wishes=(OPERATOR,), peer=PeerFact(False, "timeout", fence=2)),
        (Fence(2),),
        "the job lives there",
    ),
    Case(
        "the peer's new epoch is our own handover's",
        replace(DONE, peer=replace(PEER_AT_NEW, fence=2), handing_over=True),
        (),
        "handing over to the peer",
    ),
]

TABLE = [*WISHES, *NOTICES, *FLUSHES, *REPLICATION, *EPOCHS]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_plan_decides(case: Case) -> None:
    """Each row of the table: the actions exactly, and the words of the sentence."""
    decision = plan(case.facts)
    assert decision.actions == case.actions
    assert case.why in decision.because


@pytest.mark.parametrize("seconds", [1.0, 4.5, 10.0, 30.0, 120.0, 420.0])
def test_plan_gives_up_before_the_deadline(seconds: float) -> None:
    """However long the warning, waiting for a frozen rank ends before the deadline (T9)."""
    notice = due(seconds)
    (ask,) = plan(replace(NOTICED, notice=notice, peer=PEER)).actions
    assert isinstance(ask, AskFlush)
    assert NOW < ask.give_up_at <= notice.deadline - min(MARGIN_S, seconds / 4)


def test_next_look_names_the_next_instant_that_matters() -> None:
    """The keeper sleeps until waiting ends, a missing rank is written off, or the peer may be tried again."""
    assert next_look(QUIET) is None
    assert next_look(FLUSHING) == pytest.approx(100.0)
    missing = replace(FLUSHING, ranks=BOTH[:1], incomplete_since=NOW)
    assert next_look(missing) == pytest.approx(REJOIN_S)
    assert next_look(replace(missing, peer=replace(PEER, retry_at=NOW + 2))) == pytest.approx(2.0)
    assert next_look(replace(FLUSHING, now=FLUSH.give_up_at + 5)) == 0.0
