"""One table of the history as rows travel: in a file's own columns, or in a segment's JSON.

Both are read into the same values. What comes from a segment was written by another machine: each value is
checked for its kind and bounds, and a row that does not fit is no row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_args

from outlast.daemon.history.rows import (
    Cause,
    FlushRow,
    HintRow,
    LaunchRow,
    LossRow,
    NoticeRow,
    Pool,
    PriceKind,
    PriceRow,
    RestoreRow,
    Rows,
    ShipRow,
    Spell,
)

MOST_TEXT = 1024
MOST_TIME = 1e11  # UTC seconds, some three thousand years
MOST_WHOLE = 2**53

CAUSES: frozenset[str] = frozenset(get_args(Cause))
PRICE_KINDS: frozenset[str] = frozenset(get_args(PriceKind))

Check = Callable[[object], Any]


class BadRowError(ValueError):
    """A value is not of its column's kind, or out of bounds."""


@dataclass(frozen=True, slots=True)
class Table:
    """``name`` is the SQL table's, the segment's word and the name in Rows. ``columns`` are the row's fields.

    ``select`` reads them, in that order, from a file of version ``since`` or later; where ``pooled``, the
    four columns of a Pool stand for the field ``pool``.
    """

    name: str
    row: type[Any]
    columns: Mapping[str, Check]
    select: str
    since: int = 1
    pooled: bool = False

    def from_sql(self, values: tuple[Any, ...]) -> Any:
        """A row of what ``select`` gave."""
        named = dict(zip(self.columns, values, strict=True))
        if "drill" in named:
            named["drill"] = bool(named["drill"])
        return self._made(named)

    def from_json(self, body: Mapping[str, object]) -> Any:
        """A row of a segment's object; unknown keys are ignored. Raises BadRowError."""
        return self._made({name: check(body.get(name)) for name, check in self.columns.items()})

    def to_json(self, row: Any) -> dict[str, object]:
        """The segment's object of a row. What is not known is left out."""
        body: dict[str, object] = {"table": self.name}
        for name in self.columns:
            value = getattr(row.pool if self.pooled and name in _POOL else row, name)
            if value is not None and value != "":
                body[name] = int(value) if isinstance(value, bool) else value
        return body

    def _made(self, values: dict[str, Any]) -> Any:
        if self.pooled:
            values["pool"] = Pool(*(values.pop(name) for name in _POOL))
        return self.row(**values)


# ---- the kinds of values


def _text(value: object) -> str:
    """Text of bounded length; left out means empty."""
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise BadRowError("no text, or too long a one")
    return value


def _word(value: object) -> str:
    """Text that is not empty."""
    word = _text(value)
    if not word:
        raise BadRowError("a name is missing")
    return word


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_WHOLE:
        raise BadRowError("no whole number")
    return value


