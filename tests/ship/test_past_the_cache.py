"""Whole chunks go past the page cache where that can be done, and the same bytes arrive where it cannot."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from pathlib import Path

import pytest

from outlast.daemon.checkpoint.place import no_step
from outlast.daemon.ship import arrival
from outlast.daemon.ship.arrival import Arrivals
from outlast.daemon.ship.protocol import Chunk
from outlast.wire.digests import CHUNK
from outlast.wire.manifest import PART_SUFFIX

TAIL = 1000


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of what was written through the page cache."""
    lengths: list[int] = []
    advise = os.posix_fadvise

    def noted(fd: int, offset: int, length: int, advice: int) -> None:
        lengths.append(length)
        advise(fd, offset, length, advice)

    monkeypatch.setattr(os, "posix_fadvise", noted)
    return lengths


def _taken(folder: Path, room: memoryview) -> bytes:
    """What is in the part after two whole chunks and a short one, last one first."""
    arrivals = Arrivals(folder / "step-1", no_step)
    for index, size in ((2, TAIL), (1, CHUNK), (0, CHUNK)):
        room[:size] = bytes([index + 1]) * size
        arrivals.take(Chunk(1, "step-1", "a/w.pt", index, size, ""), room[:size])
    return (folder / "step-1" / ("a/w.pt" + PART_SUFFIX)).read_bytes()


WHOLE = b"\1" * CHUNK + b"\2" * CHUNK + b"\3" * TAIL


def test_whole_chunks_of_an_aligned_buffer_leave_the_cache_alone(tmp_path: Path, cached: list[int]) -> None:
    """Only the tail, which no disk takes as it is, is written through it."""
    assert _taken(tmp_path, memoryview(mmap.mmap(-1, CHUNK))) == WHOLE
    assert cached == [TAIL]


def test_a_buffer_that_is_not_aligned_is_written_through_the_cache(tmp_path: Path, cached: list[int]) -> None:
    """As one fetched back from a peer: the disk refuses it, or takes it; the bytes are the same."""
    assert _taken(tmp_path, memoryview(bytearray(CHUNK + 1))[1:]) == WHOLE
    assert set(cached) <= {TAIL, CHUNK}


def test_a_file_system_without_direct_writes_gets_the_same_bytes(
    tmp_path: Path, cached: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says EINVAL to the flag, as FUSE does."""
    real = fcntl.fcntl

    def refused(fd: int, command: int, value: int = 0) -> int:
        if command == fcntl.F_SETFL and value & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(fd, command, value)

    monkeypatch.setattr(fcntl, "fcntl", refused)
    assert _taken(tmp_path, memoryview(mmap.mmap(-1, CHUNK))) == WHOLE
    assert cached == [TAIL, CHUNK, CHUNK]


def test_a_full_disk_is_not_taken_for_one_without_direct_writes(
    tmp_path: Path, cached: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason reaches the sender."""

    def full(_fd: int, _data: memoryview, _offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        arrival._write(os.open(tmp_path / "x", os.O_CREAT | os.O_RDWR), memoryview(bytes(CHUNK)), 0)
    assert cached == []
