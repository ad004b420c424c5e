"""Reading history files for counting, one or several, without ever writing to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from outlast.daemon.history import schema
from outlast.daemon.history.rows import Event, Rows
from outlast.daemon.history.tables import TABLES, gathered
from outlast.daemon.history.timeline import read_events

T = TypeVar("T")


class UnreadableError(Exception):
    """A file cannot be read as a history. The text says what, why and what to do."""


def read_rows(path: Path) -> Rows:
    """All of one file that counting needs. Raises UnreadableError."""
    return _reading(path, rows_of)


def read_file_events(path: Path, since: float, limit: int) -> list[Event]:
    """The latest ``limit`` events from UTC ``since`` on. Raises UnreadableError."""
    return _reading(path, lambda db: read_events(db, since, limit))


def rows_of(db: sqlite3.Connection) -> Rows:
    """All rows of one instant; a table that the file's format does not have yet is empty.

    Raises sqlite3.Error.
    """
    db.execute("BEGIN")
    try:
        version = schema.version_of(db)
        return gathered(
            {
                table.name: [table.from_sql(row) for row in db.execute(table.select)]
                for table in TABLES
                if table.since <= version
            }
        )
    finally:
        db.execute("ROLLBACK")


def _reading(path: Path, read: Callable[[sqlite3.Connection], T]) -> T:
    if not path.is_file():
        raise UnreadableError(
            f"There is no history at {path}. It is made by 'outlast run'; name the file if it lies elsewhere."
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
