"""Reading history files for counting, one or several, without ever writing to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from outlast.daemon.history import schema
from outlast.daemon.history.rows import Event, HintRow, LossRow, NoticeRow, Pool, Rows, Spell
from outlast.daemon.history.timeline import read_events

T = TypeVar("T")

_SPELLS = (
    "SELECT id, provider, region, coalesce(nullif(zone_id, ''), zone), instance_type, instance_id, node,"
    " boot_id, drill, began, heartbeat, alive_s, ended, cause FROM spells"
)
_NOTICES = "SELECT spell, id, episode, action, source, first_seen, deadline, withdrawn, drill FROM notices"
_HINTS = "SELECT spell, id, kind, source, first_seen FROM hints"
_LOSSES = (
    "SELECT provider, region, coalesce(nullif(zone_id, ''), zone), instance_type, victim, seen_by, at, drill"
    " FROM losses"
)


class UnreadableError(Exception):
    """A file cannot be read as a history. The text says what, why and what to do."""


def read_rows(path: Path) -> Rows:
    """All of one file that counting needs. Raises UnreadableError."""
    return _reading(path, rows_of)


def read_file_events(path: Path, since: float, limit: int) -> list[Event]:
    """The latest ``limit`` events from UTC ``since`` on. Raises UnreadableError."""
    return _reading(path, lambda db: read_events(db, since, limit))


def rows_of(db: sqlite3.Connection) -> Rows:
    """All rows of one instant. Raises sqlite3.Error."""
    db.execute("BEGIN")
    try:
        return Rows(
            spells=tuple(_spell(row) for row in db.execute(_SPELLS)),
            notices=tuple(_notice(row) for row in db.execute(_NOTICES)),
            hints=tuple(HintRow(*row) for row in db.execute(_HINTS)),
            losses=tuple(_loss(row) for row in db.execute(_LOSSES)),
        )
    finally:
        db.execute("ROLLBACK")


def _reading(path: Path, read: Callable[[sqlite3.Connection], T]) -> T:
    if not path.is_file():
        raise UnreadableError(
            f"There is no history at {path}. It is made by 'outlast run'; name another file with --db."
        )
    try:
        db = schema.read_only(path)
        try:
            return read(db)
        finally:
            db.close()
    except sqlite3.OperationalError as exc:
        raise UnreadableError(
            f"{path} cannot be opened: {exc}. Run this as the daemon's user or as root."
        ) from exc
    except (sqlite3.DatabaseError, schema.NotOursError) as exc:
        raise UnreadableError(
            f"{path} is no readable history: {exc}. The daemon sets such a file aside at its next start,"
            " as *.corrupt-<time>, and begins a new one."
        ) from exc


def _spell(row: tuple[Any, ...]) -> Spell:
    number, *pool, instance_id, node, boot_id, drill, began, heartbeat, alive_s, ended, cause = row
    return Spell(
        number, Pool(*pool), instance_id, node, boot_id, bool(drill), began, heartbeat, alive_s, ended, cause
    )


def _notice(row: tuple[Any, ...]) -> NoticeRow:
    spell, name, episode, action, source, first_seen, deadline, withdrawn, drill = row
    return NoticeRow(spell, name, episode, action, source, first_seen, deadline, withdrawn, bool(drill))


def _loss(row: tuple[Any, ...]) -> LossRow:
    *pool, victim, seen_by, at, drill = row
    return LossRow(Pool(*pool), victim, seen_by, at, bool(drill))
