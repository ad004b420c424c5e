"""What would be lost if the node were taken this instant, without a word: ``prospect(...)``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlast.daemon.core.facts import PeerFact, Place


@dataclass(frozen=True, slots=True)
class Prospect:
    """``here``, ``peer`` and ``store`` are the newest steps there; None where there is none or none is known.

    ``lost_steps`` and ``lost_s`` (training time) are counted from what would be gone on from: the peer's
    newest, without a peer the stores', and this node's where neither is configured. None is not known.
    """

    step: int
    here: int | None
    peer: int | None
    store: int | None
    lost_steps: int | None
    lost_s: float | None
    sentence: str


def prospect(
    step: int, step_s: float, newest: Place | None, peer: PeerFact | None, stores: Sequence[PeerFact] = ()
) -> Prospect:
    """Where the job stands at ``step``, with ``step_s`` seconds a step (0: not measured).

    Each of the ``stores`` is given as a peer is: whether it answers, and the newest that it has.
    """
    store = max(stores, key=_worth, default=None)
    other, kind = (peer, "peer") if peer is not None else (store, "store")
    here = newest.step if newest else None
    there = _step(other)
    known = other is None or other.newest is not None or other.reachable is True
    base = here if other is None else there
    lost = max(0, step - (base or 0)) if known else None
    lost_s = lost * step_s if lost is not None and (step_s > 0 or lost == 0) else None
    words = f"{_loss(lost, lost_s, whole=base is None)}{_where(here, other, kind)}"
    return Prospect(step, here, _step(peer), _step(store), lost, lost_s, words)


def _worth(store: PeerFact) -> tuple[tuple[int, int], bool]:
    return (store.newest.order if store.newest else (-1, -1), store.reachable is True)


def _step(place: PeerFact | None) -> int | None:
    return place.newest.step if place is not None and place.newest is not None else None


def _loss(lost: int | None, lost_s: float | None, *, whole: bool) -> str:
    if lost is None:
        return "taken now, you would lose an unknown number of steps"
    if lost == 0:
        return "taken now, you would lose nothing"
    takes = "" if lost_s is None else f" ({_minutes(lost_s)})"
    all_of = "all " if whole else ""
    return f"taken now, you would lose {all_of}{lost} step{'s' if lost != 1 else ''}{takes}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.1f} minutes"


def _where(here: int | None, other: PeerFact | None, kind: str) -> str:
    own = "nothing is committed here" if here is None else f"this node has step {here}"
    if other is None:
        kept = "; nothing is committed" if here is None else f" if this disk survives: it has step {here}"
        return f"{kept}, and no peer is configured"
    if other.newest is not None:
        heard = "" if other.reachable else ", as last heard"
        return f"; the {kind} has step {other.newest.step}{heard}"
    if other.reachable:
        return f"; the {kind} has nothing yet, {own}"
    return f"; the {kind} was not heard yet, {own}"
