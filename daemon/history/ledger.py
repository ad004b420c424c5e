"""Launch attempts, prices and restores; and what of the file is new since a number of change."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from outlast.daemon.history.counting import PoolCounts, count
from outlast.daemon.history.reading import rows_of
from outlast.daemon.history.rows import LaunchRow, PriceRow, RestoreStep, Rows
from outlast.daemon.history.tables import BY_NAME, TABLES, gathered
from outlast.daemon.history.timeline import Timeline

# Events are kept this long, and the latest of them for ever: a clock that jumps ahead must not erase them.
EVENTS_KEPT_S = 90 * 86400.0
EVENTS_ALWAYS = 10_000
# Rows in one answer of ``changed``; the rest comes with the next.
MOST_CHANGED = 5_000

_LAUNCH = """
INSERT INTO launches (id, provider, region, zone, instance_type, at, asked, got, "by")
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET asked = max(asked, excluded.asked), got = max(got, excluded.got)"""
_PRICE_THEN = (
    "SELECT micro_usd FROM prices WHERE provider = ? AND region = ? AND zone = ? AND instance_type = ?"
    " AND kind = ? AND at <= ? ORDER BY at DESC LIMIT 1"
)
_PRICE = (
    "INSERT OR REPLACE INTO prices (provider, region, zone, instance_type, kind, at, micro_usd)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_RESTORE_BEGAN = (
    "INSERT OR IGNORE INTO restores (job, id, epoch, tag, place, began) VALUES (?, ?, ?, ?, ?, ?)"
)
_RESTORE_ENDED = (
    "UPDATE restores SET seconds = ?, step = ?, outcome = ? WHERE job = ? AND id = ? AND outcome IS NULL"
)
_PRUNE = "DELETE FROM events WHERE wall < ? AND id <= (SELECT max(id) FROM events) - ?"
# What a peer needs to know of a node that may soon be gone.
LAST_WORDS = frozenset({"spells", "notices", "hints", "losses"})


@dataclass(frozen=True, slots=True)
class Changed:
    """Rows new or changed after ``since``, up to the change ``rev`` of the file of ``writer``.

    The open spells are always among them, with their latest heartbeat, and count for nothing in ``new``.
    """

    writer: str
    since: int
    rev: int
    new: int
    rows: Rows


class Ledger(Timeline):
    """Each call is idempotent under its id; a price is kept only where it differs from the one before."""

    def launch(self, row: LaunchRow) -> None:
        """An attempt to launch. Told again under its id, the larger figures count."""
        self._write(lambda db: put_launch(db, row))

    def price(self, row: PriceRow) -> None:
        """A price as of ``row.at``."""
        pool = row.pool
        key = (pool.provider, pool.region, pool.zone, pool.instance_type, row.kind, row.at)

        def write(db: sqlite3.Connection) -> None:
            before = db.execute(_PRICE_THEN, key).fetchone()
            if before is None or before[0] != row.micro_usd:
                db.execute(_PRICE, (*key, row.micro_usd))

        self._write(write)

    def restore_event(self, job: str, restore_id: str, what: RestoreStep, **fields: Any) -> None:
        """A restore began (epoch, tag, place), came to its first step, or failed (seconds, step)."""
        now = self._now()
        if what == "began":
            values = (job, restore_id, fields["epoch"], fields["tag"], fields["place"], now.wall)
            self._write(lambda db: db.execute(_RESTORE_BEGAN, values))
            return
        outcome = "done" if what == "stepped" else "failed"
        ended = (fields.get("seconds"), fields.get("step"), outcome, job, restore_id)
        self._write(lambda db: db.execute(_RESTORE_ENDED, ended))

    def prune_events(self) -> None:
        """Drop events older than 90 days, but never the latest ten thousand."""
        before = self._now().wall - EVENTS_KEPT_S
        self._write(lambda db: db.execute(_PRUNE, (before, EVENTS_ALWAYS)))

    def writer(self) -> str | None:
        """What tells this file from every other; None while it cannot be read."""
        return self._read(lambda db: str(db.execute("SELECT writer FROM self").fetchone()[0]), None)

    def pool_of(self, spell: int) -> PoolCounts | None:
        """What this file knows of the pool that ``spell`` is a stay in; None while it cannot be read."""
        now = self._now().wall
        return self._read(lambda db: _pool_of(db, spell, now), None)

    def changed(self, writer: str, since: int, *, last_words: bool = False) -> Changed | None:
        """What is new in this file; None while it cannot be read.

        ``since`` counts only if ``writer`` is this file's own: a file that was made anew is new as a whole.
        ``last_words`` leaves out what a peer does not need to know of a node that may soon be gone.
        """
        tables = LAST_WORDS if last_words else frozenset(BY_NAME)
        return self._read(lambda db: _changed(db, writer, since, tables), None)


def _pool_of(db: sqlite3.Connection, spell: int, now: float) -> PoolCounts | None:
    rows = rows_of(db)
    pool = next((s.pool for s in rows.spells if s.id == spell), None)
    if pool is None:
        return None
    return next((c for c in count(rows, now).pools if c.pool == pool), PoolCounts(pool))


def put_launch(db: sqlite3.Connection, row: LaunchRow) -> None:
    """Write one launch attempt. Raises sqlite3.Error."""
    pool = row.pool
    place = (pool.provider, pool.region, pool.zone, pool.instance_type)
    db.execute(_LAUNCH, (row.id, *place, row.at, row.asked, row.got, row.by))


def _changed(db: sqlite3.Connection, writer: str, since: int, tables: frozenset[str]) -> Changed:
    db.execute("BEGIN")
    try:
        own, rev = db.execute("SELECT writer, rev FROM self").fetchone()
        since = since if writer == own else -1
        upto = min(rev, _bound(db, since, rev))
        found: dict[str, list[Any]] = {}
        new = 0
        for table in (t for t in TABLES if t.name in tables):
            rows = db.execute(f"{table.select} WHERE rev > ? AND rev <= ?", (since, upto)).fetchall()
            new += len(rows)
            if table.name == "spells":
                rows += db.execute(
                    f"{table.select} WHERE ended IS NULL AND NOT (rev > ? AND rev <= ?)", (since, upto)
                ).fetchall()
            found[table.name] = [table.from_sql(row) for row in rows]
        # Last words leave rows out: the next answer has to begin where this one did.
        return Changed(own, since, upto if len(tables) == len(TABLES) else since, new, gathered(found))
    finally:
        db.execute("ROLLBACK")


def _bound(db: sqlite3.Connection, since: int, rev: int) -> int:
    """The change up to which there are no more rows than one answer may hold."""
    union = " UNION ALL ".join(f"SELECT rev FROM {table.name} WHERE rev > :since" for table in TABLES)  # noqa: S608 - names of our own
    row = db.execute(
        f"SELECT rev FROM ({union}) ORDER BY rev LIMIT 1 OFFSET :most",  # noqa: S608 - names of our own
        {"since": since, "most": MOST_CHANGED},
    ).fetchone()
    # Rows from before changes were counted share the number 0 and go together.
    return rev if row is None or row[0] == 0 else int(row[0])
