"""Segments: what is new since the last one, whole after any crash, harmless whatever the bytes."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.history.conftest import ROWS

from outlast.daemon.history import segments
from outlast.daemon.history.counting import count
from outlast.daemon.history.db import History
from outlast.daemon.history.ledger import Changed
from outlast.daemon.history.merging import merge
from outlast.daemon.history.reading import UnreadableError, read_rows
from outlast.daemon.history.rows import LaunchRow, Pool, PriceRow, Rows
from outlast.daemon.history.segments import look, pack, read_folder, read_segment, unpack, write
from outlast.providers.base import Action, Hint, Identity, Notice

if TYPE_CHECKING:
    from tests.conftest import ManualClock

IDENTITY = Identity("aws", "us-east-1", "us-east-1a", "use1-az4", "p4d.24xlarge", "i-0123456789abcdef0")
POOL = Pool("aws", "us-east-1", "use1-az4", "p4d.24xlarge")


@pytest.fixture
def history(tmp_path: Path, manual_clock: ManualClock) -> Iterator[History]:
    """An empty history on disk."""
    opened = History.open(tmp_path / "history.sqlite3", manual_clock)
    yield opened
    opened.close()


def changed(history: History, writer: str = "", since: int = -1, *, last_words: bool = False) -> Changed:
    """What is new; the file can be read."""
    found = history.changed(writer, since, last_words=last_words)
    assert found is not None
    return found


def busy_hour(history: History, clock: ManualClock) -> int:
    """A spell with a flush and a transfer each five minutes, a launch and a price."""
    spell = history.begin_spell(IDENTITY, "node-1", "8c1f9e0e-0a43-4d6c-9a8e-6d8f3f1f2d10")
    for number in range(12):
        flush, tag = f"interval-{number}-5f3a", f"global_step{number * 100}"
        for what in ("asked", "agreed", "saved", "committed"):
            clock.advance(5)
            history.flush_event("gpt", flush, what, tag=tag, step=number * 100, bytes=14_000_000_000)
        history.ship_event("gpt", 3, tag, "10.0.0.7:22", "began")
        clock.advance(280)
        history.ship_event("gpt", 3, tag, "10.0.0.7:22", "verified", bytes=14_000_000_000)
    history.launch(LaunchRow("l-1", POOL, clock.wall(), 16, 13, "launcher"))
    history.price(PriceRow(POOL, "spot", clock.wall(), 12_345_600))
    history.heartbeat(spell)
    return spell


@settings(max_examples=60, deadline=None)
@given(rows=ROWS)
def test_a_segment_gives_back_every_row(rows: Rows) -> None:
    """Whatever names and figures a row holds, it survives the file; the same rows are the same bytes."""
    data = pack("n", Changed("w", -1, 5, 1, rows), 3)
    segment = unpack(data)
    assert segment.rows == rows
    assert segment.notes == ()
    assert (segment.header.node, segment.header.seq, segment.header.rev) == ("n", 3, 5)
    assert pack("n", Changed("w", -1, 5, 1, rows), 3) == data


def test_segments_hold_what_is_new_and_add_up_to_the_file(
    history: History, manual_clock: ManualClock, tmp_path: Path
) -> None:
    """Each row travels once until it changes, and the segments together say what the file says."""
    spell = busy_hour(history, manual_clock)
    first = changed(history)
    write(tmp_path / "stats", "node-1", first, 1)
    again = changed(history, first.writer, first.rev)
    assert again.new == 0
    assert [row.id for row in again.rows.spells] == [spell], "the running stay comes with every segment"
    history.hint_seen(spell, Hint("h-1", "rebalance", "imds"))
    history.launch(LaunchRow("l-1", POOL, manual_clock.wall(), 16, 16))
    manual_clock.advance(600)
    history.heartbeat(spell)
    second = changed(history, first.writer, first.rev)
    assert (second.new, len(second.rows.flushes), len(second.rows.launches)) == (2, 0, 1)
    write(tmp_path / "stats", "node-1", second, 2)
    read = read_folder(tmp_path / "stats")
    assert read.notes == ()
    assert read.rows == merge(read_rows(history.path))
    assert count(read.rows, manual_clock.wall()) == count(read_rows(history.path), manual_clock.wall())


def test_last_words_are_less_than_a_kilobyte_and_lose_nothing(
    history: History, manual_clock: ManualClock, tmp_path: Path
) -> None:
    """At a notice the peer learns of the stay and its notice; the rest follows in the next segment."""
    spell = busy_hour(history, manual_clock)
    deadline = manual_clock.monotonic() + 120
    history.notice_seen(spell, Notice("i-1@x", Action.TERMINATE, deadline, "imds"), manual_clock.wall(), "b")
    last = changed(history, last_words=True)
    path = write(tmp_path, "node-1", last, 1)
    assert path.stat().st_size < 1000
    rows = read_segment(path)
    assert (len(rows.spells), len(rows.notices), len(rows.flushes)) == (1, 1, 0)
    assert look(path).header.rev == -1
    assert len(changed(history, last.writer, look(path).header.rev).rows.flushes) == 12


def test_a_file_made_anew_is_new_as_a_whole(
    history: History, manual_clock: ManualClock, tmp_path: Path
) -> None:
    """After a corrupt file was set aside the counter begins again, and nothing is left unsent."""
    busy_hour(history, manual_clock)
    before = changed(history)
    history.close()
    history.path.write_bytes(b"garbage" * 1000)
    fresh = History.open(history.path, manual_clock)
    assert fresh.set_aside
    busy_hour(fresh, manual_clock)
    after = changed(fresh, before.writer, before.rev)
    assert after.writer != before.writer
    assert len(after.rows.flushes) == 12
    assert segments.node_folder("n", after.writer) != segments.node_folder("n", before.writer)
    fresh.close()


def test_many_rows_come_in_several_segments(
    history: History, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long history is sent in bounded pieces that lose and repeat nothing."""
    monkeypatch.setattr("outlast.daemon.history.ledger.MOST_CHANGED", 10)
    for number in range(35):
        history.launch(LaunchRow(f"l-{number}", POOL, float(number), 1, 1))
    since, pieces, writer = -1, [], ""
    while (piece := changed(history, writer, since)).new:
        pieces.append([row.id for row in piece.rows.launches])
        since, writer = piece.rev, piece.writer
    assert max(map(len, pieces)) <= 11
    assert sorted(name for piece in pieces for name in piece) == sorted(f"l-{n}" for n in range(35))


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=200) | st.binary(max_size=200).map(gzip.compress))
def test_bytes_that_are_no_segment_are_refused(data: bytes) -> None:
    """Any bytes give a reason, and nothing worse."""
    with pytest.raises(ValueError, match=r"header|format"):
        unpack(data)


