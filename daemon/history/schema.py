"""The tables, and how a file is opened: made new, brought up to date, or set aside when unreadable."""

from __future__ import annotations

import contextlib
import datetime as dt
import sqlite3
import time
from pathlib import Path

# For somebody else's lock.
WAIT_S = 5.0
# Tells our files from other people's SQLite files ("OUTL").
APPLICATION_ID = 0x4F55544C

_FIRST = """
CREATE TABLE spells (
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, region TEXT NOT NULL, zone TEXT NOT NULL,
    zone_id TEXT NOT NULL, instance_type TEXT NOT NULL, instance_id TEXT NOT NULL, spot INTEGER,
    node TEXT NOT NULL, boot_id TEXT NOT NULL, drill INTEGER NOT NULL, began REAL NOT NULL,
    began_mono REAL NOT NULL, heartbeat REAL NOT NULL, alive_s REAL NOT NULL DEFAULT 0,
    ended REAL, cause TEXT NOT NULL DEFAULT 'running');
CREATE INDEX spells_open ON spells (node) WHERE ended IS NULL;
CREATE TABLE notices (
    spell INTEGER NOT NULL, id TEXT NOT NULL, episode INTEGER NOT NULL, source TEXT NOT NULL,
    action TEXT NOT NULL, detail TEXT NOT NULL, first_seen REAL NOT NULL, deadline REAL NOT NULL,
    deadline_mono REAL NOT NULL, boot_id TEXT NOT NULL, withdrawn REAL, drill INTEGER NOT NULL,
    PRIMARY KEY (spell, id, episode)) WITHOUT ROWID;
CREATE TABLE hints (
    spell INTEGER NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL,
    detail TEXT NOT NULL, first_seen REAL NOT NULL, PRIMARY KEY (spell, id)) WITHOUT ROWID;
CREATE TABLE losses (
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, region TEXT NOT NULL, zone TEXT NOT NULL,
    zone_id TEXT NOT NULL, instance_type TEXT NOT NULL, victim TEXT NOT NULL, seen_by TEXT NOT NULL,
    at REAL NOT NULL, drill INTEGER NOT NULL);
CREATE TABLE flushes (
    id TEXT NOT NULL, job TEXT NOT NULL, boot_id TEXT NOT NULL, reason TEXT, asked REAL, asked_mono REAL,
    agreed REAL, saved REAL, committed REAL, failed REAL, seconds REAL, step INTEGER, tag TEXT,
    bytes INTEGER, outcome TEXT, because TEXT, PRIMARY KEY (job, id)) WITHOUT ROWID;
CREATE TABLE ships (
    job TEXT NOT NULL, epoch INTEGER NOT NULL, tag TEXT NOT NULL, peer TEXT NOT NULL, boot_id TEXT NOT NULL,
    began REAL, began_mono REAL, ended REAL, seconds REAL, bytes INTEGER, outcome TEXT, because TEXT,
    PRIMARY KEY (job, epoch, tag, peer)) WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, wall REAL NOT NULL, mono REAL NOT NULL, job TEXT NOT NULL, kind TEXT NOT NULL,
    episode TEXT NOT NULL, fields TEXT NOT NULL);
CREATE INDEX events_wall ON events (wall);
"""

_SECOND = """
CREATE TABLE launches (
    id TEXT NOT NULL PRIMARY KEY, provider TEXT NOT NULL, region TEXT NOT NULL, zone TEXT NOT NULL,
    instance_type TEXT NOT NULL, at REAL NOT NULL, asked INTEGER NOT NULL, got INTEGER NOT NULL,
    "by" TEXT NOT NULL, rev INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE prices (
    provider TEXT NOT NULL, region TEXT NOT NULL, zone TEXT NOT NULL, instance_type TEXT NOT NULL,
    kind TEXT NOT NULL, at REAL NOT NULL, micro_usd INTEGER NOT NULL, rev INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (provider, region, zone, instance_type, kind, at)) WITHOUT ROWID;
CREATE TABLE restores (
    job TEXT NOT NULL, id TEXT NOT NULL, epoch INTEGER NOT NULL, tag TEXT NOT NULL, place TEXT NOT NULL,
    began REAL NOT NULL, seconds REAL, step INTEGER, outcome TEXT, rev INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (job, id)) WITHOUT ROWID;
ALTER TABLE spells ADD COLUMN rev INTEGER NOT NULL DEFAULT 0;
ALTER TABLE notices ADD COLUMN rev INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hints ADD COLUMN rev INTEGER NOT NULL DEFAULT 0;
ALTER TABLE losses ADD COLUMN rev INTEGER NOT NULL DEFAULT 0;
ALTER TABLE flushes ADD COLUMN rev INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ships ADD COLUMN rev INTEGER NOT NULL DEFAULT 0;
-- One row: who writes this file, and the number of the latest change.
CREATE TABLE self (writer TEXT NOT NULL, rev INTEGER NOT NULL);
INSERT INTO self VALUES (lower(hex(randomblob(6))), 0);
"""

