"""How a flush or a ship advances: the row before, one step, the row after. No disk here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from outlast.daemon.history.rows import FlushRow, Moment, ShipRow

_TEXT = frozenset({"reason", "tag", "because"})
_WHOLE = frozenset({"step", "bytes"})
_FLUSH = frozenset({"reason", "seconds", "step", "tag", "bytes", "because"})
_SHIP = frozenset({"seconds", "bytes", "because"})
_DONE = frozenset({"verified", "done"})


def flush_after(
    row: FlushRow, what: str, boot_id: str, now: Moment, fields: Mapping[str, object]
) -> FlushRow:
    """The flush after ``what``. A step keeps the time it was first told; a commit is not taken back.

    Raises ValueError for a word or a field value that makes no sense.
    """
    if what not in {"asked", "agreed", "saved", "committed", "failed"}:
        raise ValueError(f"no step of a flush is called {what!r}")
    if row.outcome == "committed" or (what == "failed" and row.outcome):
        return row
    told: dict[str, Any] = _chosen(fields, _FLUSH)
    if getattr(row, what) is None:
        told[what] = now.wall
    if what == "asked" and row.asked_mono is None:
        told |= {"asked_mono": now.mono, "boot_id": boot_id}
    if what in {"committed", "failed"}:
        told["outcome"] = what
    if what == "committed" and "seconds" not in told:
        told["seconds"] = _lasted(row.asked_mono, row.boot_id, boot_id, now)
    return replace(row, **told)


def ship_after(row: ShipRow, what: str, boot_id: str, now: Moment, fields: Mapping[str, object]) -> ShipRow:
    """The transfer after ``what``. A failed one may begin again; one that is done stays done.

    Raises ValueError for a word or a field value that makes no sense.
    """
    if what not in {"began", "shipped", "failed", *_DONE}:
        raise ValueError(f"no step of a ship is called {what!r}")
    if row.outcome == "done":
        return row
    told: dict[str, Any] = _chosen(fields, _SHIP)
    if what == "began":
        row = ShipRow(row.job, row.epoch, row.tag, row.peer, boot_id, now.wall, now.mono)
    elif what != "shipped":
        told |= {"ended": now.wall, "outcome": "done" if what in _DONE else "failed"}
        if "seconds" not in told:
            told["seconds"] = _lasted(row.began_mono, row.boot_id, boot_id, now)
    return replace(row, **told)


def _lasted(began: float | None, boot_then: str, boot_now: str, now: Moment) -> float | None:
    """A monotonic difference; it means something within one boot only."""
    if began is None or boot_then != boot_now or now.mono < began:
        return None
    return now.mono - began


def _chosen(fields: Mapping[str, object], known: frozenset[str]) -> dict[str, Any]:
    return {name: _value(name, fields[name]) for name in sorted(known) if fields.get(name) is not None}


def _value(name: str, value: object) -> object:
    if name in _TEXT:
        return str(value)
    if not isinstance(value, (int, float)) or not math.isfinite(value) or abs(value) >= 2**63:
        raise ValueError(f"{name} is no usable number: {value!r}")
    return int(value) if name in _WHOLE else float(value)
