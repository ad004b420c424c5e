"""The primary's decision: ``plan(facts) -> Decision``. Pure, re-derived each time a fact changes.

Order of thought: who may run the job; the flush in progress; the flush that ought to be; what to ship;
whether to hand over. Each rule gives its sentence; the first sentence that matters is the decision's.
"""

from __future__ import annotations

from outlast.daemon.core.deadline import MARGIN_S, SURVIVED, Outlook, decide, margin, sending
from outlast.daemon.core.facts import (
    Action,
    AskFlush,
    Cause,
    Commit,
    Decision,
    Facts,
    Fence,
    FlushFact,
    GiveUp,
    HandOver,
    NoticeFact,
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

# A flush without a deadline ends after this long; large models need minutes to write.
PATIENCE_S = 900.0
# A rank whose process lives comes back to a restarted daemon well within this time.
REJOIN_S = 10.0
# Where the deadline is now or past, nothing is lost by trying for as long as the node lives.
NO_WARNING_S = 30.0


def plan(facts: Facts) -> Decision:
    """What the primary does now and why. Same facts, same decision."""
    if facts.role is Role.FENCED:
        return _fenced(facts)
    if facts.peer is not None and facts.peer.fence > facts.epoch and not facts.handing_over:
        why = f"the peer is at epoch {facts.peer.fence}, this node at {facts.epoch}: the job lives there"
        return Decision((Fence(facts.peer.fence),), why)
    first = _flush(facts, facts.flush) if facts.flush is not None else _next_flush(facts)
    later = _replicate(facts)
    actions = (*first.actions, *later.actions)
    return Decision(actions, _sentence(first, later) or _quiet(facts), first.verdict)


def _sentence(first: Decision, later: Decision) -> str:
    """The flush's sentence, and what is done beside it."""
    if first.because and later.actions:
        return f"{first.because}; {later.because}"
    return first.because or later.because


def _fenced(facts: Facts) -> Decision:
    why = f"epoch {facts.epoch} is over: the job was handed over"
    if facts.ranks:
        return Decision((StandDownAll(why),), why)
    return Decision((Retire(),), f"{why}; standing by for it") if facts.can_stand_by else Decision((), why)


# ---- a flush in progress


def _flush(facts: Facts, flush: FlushFact) -> Decision:
    if facts.committing:
        return Decision((), f"committing the checkpoint of flush {flush.id}")
    if facts.commit_failed:
        return _give_up(flush, f"the checkpoint could not be committed: {facts.commit_failed}")
    failed = [r for r in facts.ranks if r.failed]
    if failed:
        return _give_up(flush, f"rank {failed[0].rank} could not save: {failed[0].failed}")
    if not facts.ranks:
        return _give_up(flush, "the trainer left before it had saved")
    if facts.complete and all(r.saved for r in facts.ranks):
        return _all_saved(facts, flush)
    if _left_for_good(facts, flush):
        return _give_up(flush, f"{_missing(facts, flush)} any more")
    if facts.now >= _waits_until(facts, flush):
        return _give_up(flush, f"{_missing(facts, flush)} in time")
    one_node = facts.nodes == 1  # else the ranks agree with those of the other nodes, among themselves
    if one_node and flush.agreed is None and facts.complete and all(r.at is not None for r in facts.ranks):
        step = max(r.at or 0 for r in facts.ranks)
        return Decision(
            (SayAgree(flush.id, step),), f"all {facts.world} ranks save at the end of step {step}"
        )
    return Decision((), f"waiting: {_missing(facts, flush)} yet")


def _waits_until(facts: Facts, flush: FlushFact) -> float:
    """A flush that a notice finds under way may use the notice's time, but for what its end needs."""
    notice = facts.notice
    if notice is None or flush.cause is Cause.NOTICE or notice.deadline <= flush.asked_at:
        return flush.give_up_at
    return min(flush.give_up_at, notice.deadline - margin(notice.deadline - flush.asked_at))


def _left_for_good(facts: Facts, flush: FlushFact) -> bool:
    if facts.incomplete_since is None:
        return False
    return facts.now - max(facts.incomplete_since, flush.asked_at) >= REJOIN_S


def _all_saved(facts: Facts, flush: FlushFact) -> Decision:
    tags = {r.saved or "" for r in facts.ranks}
    if len(tags) != 1:
        return _give_up(flush, f"ranks saved different tags ({', '.join(sorted(tags))})")
    steps = {r.saved_step for r in facts.ranks if r.saved_step is not None}
    if len(steps) > 1:
        return _give_up(flush, f"ranks saved different steps ({', '.join(map(str, sorted(steps)))})")
    tag = tags.pop()
    step = steps.pop() if steps else flush.agreed or max(r.step for r in facts.ranks)
    return Decision((Commit(flush.id, tag, step),), f"all {facts.world} ranks have saved {tag}: commit")


def _give_up(flush: FlushFact, why: str) -> Decision:
    return Decision((GiveUp(flush.id, why),), f"{why}; the last committed checkpoint counts")


def _missing(facts: Facts, flush: FlushFact) -> str:
    """Which ranks keep the flush waiting, in words; a frozen rank is named with its pid."""
    if not facts.complete and facts.nodes > 1:
        return f"{facts.world - len(facts.ranks)} of the {facts.world} ranks of this node not connected"
    gone = sorted(set(range(facts.world)) - {r.rank for r in facts.ranks}) if facts.nodes == 1 else []
    if gone:
        return f"{_names(gone)} of {facts.world} not connected"
    silent = [r for r in facts.ranks if r.at is None]
    if flush.agreed is None and silent:
        return f"{_pids(silent)} did not answer"
    return f"{_pids([r for r in facts.ranks if not r.saved])} did not save"


def _names(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _pids(ranks: list[RankFact]) -> str:
    return _names([r.rank for r in ranks]) + " (pid " + ", ".join(str(r.pid) for r in ranks) + ")"


# ---- the flush that ought to be


def _next_flush(facts: Facts) -> Decision:
    if facts.notice is None:
        if facts.held:
            return Decision((Release("the notice was withdrawn"),), "the notice was withdrawn: train on")
        return _wished(facts)
    if _answered(facts, facts.notice):
        return Decision((), "")
    if not facts.ranks:
        return Decision(
            (), f"{_notice(facts)}; no trainer is connected, the last committed checkpoint counts"
        )
    return _flush_for_notice(facts, facts.notice)


def _answered(facts: Facts, notice: NoticeFact) -> bool:
    """The notice's own flush is committed here, or it will not come."""
    done = facts.newest is not None and facts.newest.flush_id == notice.episode
    return done or notice.episode in facts.given_up


def _flush_for_notice(facts: Facts, notice: NoticeFact) -> Decision:
    left = notice.deadline - facts.now
    verdict = decide(_outlook(facts, notice, left))
    if not verdict.flushes:
        return Decision((GiveUp(notice.episode, verdict.sentence),), verdict.sentence, verdict)
    # Waiting for ranks ends so early that what is committed can still be handed over.
    give_up_at = notice.deadline - margin(left) if left > 0 else facts.now + NO_WARNING_S
    ask = AskFlush(
        notice.episode, Cause.NOTICE, _notice(facts), give_up_at, notice.deadline, facts.peer is not None
    )
    return Decision((ask,), f"{_notice(facts)}: {verdict.sentence}", verdict)


def _outlook(facts: Facts, notice: NoticeFact, left: float) -> Outlook:
    """The facts as the deadline plan weighs them; the measured flush ends with its commit."""
    under_way, unsent = _under_way(facts)
    size = facts.newest.size if facts.newest else 0
    rest = sending(facts.flush_bytes, size, facts.ship_bytes_s)
    return Outlook(
        left_s=left,
        flush_s=facts.flush_s,
        bytes_s=rest.bytes_s,
        flush_bytes=_late(facts, rest.size),
        unsent=unsent,
        under_way=under_way.tag if under_way else "",
        margin_s=margin(left),
        # Without a peer the folder is all there is: whoever configured that has it on a disk that lasts.
        survives=notice.action in SURVIVED or facts.peer is None,
        peer=facts.peer is not None,
        reachable=facts.peer.reachable if facts.peer else None,
    )


def _late(facts: Facts, size: int | None) -> int | None:
    """What is left to send at the commit: files travel while they are saved, if the way is free."""
    if size is None or facts.shipping is not None:
        return size
    return max(0, size - facts.early_bytes)


def _under_way(facts: Facts) -> tuple[Place | None, int | None]:
    """The committed checkpoint that is not at the peer yet, and the bytes it lacks; None is not known."""
    if facts.shipping is not None:
        return facts.shipping, facts.unsent if facts.unsent is not None else facts.shipping.size or None
    if not _unshipped(facts) or facts.newest is None:
        return None, 0
    return facts.newest, facts.newest.size or None


def _notice(facts: Facts) -> str:
    assert facts.notice is not None
    left = facts.notice.deadline - facts.now
    when = f"in {left:.1f} s" if left > 0 else "now"
    return f"notice: {facts.notice.action} {when}"


_RANK = {Cause.SIGNAL: 0, Cause.OPERATOR: 1, Cause.HINT: 2, Cause.INTERVAL: 3}


def _wished(facts: Facts) -> Decision:
    open_wishes = [w for w in facts.wishes if w.id not in facts.given_up]
    if not open_wishes or not facts.ranks:
        return Decision((), "")
    wish: Wish = min(open_wishes, key=lambda w: _RANK[w.cause])
    if not facts.complete:
        return Decision((), f"{wish.reason}: waiting for all {facts.world} ranks to connect")
    ask = AskFlush(wish.id, wish.cause, wish.reason, facts.now + PATIENCE_S, None, hold=False)
    return Decision((ask,), f"{wish.reason}: checkpoint")


# ---- shipping and handover


def _unshipped(facts: Facts) -> bool:
    if facts.newest is None or facts.peer is None:
        return False
    return facts.peer.newest is None or facts.peer.newest.order < facts.newest.order


def _replicate(facts: Facts) -> Decision:
    if facts.peer is None or facts.handing_over:
        return Decision((), "handing over to the peer" if facts.handing_over else "")
    if not facts.peer.reachable:
        return Decision((), f"peer not reachable: {facts.peer.because}" if facts.notice else "")
    if _unshipped(facts):
        assert facts.newest is not None
        return _ship(facts, facts.newest)
    return _hand_over(facts)


def _ship(facts: Facts, newest: Place) -> Decision:
    under_way, peer = facts.shipping, facts.peer
    if under_way is None and peer is not None and peer.waiting and peer.retry_at > facts.now:
        return Decision((), f"{newest.tag} waits at the peer for the part of {', '.join(peer.waiting)}")
    if under_way is None:
        if facts.peer is not None and facts.peer.retry_at > facts.now:
            return Decision((), f"shipping {newest.tag} failed: {facts.peer.because}; trying again soon")
        return Decision((Ship(newest),), f"ship {newest.tag} to the peer")
    if under_way == newest or not _overtakes(facts, newest):
        return Decision((), f"shipping {under_way.tag}")
    return Decision((StopShip(under_way),), f"{newest.tag} overtakes the transfer of {under_way.tag}")


def _overtakes(facts: Facts, newest: Place) -> bool:
    """A newer tag cuts an older transfer only for a notice, and only where it can still arrive in time."""
    if facts.notice is None or facts.nodes > 1:  # other nodes may wait for the part that is under way
        return False
    left = facts.notice.deadline - facts.now
    return facts.ship_bytes_s is None or left <= 0 or newest.size / facts.ship_bytes_s < left


def _hand_over(facts: Facts) -> Decision:
    notice, newest = facts.notice, facts.newest
    if notice is None or newest is None or facts.flush is not None:
        return Decision((), "")
    if not _answered(facts, notice) and facts.ranks:
        return Decision((), "")
    if facts.peer is not None and facts.peer.retry_at > facts.now:
        return Decision((), f"handing over failed: {facts.peer.because}; trying again soon")
    place = facts.peer.newest if facts.peer and facts.peer.newest else newest
    return Decision((HandOver(place),), f"{place.tag} is verified at the peer: hand over")


def _quiet(facts: Facts) -> str:
    if facts.notice is not None and facts.newest is not None:
        return f"{_notice(facts)}; {facts.newest.tag} is committed"
    if not facts.ranks:
        return "no trainer is connected"
    if not facts.complete:
        return f"{len(facts.ranks)} of {facts.world} ranks are connected"
    return f"training, {facts.world} ranks" + (" here" if facts.nodes > 1 else "")


def next_look(facts: Facts) -> float | None:
    """When the decision can change though no fact does: seconds from now, or None."""
    times: list[float] = []
    if facts.flush is not None:
        times.append(_waits_until(facts, facts.flush))
        if facts.incomplete_since is not None:
            times.append(max(facts.incomplete_since, facts.flush.asked_at) + REJOIN_S)
    if facts.peer is not None and facts.peer.retry_at > facts.now:
        times.append(facts.peer.retry_at)
    return max(0.0, min(times) - facts.now) if times else None


__all__ = ["MARGIN_S", "NO_WARNING_S", "PATIENCE_S", "Action", "next_look", "plan"]
