"""The file: made, continued, set aside, refused by the disk, killed in mid-write."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.history import schema
from outlast.daemon.history.db import History
from outlast.daemon.history.reading import UnreadableError, read_rows
from outlast.daemon.history.rows import Degraded
from outlast.providers.base import Action, Identity, Notice

if TYPE_CHECKING:
    from tests.conftest import ManualClock

IDENTITY = Identity("gcp", "us-central1", "us-central1-a", "", "a3-highgpu-8g", "i-1")


@pytest.fixture
def history(tmp_path: Path, manual_clock: ManualClock) -> Iterator[History]:
    """An empty history on disk."""
    opened = History.open(tmp_path / "history.sqlite3", manual_clock)
    yield opened
    opened.close()


def fill_up(history: History) -> None:
    """The disk has no page left to give."""
    pages = history._db.execute("PRAGMA page_count").fetchone()[0]
    history._db.execute(f"PRAGMA max_page_count = {pages}")


def make_room(history: History) -> None:
    history._db.execute("PRAGMA max_page_count = 1000000")


def trouble(history: History) -> Degraded | None:
    """Asked anew: mypy would take an attribute to stay as it was last asserted."""
    return history.degraded


def notice(deadline: float, name: str = "n-1") -> Notice:
    return Notice(name, Action.STOP, deadline, "metadata")


def test_a_restart_on_the_same_boot_continues_the_spell(history: History, manual_clock: ManualClock) -> None:
    """The time at risk includes the seconds in which no daemon ran."""
    spell = history.begin_spell(IDENTITY, "a", "boot-1")
    manual_clock.advance(100)
    assert history.begin_spell(IDENTITY, "a", "boot-1") == spell
    manual_clock.advance(50)
    history.heartbeat(spell)
    (row,) = read_rows(history.path).spells
    assert (row.alive_s, row.ended, row.cause) == (150.0, None, "running")


def test_an_instance_learnt_late_is_the_same_spell(history: History) -> None:
    """A daemon that starts before the endpoint answers fills in who it is afterwards."""
    spell = history.begin_spell(Identity("gcp"), "a", "boot-1")
    assert history.begin_spell(IDENTITY, "a", "boot-1") == spell
    (row,) = read_rows(history.path).spells
    assert (row.instance_id, row.pool.zone) == ("i-1", "us-central1-a")


@pytest.mark.parametrize(("noticed", "cause"), [(False, "silent-loss"), (True, "interruption")])
def test_a_spell_left_open_ends_at_its_last_heartbeat(
    history: History, manual_clock: ManualClock, noticed: bool, cause: str
) -> None:
    """After a reboot the old spell is closed where it was last seen, with the cause its notices tell."""
    first = history.begin_spell(IDENTITY, "a", "boot-1")
    manual_clock.advance(60)
    history.heartbeat(first)
    last = manual_clock.wall()
    history.notice_seen(first, notice(manual_clock.monotonic() + 5, "gone"), last + 5, "boot-1")
    history.notice_withdrawn(first, "gone")
    if noticed:
        history.notice_seen(first, notice(manual_clock.monotonic() + 30), last + 30, "boot-1")
    manual_clock.advance(500)
    manual_clock.mono = 12.0
    second = history.begin_spell(IDENTITY, "a", "boot-2")
    rows = {row.id: row for row in read_rows(history.path).spells}
    assert (rows[first].ended, rows[first].cause, rows[first].alive_s) == (last, cause, 60.0)
    assert rows[second].cause == "running"


def test_the_first_end_counts_and_a_new_start_is_a_new_spell(history: History) -> None:
    """An ended spell is not reopened: a daemon stopped by its user and started again begins another."""
    spell = history.begin_spell(IDENTITY, "a", "boot-1")
    history.end_spell(spell, "user-stop")
    history.end_spell(spell, "interruption")
    history.heartbeat(spell)
    assert history.begin_spell(IDENTITY, "a", "boot-1") != spell
    assert [row.cause for row in read_rows(history.path).spells if row.id == spell] == ["user-stop"]


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4080])
def test_a_corrupt_file_is_set_aside_and_kept(
    tmp_path: Path, manual_clock: ManualClock, content: bytes
) -> None:
    """What cannot be read is renamed with a time, a new history begins, and a sentence says so."""
    path = tmp_path / "history.sqlite3"
    path.write_bytes(content)
    history = History.open(path, manual_clock)
    history.event("started")
    assert history.degraded is None
    assert len(history.events()) == 1
    (kept,) = tmp_path.glob("*.corrupt-20270115T080000Z")
    assert kept.read_bytes() == content
    assert kept.name in history.set_aside
    history.close()


def test_a_page_overwritten_in_the_middle_is_found_at_the_start(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    """Damage that opening alone would not meet is found before anything is written beside it."""
    path = tmp_path / "history.sqlite3"
    history = History.open(path, manual_clock)
    for number in range(300):
        history.event("filler", number=number, text="x" * 200)
    history.close()
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    history = History.open(path, manual_clock)
    assert "damaged" in history.set_aside
    assert history.events() == []
    history.close()


def test_a_wall_clock_set_back_lets_no_spell_end_before_it_began(
    history: History, manual_clock: ManualClock
) -> None:
    """The length is monotonic time; the end is never before the beginning."""
    spell = history.begin_spell(IDENTITY, "a", "boot-1")
    manual_clock.advance(50)
    manual_clock.step_wall(-7200)
    history.end_spell(spell, "job-done")
    (row,) = read_rows(history.path).spells
    assert (row.ended, row.alive_s) == (row.began, 50.0)


def test_foreign_and_newer_files_are_set_aside(tmp_path: Path, manual_clock: ManualClock) -> None:
    """Another program's database is not written to, nor one of a format we do not know."""
    path = tmp_path / "history.sqlite3"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    History.open(path, manual_clock).close()
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    newer.close()
    history = History.open(path, manual_clock)
    assert "newer Outlast" in history.set_aside
    history.close()
    assert len(list(tmp_path.glob("*.corrupt-*"))) == 2