@settings(max_examples=80, deadline=None)
@given(rows=ROWS, cut=st.floats(0.2, 1), flips=st.lists(st.floats(0.2, 0.999), max_size=3))
def test_a_torn_or_altered_segment_gives_true_rows_or_says_so(
    rows: Rows, cut: float, flips: list[float]
) -> None:
    """What comes before the damage is kept; a segment that lost rows never says that it is whole."""
    data = bytearray(pack("n", Changed("w", 0, 5, 1, rows), 3))
    for place in flips:
        data[int(place * len(data))] ^= 0x55
    try:
        segment = unpack(bytes(data[: int(cut * len(data))]))
    except ValueError:
        return
    if segment.rows != rows:
        assert segment.notes
    if not flips:
        assert set(segment.rows.launches) <= set(rows.launches)


@pytest.mark.parametrize(
    "line",
    [
        {
            "table": "spells",
            "id": -1,
            "began": 0,
            "heartbeat": 0,
            "alive_s": 0,
            "drill": 0,
            "cause": "running",
        },
        {"table": "spells", "id": 1, "began": 0, "heartbeat": 0, "alive_s": -5, "drill": 0, "cause": "host"},
        {"table": "spells", "id": 1, "began": 0, "heartbeat": 0, "alive_s": 1, "drill": 0, "cause": "x"},
        {"table": "launches", "id": "l", "at": 1e300, "asked": 1, "got": 1},
        {"table": "launches", "id": "l", "at": float("nan"), "asked": 1, "got": 1},
        {"table": "launches", "id": "l", "at": 1, "asked": True, "got": 1},
        {"table": "prices", "kind": "spot", "at": 1, "micro_usd": 1.5},
        {"table": "prices", "kind": "guess", "at": 1, "micro_usd": 1},
        {"table": "losses", "victim": "", "at": 1, "drill": 0},
        {"table": "losses", "victim": "v" * 2000, "at": 1, "drill": 0},
        ["table"],
        None,
    ],
)
def test_a_row_out_of_bounds_is_left_out_and_said_so(line: object) -> None:
    """Another machine's figures are checked one by one; good rows beside them are kept."""
    good = {"table": "launches", "id": "ok", "at": 1, "asked": 1, "got": 0, "unknown": [1]}
    head = {"format": 1, "node": "n", "seq": 1, "writer": "w", "rev": 1}
    newer = {"table": "of a newer release"}
    text = "\n".join(map(json.dumps, [head, newer, line, good])) + "\n"
    segment = unpack(gzip.compress(text.encode()))
    assert [row.id for row in segment.rows.launches] == ["ok"]
    assert segment.notes == ("1 lines are no rows and were left out",)
    assert segment.rows == Rows(launches=segment.rows.launches)


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file that unpacks to gigabytes ends at the bound."""
    monkeypatch.setattr(segments, "MOST_UNPACKED", 1024 * 1024)
    head = json.dumps({"format": 1, "node": "n", "seq": 1, "writer": "w", "rev": 1}).encode() + b"\n"
    many = unpack(gzip.compress(head + b"{}\n" * 2_000_000))
    assert "unpacks to too much" in "".join(many.notes)
    long = unpack(gzip.compress(head + b"x" * 8_000_000))
    assert "too long" in "".join(long.notes)


def test_a_folder_with_strangers_is_read_around_them(
    history: History, manual_clock: ManualClock, tmp_path: Path
) -> None:
    """One bad file costs its own rows and is named; where there is no folder that is said."""
    busy_hour(history, manual_clock)
    good = write(tmp_path / "stats", "node-1", changed(history), 1)
    bad = good.with_name("00000002.jsonl.gz")
    bad.write_bytes(b"\x1f\x8bnothing")
    read = read_folder(tmp_path / "stats")
    assert len(read.rows.flushes) == 12
    assert len(read.notes) == 1
    assert str(bad) in read.notes[0]
    assert segments.newest(good.parent) == (2, look(good).header)
    with pytest.raises(UnreadableError, match="no folder"):
        read_folder(tmp_path / "nowhere")
    assert segments.newest(tmp_path / "nowhere") == (0, None)


DYING = """
import os, sys
from pathlib import Path
from outlast.daemon.history import segments
from outlast.daemon.history.db import History
from outlast.providers.base import SystemClock

