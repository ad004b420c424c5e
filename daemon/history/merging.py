"""The union of several files or segments by id: any order, any repetition, the same result.

Of two versions of one row the further advanced wins, by an order that is total over all their values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import astuple
from typing import Any, TypeVar

from outlast.daemon.history.rows import (
    FlushRow,
    HintRow,
    LaunchRow,
    LossRow,
    NoticeRow,
    PriceRow,
    RestoreRow,
    Rows,
    ShipRow,
    Spell,
)

R = TypeVar("R")


def merge(*several: Rows) -> Rows:
    """The union by id, in the order of the ids."""
    return Rows(
        _united((rows.spells for rows in several), lambda row: row.id, _spell_rank),
        _united((rows.notices for rows in several), _notice_key, _notice_rank),
        _united((rows.hints for rows in several), lambda row: (row.spell, row.id), _hint_rank),
        tuple(sorted({loss for rows in several for loss in rows.losses}, key=loss_rank)),
        _united((rows.launches for rows in several), lambda row: row.id, _launch_rank),
        _united((rows.prices for rows in several), _price_key, lambda row: row.micro_usd),
        _united((rows.flushes for rows in several), lambda row: (row.job, row.id), _flush_rank),
        _united((rows.ships for rows in several), _ship_key, _ship_rank),
        _united((rows.restores for rows in several), lambda row: (row.job, row.id), _restore_rank),
    )


def _united(
    several: Iterable[tuple[R, ...]], key: Callable[[R], Any], rank: Callable[[R], Any]
) -> tuple[R, ...]:
    best: dict[Hashable, R] = {}
    for rows in several:
        for row in rows:
            known = best.setdefault(key(row), row)
            if known is not row and known != row and rank(row) > rank(known):
                best[key(row)] = row
    return tuple(best[name] for name in sorted(best))  # type: ignore[type-var]  # keys of one kind compare


def loss_rank(loss: LossRow) -> tuple[object, ...]:
    """An order of losses: by victim, then by time."""
    return (loss.victim, loss.at, loss.pool, loss.seen_by, loss.drill)


def _notice_key(notice: NoticeRow) -> tuple[object, ...]:
    return (notice.spell, notice.id, notice.episode)


def _price_key(price: PriceRow) -> tuple[object, ...]:
    return (price.pool, price.kind, price.at)


def _ship_key(ship: ShipRow) -> tuple[object, ...]:
    return (ship.job, ship.epoch, ship.tag, ship.peer)


def _spell_rank(spell: Spell) -> tuple[object, ...]:
    ended = -1.0 if spell.ended is None else spell.ended
    up = -1.0 if spell.up_s is None else spell.up_s
    known = (spell.pool, spell.instance_id, spell.node, spell.boot_id, spell.drill, spell.began, up)
    return (spell.cause != "running", spell.alive_s, spell.heartbeat, ended, spell.cause, known)


def _notice_rank(notice: NoticeRow) -> tuple[object, ...]:
    gone = -1.0 if notice.withdrawn is None else notice.withdrawn
    return (
        notice.withdrawn is not None,
        -notice.deadline,
        gone,
        *(notice.action, notice.source, notice.first_seen, notice.drill),
    )


def _hint_rank(hint: HintRow) -> tuple[object, ...]:
    # The first sighting counts.
    return (-hint.first_seen, hint.kind, hint.source)


def _launch_rank(launch: LaunchRow) -> tuple[object, ...]:
    return (launch.got, launch.asked, -launch.at, launch.pool, launch.by)


def _flush_rank(row: FlushRow) -> tuple[object, ...]:
    return (_OUTCOMES.get(row.outcome, 1), _known(row))


def _ship_rank(row: ShipRow) -> tuple[object, ...]:
    # A failed transfer begins again: of two that are not done the later attempt counts.
    began = -1.0 if row.began is None else row.began
    return (_OUTCOMES.get(row.outcome, 0) == _BEST, began, _known(row))


def _restore_rank(row: RestoreRow) -> tuple[object, ...]:
    return (_OUTCOMES.get(row.outcome, 1), _known(row))


_BEST = 3
_OUTCOMES: dict[str | None, int] = {None: 0, "failed": 2, "committed": _BEST, "done": _BEST}


def _known(row: FlushRow | ShipRow | RestoreRow) -> tuple[object, ...]:
    """What is known counts more than what is not; then the values themselves, to tell any two apart."""
    values = astuple(row)
    told = tuple((True, value) if value is not None else (False, 0) for value in values)
    return (sum(value is not None for value in values), told)
