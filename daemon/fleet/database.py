"""One SQLite file for many nodes: their histories' rows, and imported spells beside them. Good to a thousand.

The file is a history like a node's own, so every reading command takes it. Spells that no daemon recorded
lie in a table of their own, ``imported``, since they have fewer columns.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from pathlib import Path
from types import MappingProxyType
from typing import Any

from outlast.daemon.fleet.flat import CAUSE_NUMBER, Flat, Gather, derived
from outlast.daemon.history import schema
from outlast.daemon.history.merging import merge
from outlast.daemon.history.reading import UnreadableError
from outlast.daemon.history.rows import LaunchRow, Pool, PriceRow, Rows
from outlast.daemon.history.tables import TABLES, Table, gathered
from outlast.daemon.rates.table import CAUSES, Launch, Price

_IMPORTED = """
CREATE TABLE IF NOT EXISTS imported (
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, region TEXT NOT NULL, zone TEXT NOT NULL,
    instance_type TEXT NOT NULL, origin TEXT NOT NULL, node INTEGER NOT NULL, began REAL NOT NULL,
    ended REAL NOT NULL, cause TEXT NOT NULL, known INTEGER NOT NULL, hinted INTEGER NOT NULL)"""
_SELECT = (
    "SELECT id, provider, region, zone, instance_type, origin, node, began, ended, cause, known, hinted"
    " FROM imported"
)
# The later version counts; of two that end together the one with a cause: the order of ``flat.newest``.
_PUT = """
INSERT INTO imported VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET node = excluded.node, began = excluded.began, ended = excluded.ended,
    cause = excluded.cause, known = excluded.known, hinted = excluded.hinted
WHERE (round((excluded.ended - excluded.began) * 1000), excluded.cause <> 'running', excluded.cause,
        excluded.hinted, NOT excluded.known)
    > (round((ended - began) * 1000), cause <> 'running', cause, hinted, NOT known)"""
# Columns that do not travel: what another machine's monotonic clock said, and words for its operator.
_AT_HOME: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "spells": {"zone_id": ""},
        "notices": {"detail": "", "deadline_mono": 0.0, "boot_id": ""},
        "hints": {"detail": ""},
        "losses": {"zone_id": ""},
        "flushes": {"boot_id": ""},
        "ships": {"boot_id": ""},
    }
)
# How the column of a file is called that a row's field is read from.
_CALLED = {"up_s": "began_mono"}


class MergeError(Exception):
    """Nothing was merged. The text says what, why and what to do."""


def merge_database(path: Path, rows: Rows, spells: Flat) -> int:
    """Add to the file what is new, all of it or nothing. Returns the rows added or changed. MergeError."""
    with _writing(path) as db:
        before = _rows(db)
        changed = sum(_write(db, table, before, merge(before, rows)) for table in TABLES)
        db.execute(_IMPORTED)
        count = db.total_changes
        db.executemany(_PUT, _flat_rows(spells))
        return changed + db.total_changes - count


def read_imported(path: Path) -> Flat:
    """The imported spells of a file; none where it has no such table. Raises UnreadableError."""
    gather = Gather()
    try:
        with contextlib.closing(schema.read_only(path)) as db:
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'imported'").fetchone():
                return gather.flat()
            for row in db.execute(_SELECT):
                number, *pool, origin, node, began, ended, cause, known, hinted = row
                gather.put(
                    (Pool(*pool), "probe" if origin == "probe" else "held"),
                    number,
                    node,
                    (began, ended),
                    (cause if cause in CAUSE_NUMBER else "user-stop", bool(known), bool(hinted)),
                )
    except (sqlite3.Error, schema.NotOursError, TypeError) as exc:
        raise UnreadableError(f"{path} is no readable history: {exc}. Merge it anew.") from exc
    return gather.flat()


def rows_of(launches: Iterable[Launch], prices: Iterable[Price]) -> Rows:
    """Imported launches and prices as the history keeps them."""
    return Rows(
        launches=tuple(
            LaunchRow(
                f"imported-{derived(one.pool, 'launch', str(one.at), str(one.asked)):x}",
                one.pool,
                one.at,
                one.asked,
                one.got,
                "import",
            )
            for one in launches
        ),
        prices=tuple(PriceRow(one.pool, one.kind, one.at, one.micro_usd) for one in prices),
    )


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[sqlite3.Connection]:
    """One writer at a time; another one waits for a while."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(_opened(path)) as db:
            db.execute("PRAGMA busy_timeout = 60000")
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
    except schema.NotOursError as exc:
        raise MergeError(f"{path} is no history: {exc}. Name another file to merge into.") from exc
    except (sqlite3.Error, OSError) as exc:
        raise MergeError(f"{path} cannot be written: {exc}. Name another file, or make room.") from exc


def _opened(path: Path) -> sqlite3.Connection:
    """The file, made if it is not there. Two that make it at once would both make its tables."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # no such locks on some network file systems: as good as it gets
            fcntl.flock(folder, fcntl.LOCK_EX)
        return schema.connect(path)
    finally:
        os.close(folder)


def _rows(db: sqlite3.Connection) -> Rows:
    return gathered(
        {table.name: [table.from_sql(row) for row in db.execute(table.select)] for table in TABLES}
    )


def _write(db: sqlite3.Connection, table: Table, before: Rows, after: Rows) -> int:
    """Write the rows of one table that are not there as they are."""
    there = set(getattr(before, table.name))
    fresh = [row for row in getattr(after, table.name) if row not in there]
    home = _AT_HOME.get(table.name, {})
    names = [_CALLED.get(name, name) for name in table.columns]
    columns = ", ".join(f'"{name}"' for name in (*names, *home))
    marks = ", ".join("?" for _ in (*names, *home))
    values = [(*_values(table, row), *home.values()) for row in fresh]
    db.executemany(f"INSERT OR REPLACE INTO {table.name} ({columns}) VALUES ({marks})", values)  # noqa: S608 - names of our own
    return len(fresh)


def _values(table: Table, row: Any) -> tuple[Any, ...]:
    """The row's fields, a pool's four in its place."""
    pool = astuple(row.pool) if table.pooled else ()
    names = ("provider", "region", "zone", "instance_type")
    return tuple(
        pool[names.index(name)] if table.pooled and name in names else _plain(getattr(row, name))
        for name in table.columns
    )


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _flat_rows(flat: Flat) -> Iterator[tuple[Any, ...]]:
    c = flat.columns
    for i in range(len(flat)):
        place = int(c.pool[i])
        yield (
            int(flat.id[i]),
            *astuple(c.pools[place]),
            c.origin[place],
            int(c.node[i]),
            float(c.began[i]),
            float(c.ended[i]),
            CAUSES[int(c.cause[i])],
            int(c.known[i]),
            int(c.hinted[i]),
        )
