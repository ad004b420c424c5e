"""What would be lost if the node were taken this instant, without a word: ``prospect(...)``. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from outlast.daemon.core.facts import PeerFact, Place


@dataclass(frozen=True, slots=True)
class Prospect:
    """``here`` and ``peer`` are the newest steps committed there; None where there is none or none is known.

    ``lost_steps`` and ``lost_s`` (training time) are counted from what would be gone on from: the peer's
    newest, or this node's where no peer is configured. None is not known.
    """

    step: int
    here: int | None
    peer: int | None
    lost_steps: int | None
    lost_s: float | None
    sentence: str


def prospect(step: int, step_s: float, newest: Place | None, peer: PeerFact | None) -> Prospect:
    """Where the job stands at ``step``, with ``step_s`` seconds a step (0: not measured)."""
    here = newest.step if newest else None
    there = peer.newest.step if peer and peer.newest else None
    known = peer is None or peer.newest is not None or peer.reachable is True
    base = here if peer is None else there
    lost = max(0, step - (base or 0)) if known else None
    lost_s = lost * step_s if lost is not None and (step_s > 0 or lost == 0) else None
    words = f"{_loss(lost, lost_s, whole=base is None)}{_where(here, peer)}"
    return Prospect(step, here, there, lost, lost_s, words)


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


def _where(here: int | None, peer: PeerFact | None) -> str:
    own = "nothing is committed here" if here is None else f"this node has step {here}"
    if peer is None:
        kept = "; nothing is committed" if here is None else f" if this disk survives: it has step {here}"
        return f"{kept}, and no peer is configured"
    if peer.newest is not None:
        heard = "" if peer.reachable else ", as last heard"
        return f"; the peer has step {peer.newest.step}{heard}"
    if peer.reachable:
        return f"; the peer has nothing yet, {own}"
    return f"; the peer was not heard yet, {own}"