def test_a_migration_is_whole_or_not_at_all(tmp_path: Path, manual_clock: ManualClock) -> None:
    """A step that fails leaves the version and the tables of before; a good one keeps the rows."""
    path = tmp_path / "history.sqlite3"
    history = History.open(path, manual_clock)
    history.event("kept")
    history.close()
    db = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError):
        schema.migrate(db, (*schema.MIGRATIONS, "CREATE TABLE more (x); CREATE TABLE events (x);"))
    assert db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'more'").fetchone() == (0,)
    schema.migrate(db, (*schema.MIGRATIONS, "ALTER TABLE events ADD COLUMN node TEXT;"))
    assert db.execute("SELECT kind, node FROM events").fetchall() == [("kept", None)]
    assert db.execute("PRAGMA user_version").fetchone() == (schema.VERSION + 1,)
    db.close()


def test_a_full_disk_degrades_and_loses_nothing(history: History, manual_clock: ManualClock) -> None:
    """Records wait with their times while there is no room, and are written once there is."""
    spell = history.begin_spell(IDENTITY, "a", "boot-1")
    fill_up(history)
    before = manual_clock.wall()
    for number in range(200):
        history.event("filler", number=number, text="x" * 400)
    assert history.degraded is not None
    assert str(history.path) in history.degraded.because
    first = history.notice_seen(spell, notice(manual_clock.monotonic() + 120), before + 120, "boot-1")
    manual_clock.advance(5)
    again = history.notice_seen(spell, notice(manual_clock.monotonic() + 120), before + 125, "boot-1")
    assert first == again, "the deadline holds though it is not on the disk"
    make_room(history)
    history.heartbeat(spell)
    assert trouble(history) is None
    assert (history.waiting, history.missed) == (0, 0)
    assert [event.fields["number"] for event in history.events()] == list(range(200))
    assert {event.wall for event in history.events()} == {before}
    assert [n.deadline for n in history.open_notices(spell)] == [first]