# Every new or changed row bears the number of its latest change. A heartbeat alone is no change.
_COUNTED = {
    "spells": ("cause, ended, provider, region, zone, zone_id, instance_type, instance_id", "id"),
    "notices": ("action, deadline, withdrawn", "spell, id, episode"),
    "hints": ("kind", "spell, id"),
    "losses": ("at", "id"),
    "flushes": ("outcome", "job, id"),
    "ships": ("outcome", "job, epoch, tag, peer"),
    "launches": ("asked, got", "id"),
    "prices": ("micro_usd", "provider, region, zone, instance_type, kind, at"),
    "restores": ("outcome", "job, id"),
}


def _triggers() -> str:
    script = ""
    for table, (columns, key) in _COUNTED.items():
        for name, when in (("new", "INSERT"), ("changed", f"UPDATE OF {columns}")):
            same = " AND ".join(f"{column} = NEW.{column}" for column in key.split(", "))
            script += f"CREATE TRIGGER {table}_{name} AFTER {when} ON {table} BEGIN"
            script += " UPDATE self SET rev = rev + 1;"
            script += f" UPDATE {table} SET rev = (SELECT rev FROM self) WHERE {same}; END;"  # noqa: S608 - names of our own
        script += f"CREATE INDEX {table}_rev ON {table} (rev);"
    return script


# Entry n brings a file of version n to n + 1. A released entry is never changed.
MIGRATIONS: tuple[str, ...] = (_FIRST, _SECOND + _triggers())
VERSION = len(MIGRATIONS)


class NotOursError(Exception):
    """The file is no history of ours, or a newer Outlast's. The text is the reason."""


def connect(path: Path | None) -> sqlite3.Connection:
    """Open or make the file, durable and up to date; None keeps it in memory.

    Raises NotOursError, sqlite3.DatabaseError for a file that cannot be read as a history, and
    sqlite3.OperationalError or OSError where the disk is the trouble.
    """
    db = sqlite3.connect(path or ":memory:", timeout=WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        _check(db)
        _to_wal(db)
        db.execute("PRAGMA synchronous = FULL")
        migrate(db)
    except BaseException:
        db.close()
        raise
    return db


def read_only(path: Path) -> sqlite3.Connection:
    """Open an existing file for reading. Raises as ``connect`` does; NotOursError also for an empty file."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0, isolation_level=None)
    try:
        _check(db)
        if _pragma(db, "user_version") == 0:
            raise NotOursError("it is empty")
    except BaseException:
        db.close()
        raise
    return db


def migrate(db: sqlite3.Connection, migrations: tuple[str, ...] = MIGRATIONS) -> None:
    """Bring the file to the newest version, each step whole or not at all.

    Safe beside other processes that do the same: what is missing is looked at under the lock.
    """
    while _pragma(db, "user_version") < len(migrations):
        try:
            db.execute("BEGIN IMMEDIATE")
            version = _pragma(db, "user_version")
            if version < len(migrations):
                script = f"{migrations[version]}PRAGMA user_version = {version + 1};"
                script += f"PRAGMA application_id = {APPLICATION_ID};" if version == 0 else ""
                _execute(db, script)
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise


def _to_wal(db: sqlite3.Connection) -> None:
    """The first to open a file changes its journal; whoever comes meanwhile is not made to wait by SQLite."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _execute(db: sqlite3.Connection, script: str) -> None:
    """Run each statement within the open transaction, which ``executescript`` would commit first."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


def version_of(db: sqlite3.Connection) -> int:
    """Which of the formats the open file has."""
    return _pragma(db, "user_version")


def set_aside(path: Path, wall: float) -> Path:
    """Rename an unreadable file, and what SQLite keeps beside it, out of the way. Returns the new name."""
    stamp = dt.datetime.fromtimestamp(wall, dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    target = path.with_name(f"{path.name}.corrupt-{stamp}")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.corrupt-{stamp}-{number}")
    path.rename(target)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(target.with_name(target.name + suffix))
    return target


def _check(db: sqlite3.Connection) -> None:
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables and _pragma(db, "application_id") != APPLICATION_ID:
        raise NotOursError("it is another program's database")
    version = _pragma(db, "user_version")
    if version > VERSION:
        raise NotOursError(f"it has format {version} of a newer Outlast; this one reads up to {VERSION}")
    found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {found}")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
