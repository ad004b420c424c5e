"""Flushes, ships and the general timeline: what a job went through, and how long it took."""

from __future__ import annotations

import json
import math
import sqlite3
import statistics
from collections.abc import Mapping
from dataclasses import astuple

from outlast.daemon.history.notices import Notices
from outlast.daemon.history.progress import flush_after, ship_after
from outlast.daemon.history.rows import Event, FlushRow, FlushStep, Measured, Moment, ShipRow, ShipStep

# A job's speed is the median of this many latest measurements.
RECENT = 9

_FLUSH = (
    "SELECT job, id, boot_id, reason, asked, asked_mono, agreed, saved, committed, failed, seconds, step,"
    " tag, bytes, outcome, because FROM flushes WHERE job = ? AND id = ?"
)
_PUT_FLUSH = (
    "INSERT OR REPLACE INTO flushes (job, id, boot_id, reason, asked, asked_mono, agreed, saved, committed,"
    " failed, seconds, step, tag, bytes, outcome, because)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SHIP = (
    "SELECT job, epoch, tag, peer, boot_id, began, began_mono, ended, seconds, bytes, outcome, because"
    " FROM ships WHERE job = ? AND epoch = ? AND tag = ? AND peer = ?"
)
_PUT_SHIP = (
    "INSERT OR REPLACE INTO ships (job, epoch, tag, peer, boot_id, began, began_mono, ended, seconds, bytes,"
    " outcome, because) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PUT_EVENT = "INSERT INTO events (wall, mono, job, kind, episode, fields) VALUES (?, ?, ?, ?, ?, ?)"
_EVENTS = (
    "SELECT id, wall, mono, job, kind, episode, fields FROM events WHERE wall >= ? ORDER BY id DESC LIMIT ?"
)
_FLUSH_SPEEDS = (
    "SELECT seconds FROM flushes WHERE job = ? AND outcome = 'committed' AND seconds >= 0"
    " ORDER BY committed DESC LIMIT ?"
)
_SHIP_SPEEDS = (
    "SELECT bytes / seconds FROM ships WHERE job = ? AND outcome = 'done' AND seconds > 0 AND bytes > 0"
    " ORDER BY ended DESC LIMIT ?"
)


class Timeline(Notices):
    """Each step is recorded once, under the ids it is told; repeating a step changes nothing."""

    def flush_event(self, job: str, flush_id: str, what: FlushStep, **fields: object) -> None:
        """A flush came to ``what``. Fields: reason, step, tag, bytes, because, seconds (in all)."""
        now, boot_id = self._now(), self.boot_id

        def write(db: sqlite3.Connection) -> None:
            found = db.execute(_FLUSH, (job, flush_id)).fetchone()
            row = FlushRow(*found) if found else FlushRow(job, flush_id)
            db.execute(_PUT_FLUSH, astuple(flush_after(row, what, boot_id, now, fields)))

        self._write(write)

    def ship_event(self, job: str, epoch: int, tag: str, peer: str, what: ShipStep, **fields: object) -> None:
        """A transfer came to ``what``. Fields: bytes (really sent), seconds, because."""
        now, boot_id = self._now(), self.boot_id

        def write(db: sqlite3.Connection) -> None:
            found = db.execute(_SHIP, (job, epoch, tag, peer)).fetchone()
            row = ShipRow(*found) if found else ShipRow(job, epoch, tag, peer)
            db.execute(_PUT_SHIP, astuple(ship_after(row, what, boot_id, now, fields)))

        self._write(write)

    def event(self, kind: str, job: str = "", episode: str = "", **fields: object) -> None:
        """One line of the timeline. Fields become JSON; what JSON does not know becomes text."""
        values = _event_values(self._now(), job, kind, episode, fields)
        self._write(lambda db: db.execute(_PUT_EVENT, values))

    def events(self, since: float = 0.0, limit: int = 1000) -> list[Event]:
        """The latest ``limit`` events from UTC ``since`` on, in the order they were recorded."""
        return self._read(lambda db: read_events(db, since, limit), [])

    def measured(self, job: str) -> Measured:
        """What this job's latest flushes and ships took: medians, so that one bad one does not count."""
        return self._read(lambda db: _measured(db, job), Measured(None, None))


def read_events(db: sqlite3.Connection, since: float, limit: int) -> list[Event]:
    """As ``Timeline.events``, from any open file. Raises sqlite3.Error."""
    rows = db.execute(_EVENTS, (since, limit)).fetchall()
    return [
        Event(number, wall, mono, job, kind, episode, _fields(text))
        for number, wall, mono, job, kind, episode, text in reversed(rows)
    ]


def _event_values(
    now: Moment, job: str, kind: str, episode: str, fields: Mapping[str, object]
) -> tuple[object, ...]:
    plain = {name: _finite(value) for name, value in fields.items()}
    body = json.dumps(plain, separators=(",", ":"), default=str)
    return (now.wall, now.mono, job, kind, episode, body)


def _finite(value: object) -> object:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _fields(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"unreadable": text}
    return value if isinstance(value, dict) else {"unreadable": text}


def _measured(db: sqlite3.Connection, job: str) -> Measured:
    flushes = db.execute(_FLUSH_SPEEDS, (job, RECENT)).fetchall()
    ships = db.execute(_SHIP_SPEEDS, (job, RECENT)).fetchall()
    return Measured(_median(flushes), _median(ships))


def _median(rows: list[tuple[float]]) -> float | None:
    return statistics.median(value for (value,) in rows) if rows else None