def _time(value: object) -> float:
    """UTC seconds, or a length of time in seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRowError("no time")
    if not math.isfinite(value) or abs(value) > MOST_TIME:
        raise BadRowError("a time out of bounds")
    return float(value)


def _length(value: object) -> float:
    seconds = _time(value)
    if seconds < 0:
        raise BadRowError("a length of time below zero")
    return seconds


def _flag(value: object) -> bool:
    if value not in (0, 1):
        raise BadRowError("neither 0 nor 1")
    return bool(value)


def _cause(value: object) -> str:
    if value not in CAUSES:
        raise BadRowError("no cause")
    return str(value)


def _price_kind(value: object) -> str:
    if value not in PRICE_KINDS:
        raise BadRowError("no kind of price")
    return str(value)


def _maybe(check: Check) -> Check:
    def checked(value: object) -> Any:
        return None if value is None else check(value)

    return checked


# ---- the columns; monotonic instants mean nothing to another machine, and stay at home

_POOL: dict[str, Check] = {"provider": _text, "region": _text, "zone": _text, "instance_type": _text}
_SPELL: dict[str, Check] = {
    "id": _whole,
    **_POOL,
    **dict.fromkeys(("instance_id", "node", "boot_id"), _text),
    "drill": _flag,
    **dict.fromkeys(("began", "heartbeat"), _time),
    "alive_s": _length,
    "ended": _maybe(_time),
    "cause": _cause,
    "up_s": _maybe(_length),
}
_NOTICE: dict[str, Check] = {
    "spell": _whole,
    "id": _text,
    "episode": _whole,
    "action": _text,
    "source": _text,
    "first_seen": _time,
    "deadline": _time,
    "withdrawn": _maybe(_time),
    "drill": _flag,
}
_HINT: dict[str, Check] = {"spell": _whole, "id": _text, "kind": _text, "source": _text, "first_seen": _time}
_LOSS: dict[str, Check] = {**_POOL, "victim": _word, "seen_by": _text, "at": _time, "drill": _flag}
_LAUNCH: dict[str, Check] = {"id": _word, **_POOL, "at": _time, "asked": _whole, "got": _whole, "by": _text}
_PRICE: dict[str, Check] = {**_POOL, "kind": _price_kind, "at": _time, "micro_usd": _whole}
_FLUSH: dict[str, Check] = {
    "job": _word,
    "id": _word,
    "reason": _maybe(_text),
    **dict.fromkeys(("asked", "agreed", "saved", "committed", "failed"), _maybe(_time)),
    "seconds": _maybe(_length),
    "step": _maybe(_whole),
    "tag": _maybe(_text),
    "bytes": _maybe(_whole),
    "outcome": _maybe(_text),
    "because": _maybe(_text),
}
_SHIP: dict[str, Check] = {
    "job": _word,
    "epoch": _whole,
    "tag": _word,
    "peer": _text,
    **dict.fromkeys(("began", "ended"), _maybe(_time)),
    "seconds": _maybe(_length),
    "bytes": _maybe(_whole),
    "outcome": _maybe(_text),
    "because": _maybe(_text),
}
_RESTORE: dict[str, Check] = {
    "job": _word,
    "id": _word,
    "epoch": _whole,
    "tag": _text,
    "place": _text,
    "began": _time,
    "seconds": _maybe(_length),
    "step": _maybe(_whole),
    "outcome": _maybe(_text),
}


def _select(
    table: str, columns: Mapping[str, Check], special: Mapping[str, str] = MappingProxyType({})
) -> str:
    return f"SELECT {', '.join(special.get(name, _quoted(name)) for name in columns)} FROM {table}"  # noqa: S608 - names of our own


def _quoted(name: str) -> str:
    return f'"{name}"'


_ZONE = {"zone": "coalesce(nullif(zone_id, ''), zone)"}

TABLES: tuple[Table, ...] = (
    Table("spells", Spell, _SPELL, _select("spells", _SPELL, {**_ZONE, "up_s": "began_mono"}), pooled=True),
    Table("notices", NoticeRow, _NOTICE, _select("notices", _NOTICE)),
    Table("hints", HintRow, _HINT, _select("hints", _HINT)),
    Table("losses", LossRow, _LOSS, _select("losses", _LOSS, _ZONE), pooled=True),
    Table("launches", LaunchRow, _LAUNCH, _select("launches", _LAUNCH), since=2, pooled=True),
    Table("prices", PriceRow, _PRICE, _select("prices", _PRICE), since=2, pooled=True),
    Table("flushes", FlushRow, _FLUSH, _select("flushes", _FLUSH)),
    Table("ships", ShipRow, _SHIP, _select("ships", _SHIP)),
    Table("restores", RestoreRow, _RESTORE, _select("restores", _RESTORE), since=2),
)
BY_NAME: Mapping[str, Table] = MappingProxyType({table.name: table for table in TABLES})


def gathered(found: Mapping[str, list[Any]]) -> Rows:
    """Rows of lists by table name."""
    return Rows(**{name: tuple(rows) for name, rows in found.items()})
