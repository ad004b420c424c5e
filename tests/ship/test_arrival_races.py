"""Sessions that meet at one file: no note without its bytes, no byte into another replica's file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
from tests.ship.deliver import NOTHING, deliver, offer, put

from outlast.daemon.checkpoint.place import no_step
from outlast.daemon.ship import arrival
from outlast.daemon.ship.arrival import Arrivals
from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.protocol import Commit
from outlast.daemon.ship.words import RefusedError
from outlast.providers.base import SystemClock
from outlast.simulations.saved import committed
from outlast.wire.digests import CHUNK
from outlast.wire.manifest import FileEntry
from outlast.wire.store import Committed, verify

TAG = "global_step100"


@pytest.fixture
def item(tmp_path: Path) -> Committed:
    """A checkpoint with files of several chunks."""
    return committed(tmp_path / "store", 100, shard_bytes=3 * CHUNK)


@pytest.fixture
def entry(item: Committed) -> FileEntry:
    """Its largest file."""
    return max(item.manifest.files, key=lambda each: each.size)


@pytest.fixture
def arrivals(replicas: Path) -> Arrivals:
    """Where it arrives."""
    return Arrivals(replicas / "epoch-1" / ".staging" / TAG, no_step)


def _meanwhile(replicas: Path, at: str, work: Callable[[], None]) -> tuple[Landing, list[threading.Thread]]:
    """A session at whose first step ``at`` a thread begins with ``work``, which may have to wait for it."""
    begun: list[threading.Thread] = []

    def step(name: str) -> None:
        if name == at and not begun:
            begun.append(threading.Thread(target=work))
            begun[0].start()
            begun[0].join(0.3)

    return Landing(replicas, "gpt", SystemClock(), step=step), begun


def _go_on(landing: Landing, item: Committed) -> None:
    """Send what is missing and nothing else, as a sender does, and commit."""
    wanted = offer(landing, item)
    for entry in item.manifest.files:
        for first, many in wanted.get(entry.path, []):
            put(landing, item, entry, range(first, first + many))
    landing.answer(Commit(item.epoch, item.tag), NOTHING)


def test_a_file_that_is_linked_is_never_written_to(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """Linked from an older replica for one save of a tag, it has another size in the next: that travels."""
    old = committed(tmp_path / "old", 90, shard_bytes=2 * CHUNK, seed=1)
    deliver(landing, old)
    assert offer(landing, committed(tmp_path / "first", 100, shard_bytes=2 * CHUNK, seed=1)) == {}
    anew = committed(tmp_path / "anew", 100, shard_bytes=3 * CHUNK, seed=2)
    for _ in range(2):
        with suppress(RefusedError):  # of the same size and other bytes: found by the commit
            deliver(landing, anew)
    assert verify(replicas / "epoch-1" / anew.tag) == []
    assert verify(replicas / "epoch-1" / old.tag) == []


def test_a_chunk_does_not_reach_a_linked_file(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """One sent too early arrives when the file has been linked already: its bytes may be other ones."""
    old = committed(tmp_path / "old", 90, shard_bytes=2 * CHUNK, seed=1)
    deliver(landing, old)
    assert offer(landing, committed(tmp_path / "new", 100, shard_bytes=2 * CHUNK, seed=1)) == {}
    early = committed(tmp_path / "early", 100, shard_bytes=2 * CHUNK, seed=2)
    put(landing, early, early.manifest.files[0], [0])
    assert verify(replicas / "epoch-1" / old.tag) == []


def test_what_is_dropped_while_a_chunk_is_written_leaves_no_note(
    replicas: Path, arrivals: Arrivals, item: Committed, entry: FileEntry
) -> None:
    """A session finds the disk full and drops the file between bytes and note of another one's chunk."""

    def drop() -> None:
        arrivals.drop(entry.path)
        put(Landing(replicas, "gpt", SystemClock()), item, entry, [2])

    landing, other = _meanwhile(replicas, "chunk written", drop)
    put(landing, item, entry, [1])
    other[0].join()
    _go_on(Landing(replicas, "gpt", SystemClock()), item)
    assert verify(replicas / "epoch-1" / TAG) == []


def test_notes_without_their_part_are_not_believed_of_the_next_one(
    landing: Landing, replicas: Path, arrivals: Arrivals, item: Committed, entry: FileEntry
) -> None:
    """A kill in the middle of dropping a file, by an earlier release, may have left them."""
    put(landing, item, entry, [0, 1])
    (arrivals.staging / f"{entry.path}.outlast-part").unlink()
    put(landing, item, entry, [2])
    _go_on(landing, item)
    assert verify(replicas / "epoch-1" / TAG) == []


def test_a_chunk_that_comes_twice_does_not_replace_the_file(
    landing: Landing, replicas: Path, item: Committed, entry: FileEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file gets its name between the look for it and the opening of its part, which is then made anew."""
    for each in item.manifest.files:
        put(landing, item, each)
    locked = arrival._locked

    def late(part: Path, *, make: bool = False) -> AbstractContextManager[int | None]:
        monkeypatch.undo()
        offer(Landing(replicas, "gpt", SystemClock()), item)
        return locked(part, make=make)

    monkeypatch.setattr(arrival, "_locked", late)
    with pytest.raises(RefusedError, match="just arrived"):
        put(landing, item, entry, [1])
    _go_on(landing, item)
    assert verify(replicas / "epoch-1" / TAG) == []


def test_notes_of_a_part_are_not_believed_of_a_file_beside_it(
    landing: Landing, replicas: Path, arrivals: Arrivals, item: Committed, entry: FileEntry
) -> None:
    """An rsync that broke off leaves a shorter file under the name, where chunks had come before."""
    put(landing, item, entry, [0, 1])
    (arrivals.staging / entry.path).write_bytes((item.path / entry.path).read_bytes()[:1000])
    _go_on(landing, item)
    assert verify(replicas / "epoch-1" / TAG) == []


def test_notes_beyond_a_shorter_file_go_with_their_bytes(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """Two saves of one tag in turn: the shorter one is named in between, the longer one is committed."""
    long = committed(tmp_path / "long", 100, shard_bytes=3 * CHUNK, seed=1)
    short = committed(tmp_path / "short", 100, shard_bytes=2 * CHUNK, seed=2)
    for entry in long.manifest.files:
        put(landing, long, entry)
    for entry in short.manifest.files:
        put(landing, short, entry)
    assert offer(landing, short) == {}
    for entry in long.manifest.files:
        put(landing, long, entry, range(min(3, -(-entry.size // CHUNK))))
    _go_on(landing, long)
    assert verify(replicas / "epoch-1" / TAG) == []