left = int(sys.argv[2])

def step(name):
    global left
    if left == 0:
        os._exit(99)
    left -= 1

home = Path(sys.argv[1])
history = History.open(home / "history.sqlite3", SystemClock())
changed = history.changed("", -1)
seq, header = segments.newest(home / "stats" / segments.node_folder("n", changed.writer))
changed = history.changed(header.writer, header.rev) if header else changed
step("read")
segments.write(home / "stats", "n", changed, seq + 1, step)
step("named")
"""


def test_kill_9_at_each_step_of_writing_leaves_the_old_or_the_new(
    history: History, manual_clock: ManualClock, tmp_path: Path
) -> None:
    """Wherever the writer dies, the next start writes what is missing and nothing is read half."""
    busy_hour(history, manual_clock)
    whole = merge(read_rows(history.path))
    outcomes = []
    for left in range(4):
        home = tmp_path / f"life-{left}"
        home.mkdir()
        (home / "history.sqlite3").write_bytes(b"")
        source = History.open(home / "history.sqlite3", manual_clock)
        history._db.backup(source._db)
        source.close()
        command = [sys.executable, "-c", DYING, str(home)]
        outcomes.append(subprocess.run([*command, str(left)], check=False).returncode)
        (home / "stats").mkdir(exist_ok=True)
        assert read_folder(home / "stats").rows in (Rows(), whole)
        assert subprocess.run([*command, "99"], check=False).returncode == 0
        after = read_folder(home / "stats")
        assert (after.rows, after.notes) == (whole, ())
    assert outcomes == [99, 99, 99, 0]


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(ROWS, min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_merging_is_free_of_order_and_repetition(parts: list[Rows], seed: int) -> None:
    """Any order, any grouping, any number of times: one result."""
    once = merge(*parts)
    mixed = [*parts, *parts]
    random.Random(seed).shuffle(mixed)
    assert merge(*mixed) == once
    assert merge(merge(*mixed[:2]), *mixed) == once
    assert merge(once, once) == once


def test_a_file_of_the_first_release_is_read_as_it_is(first_file: Path) -> None:
    """Reading needs no migration and changes not a byte."""
    before = first_file.read_bytes()
    rows = read_rows(first_file)
    assert first_file.read_bytes() == before
    (spell,), (flush,), (ship,) = rows.spells, rows.flushes, rows.ships
    assert (spell.cause, spell.up_s, spell.pool.zone) == ("interruption", 5.0, "use1-az4")
    assert (flush.seconds, flush.outcome, ship.bytes) == (11.0, "committed", 1000)
    assert (rows.launches, rows.prices, rows.restores) == ((), (), ())


def test_a_file_of_the_first_release_goes_on(first_file: Path, manual_clock: ManualClock) -> None:
    """The daemon brings it up to date, keeps its rows, and its first segment holds them all."""
    before = read_rows(first_file)
    history = History.open(first_file, manual_clock)
    assert not history.set_aside
    assert history.events()[0].kind == "notice_seen"
    first = changed(history)
    assert merge(first.rows) == merge(before)
    history.launch(LaunchRow("l", POOL, 1.0, 2, 1))
    assert changed(history, first.writer, first.rev).rows == Rows(launches=read_rows(first_file).launches)
    history.close()