def test_a_folder_that_cannot_be_written_keeps_the_history_in_memory(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    """The daemon works without its state folder; it says that the history will not outlive it."""
    (tmp_path / "state").write_text("a file where a folder should be")
    history = History.open(tmp_path / "state" / "history.sqlite3", manual_clock)
    spell = history.begin_spell(IDENTITY, "a", "boot-1")
    deadline = history.notice_seen(spell, notice(2000.0), manual_clock.wall() + 1000, "boot-1")
    assert deadline == 2000.0
    assert history.degraded is not None
    assert "in memory only" in history.degraded.because
    history.close()


def test_a_record_that_makes_no_sense_does_not_hold_up_the_rest(history: History) -> None:
    """A number no database holds is refused and counted; what comes after is written."""
    history.flush_event("job", "f-1", "committed", bytes=float("nan"))
    history.event("after", odd="\ud800")
    history.event("last", never=float("inf"))
    assert history.missed >= 1
    assert history.events()[-1].fields == {"never": "inf"}
    assert history.degraded is None


def test_reading_tells_a_missing_file_from_a_damaged_one(tmp_path: Path) -> None:
    """Each has its own sentence, and reading changes neither."""
    with pytest.raises(UnreadableError, match="There is no history at"):
        read_rows(tmp_path / "none.sqlite3")
    bad = tmp_path / "bad.sqlite3"
    bad.write_bytes(b"x" * 5000)
    with pytest.raises(UnreadableError, match="sets such a file aside"):
        read_rows(bad)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.sqlite3"]


WRITER = """
import sys
from pathlib import Path
from outlast.daemon.history.db import History
from outlast.providers.base import Action, Identity, Notice, SystemClock
clock = SystemClock()
history = History.open(Path(sys.argv[1]), clock)
spell = history.begin_spell(Identity("aws", instance_id="i-1"), "a", "boot-1")
number = 0
while True:
    history.event("written", number=number)
    history.heartbeat(spell)
    number += 1
    print(number, flush=True)
"""


@pytest.mark.parametrize("after", [1, 7, 40])
def test_kill_9_in_mid_write_keeps_all_that_was_acknowledged(tmp_path: Path, after: int) -> None:
    """The file stays readable, and every record whose call had returned is in it."""
    path = tmp_path / "history.sqlite3"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert writer.stdout is not None
    try:
        acknowledged = 0
        while acknowledged < after:
            acknowledged = int(writer.stdout.readline())
        time.sleep(0.001 * after)  # somewhere in the middle of a later write
    finally:
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.stdout.close()
        writer.wait(10)
    acknowledged = max([acknowledged, *map(int, rest)])
    (spell,) = read_rows(path).spells
    assert spell.cause == "running"
    db = schema.read_only(path)
    numbers = [
        json.loads(fields)["number"] for (fields,) in db.execute("SELECT fields FROM events ORDER BY id")
    ]
    db.close()
    assert numbers in (list(range(acknowledged)), list(range(acknowledged + 1)))


def test_a_file_made_by_many_at_once_is_made_once(tmp_path: Path) -> None:
    """The daemon and a command may both be the first: each finds the whole format, and none fails."""
    for attempt in range(5):
        path = tmp_path / f"{attempt}.sqlite3"
        barrier = threading.Barrier(6)

        def open_it(path: Path = path, barrier: threading.Barrier = barrier) -> tuple[int, str]:
            barrier.wait(10)
            with contextlib.closing(schema.connect(path)) as db:
                return schema.version_of(db), db.execute("SELECT writer FROM self").fetchone()[0]

        with ThreadPoolExecutor(6) as pool:
            found = {future.result(30) for future in [pool.submit(open_it) for _ in range(6)]}
        assert len(found) == 1
        assert found.pop()[0] == schema.VERSION
