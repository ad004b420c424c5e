"""What to do about one store, and which old checkpoints may go here: decisions from facts, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outlast.daemon.core.facts import Place, Role

Require = Literal["any", "all"] | int
Order = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What is known of one store at one instant; times are monotonic.

    ``newest`` lies here and ``there`` in the store; ``shipping`` is under way. ``peer_first``: a notice
    lives, and the peer still lacks what it must have. ``tidy``: the store has not been tidied for a while.
    """

    now: float
    role: Role
    newest: Place | None = None
    there: Place | None = None
    shipping: Place | None = None
    notice: bool = False
    peer_first: bool = False
    retry_at: float = 0.0
    tidy: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Ship this checkpoint to the store."""

    place: Place


@dataclass(frozen=True, slots=True)
class Cut:
    """End what is under way; what arrived is kept."""

    because: str


@dataclass(frozen=True, slots=True)
class Tidy:
    """Delete what the store need not keep."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do now."""

    because: str


StoreAction = Send | Cut | Tidy | Rest


def decide(facts: StoreFacts) -> StoreAction:
    """What to do about the store now. Same facts, same decision."""
    newest, under_way = facts.newest, facts.shipping
    if facts.role is not Role.PRIMARY or newest is None:
        return Rest("nothing of this job is to be sent from here")
    if facts.peer_first:
        why = "under a notice the peer comes first"
        return Rest(why) if under_way is None else Cut(why)
    if under_way is not None:
        # Outside a notice a transfer is let to its end: a store slower than the interval would get nothing.
        overtaken = facts.notice and under_way.order < newest.order
        return Cut(f"{newest.tag} is newer") if overtaken else Rest(f"sending {under_way.tag}")
    if facts.now < facts.retry_at:
        return Rest("it failed; trying again soon")
    if facts.there is None or facts.there.order < newest.order:
        return Send(newest)
    return Tidy() if facts.tidy and not facts.notice else Rest(f"it has {newest.tag}")


def may_go(require: Require, held: Sequence[Order | None], under_way: Sequence[Order]) -> Order | None:
    """Checkpoints older than this are not needed here any more; None if all are.

    ``held`` is the newest of each destination, ``under_way`` what is being sent. What at least ``require``
    destinations have is safe; what is being sent to one stays until it has arrived.
    """
    needed = {"any": 1, "all": len(held)}.get(require, 0) if isinstance(require, str) else require
    have = sorted((order for order in held if order is not None), reverse=True)
    if not 1 <= needed <= len(have):
        return None
    return min([have[needed - 1], *under_way])
