"""Histories in the format of the first release, and rows of every table."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import strategies as st

from outlast.daemon.history.rows import (
    FlushRow,
    HintRow,
    LaunchRow,
    LossRow,
    NoticeRow,
    Pool,
    PriceRow,
    RestoreRow,
    Rows,
    ShipRow,
    Spell,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
WORD = st.sampled_from(["a", "b", "c\n", "ü\x1b[31m"])
TIME = st.floats(0, 1e10, allow_nan=False)
MAYBE_TIME = st.none() | TIME
WHOLE = st.integers(0, 2**53)
MAYBE_WHOLE = st.none() | WHOLE
OUTCOME = st.sampled_from([None, "committed", "failed", "done"])
POOL = st.builds(Pool, WORD, TEXT, TEXT, TEXT)
MAYBE_WORD = st.none() | WORD

SPELL = st.builds(
    Spell,
    *(st.integers(0, 3), POOL, TEXT, TEXT, TEXT, st.booleans(), TIME, TIME, TIME, MAYBE_TIME),
    *(st.sampled_from(["running", "interruption", "outbid", "user-stop"]), MAYBE_TIME),
)
NOTICE = st.builds(
    NoticeRow, st.integers(0, 3), WORD, st.integers(1, 2), TEXT, TEXT, TIME, TIME, MAYBE_TIME, st.booleans()
)
HINT = st.builds(HintRow, st.integers(0, 3), WORD, TEXT, TEXT, TIME)
LOSS = st.builds(LossRow, POOL, WORD, st.sampled_from(["peer", "victim"]), TIME, st.booleans())
LAUNCH = st.builds(LaunchRow, WORD, POOL, TIME, WHOLE, WHOLE, TEXT)
PRICE = st.builds(PriceRow, POOL, st.sampled_from(["spot", "on_demand"]), st.sampled_from([0.0, 1.0]), WHOLE)
FLUSH = st.builds(
    FlushRow,
    job=WORD,
    id=WORD,
    reason=MAYBE_WORD,
    asked=MAYBE_TIME,
    committed=MAYBE_TIME,
    seconds=MAYBE_TIME,
    bytes=MAYBE_WHOLE,
    outcome=OUTCOME,
)
SHIP = st.builds(
    ShipRow,
    job=WORD,
    epoch=st.integers(0, 2),
    tag=WORD,
    peer=TEXT,
    began=MAYBE_TIME,
    seconds=MAYBE_TIME,
    bytes=MAYBE_WHOLE,
    outcome=OUTCOME,
)
RESTORE = st.builds(
    RestoreRow,
    *(WORD, WORD, st.integers(0, 2), TEXT, st.sampled_from(["own", "replica"]), TIME),
    *(MAYBE_TIME, MAYBE_WHOLE, OUTCOME),
)
ROWS = st.builds(
    Rows,
    *(st.lists(each, max_size=4).map(tuple) for each in (SPELL, NOTICE, HINT, LOSS, LAUNCH, PRICE)),
    *(st.lists(each, max_size=4).map(tuple) for each in (FLUSH, SHIP, RESTORE)),
)


# The statements of the first release, word for word: they stay as they are.
FIRST_RELEASE = """
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
PRAGMA user_version = 1;
PRAGMA application_id = 1330992204;
"""
FIRST_ROWS = """
INSERT INTO spells VALUES (7, 'aws', 'us-east-1', 'us-east-1a', 'use1-az4', 'p4d.24xlarge', 'i-1', 1, 'a',
    'boot-1', 0, 1000.0, 5.0, 4600.0, 3600.0, 4600.0, 'interruption');
INSERT INTO notices VALUES (7, 'n', 1, 'imds', 'terminate', '', 4500.0, 4620.0, 3505.0, 'boot-1', NULL, 0);
INSERT INTO hints VALUES (7, 'h', 'rebalance', 'imds', '', 4000.0);
INSERT INTO losses VALUES (1, 'aws', 'us-east-1', 'us-east-1b', '', 'p4d.24xlarge', 'i-2', 'peer', 50.0, 0);
INSERT INTO flushes VALUES ('n@1', 'gpt', 'boot-1', 'notice', 4501.0, 3506.0, 4502.0, 4510.0, 4512.0, NULL,
    11.0, 120, 't120', 1000, 'committed', NULL);
INSERT INTO ships VALUES ('gpt', 1, 't120', 'p:22', 'boot-1', 4512.0, 3517.0, 4517.0, 5.0, 1000,
    'done', NULL);
INSERT INTO events VALUES (1, 4500.0, 3505.0, '', 'notice_seen', 'n@1', '{}');
"""


@pytest.fixture
def first_file(tmp_path: Path) -> Path:
    """A history that the first release wrote: one stay, interrupted, with a flush and its transfer."""
    import sqlite3

    path = tmp_path / "first.sqlite3"
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(FIRST_RELEASE)
    db.executescript(FIRST_ROWS)
    db.close()
    return path
