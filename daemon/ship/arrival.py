"""Chunks arriving: checked in memory, written to a part file, noted; and the file named once all are here.

Several sessions may bring chunks of one file, in any order, and one whose connection died unnoticed may still
be at it. Bytes and note of a chunk are written under the part's lock, and only while it still is the part: a
file that has its name is never written to again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from outlast.daemon.checkpoint.place import SHEETS_SUFFIX, Step
from outlast.daemon.ship import sheet
from outlast.daemon.ship.protocol import DAMAGED, Chunk
from outlast.daemon.ship.words import RefusedError
from outlast.wire.digests import CHUNK, chunks_in, digest
from outlast.wire.manifest import PART_SUFFIX, FileEntry

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class SenderGoneError(Exception):
    """The sender went away before all bytes of a chunk had come."""


class Source(Protocol):
    """Where a chunk's bytes come from."""

    def read(self, most: int) -> bytes:
        """The next 1 to ``most`` bytes, or none at the end."""
        ...

    def readinto(self, buffer: memoryview) -> int:
        """Fill 1 or more bytes of ``buffer``, and return how many; 0 at the end."""
        ...


class Arrivals:
    """The files arriving in one staging folder."""

    def __init__(self, staging: Path, step: Step) -> None:
        self.staging = staging
        self._sheets = sheets_of(staging)
        self._step = step

    def take(self, chunk: Chunk, data: memoryview) -> None:
        """Keep one chunk. Raises RefusedError where its digest differs or its file is complete."""
        found = hashlib.sha256(data).digest()
        if chunk.sha256 and found.hex() != chunk.sha256:
            raise RefusedError(DAMAGED, f"{chunk.path}: chunk {chunk.index} was altered on its way")
        part, notes = self._part(chunk.path), self._sheets / chunk.path
        if os.path.lexists(self.staging / chunk.path) and not self._reopen(chunk, found):
            return
        with _locked(part, make=True) as fd:
            if fd is None or self._overtook(fd, chunk.path):
                raise RefusedError(DAMAGED, f"{chunk.path} has just arrived: offer it again")
            if not os.fstat(fd).st_size:
                notes.unlink(missing_ok=True)  # of bytes that went with an earlier part
            sheet.forget(notes, chunk.index)
            _write(fd, data, CHUNK * chunk.index)
            self._step("chunk written")
            sheet.note(notes, chunk.index, found)
        self._step("chunk noted")

    def digests(self, path: str) -> list[bytes]:
        """What is here of a file, by chunk; an empty digest for each one that is not."""
        file = self.staging / path
        return sheet.noted(self._sheets / path, file if os.path.lexists(file) else self._part(path))

    def arrived(self, entry: FileEntry) -> bool:
        """Whether a file that has its name got it from ``finish``: its digest was checked as it came."""
        if os.path.lexists(self._part(entry.path)):
            return False  # the notes are of the part
        digests = sheet.noted(self._sheets / entry.path, self.staging / entry.path)
        return entry.chunk == CHUNK and _matches(digests, entry)

    def finish(self, entry: FileEntry) -> bool:
        """Make a file durable and give it its name, if all of it is here and is what ``entry`` says."""
        part = self._part(entry.path)
        with _locked(part) as fd:
            if fd is None or not self._whole(fd, part, entry):
                return False
            sheet.cut(self._sheets / entry.path, chunks_in(entry.size))
            os.ftruncate(fd, entry.size)
            os.fsync(fd)
            self._step("file synced")
            part.replace(self.staging / entry.path)
        self._step("file named")
        return True

    def _whole(self, fd: int, part: Path, entry: FileEntry) -> bool:
        digests = sheet.noted(self._sheets / entry.path, part)
        if entry.chunk == CHUNK:
            return _matches(digests, entry)
        # A manifest with other chunks than ours: the bytes are looked at once more.
        whole = sheet.digest_of(digests, chunks_in(entry.size)) is not None
        return whole and os.fstat(fd).st_size == entry.size and digest(part, entry.chunk) == entry.sha256

    def reopen(self, path: str) -> None:
        """Take a file's name away again: it is not what is offered now, but some of its chunks may be.

        Not those of a link, which would be written to in a replica that holds the file too, nor those of a
        file beside its part, as the notes are of the part.
        """
        file, part = self.staging / path, self._part(path)
        if not os.path.lexists(file):
            return
        # Held, as a rename would take the part from whoever is writing to it.
        with _locked(part, make=True) as fd, suppress(FileNotFoundError):
            if fd is None:
                return
            fresh = not os.fstat(fd).st_size
            if fresh and file.lstat().st_nlink == 1:
                file.rename(part)
                return
            if fresh:
                part.unlink()
            file.unlink()

    def drop(self, path: str) -> None:
        """Forget what is here of a file that has not got its name, once nobody is writing to it.

        The notes go first: without their bytes they would be believed of those of the next part.
        """
        part = self._part(path)
        with _locked(part) as fd:
            (self._sheets / path).unlink(missing_ok=True)
            if fd is not None:
                part.unlink(missing_ok=True)

    def _reopen(self, chunk: Chunk, found: bytes) -> bool:
        """For a chunk of a file that has its name: whether it is another one, of a tag saved anew."""
        here = self.digests(chunk.path)
        if chunk.index < len(here) and here[chunk.index] == found:
            return False
        self.reopen(chunk.path)
        return True

    def _overtook(self, fd: int, path: str) -> bool:
        """Whether the file got its name since it was looked for; a part made after that goes again."""
        if not os.path.lexists(self.staging / path):
            return False
        if not os.fstat(fd).st_size:
            self._part(path).unlink(missing_ok=True)
        return True

    def _part(self, path: str) -> Path:
        return self.staging / (path + PART_SUFFIX)


def sheets_of(staging: Path) -> Path:
    """The folder with the notes of what has arrived in ``staging``."""
    return staging.with_name(staging.name + SHEETS_SUFFIX)


def receive(source: Source, room: memoryview) -> memoryview:
    """Fill ``room`` and return it. Raises SenderGoneError."""
    view = room
    while view:
        count = source.readinto(view)
        if not count:
            raise SenderGoneError
        view = view[count:]
    return room


def _matches(digests: list[bytes], entry: FileEntry) -> bool:
    return sheet.digest_of(digests, chunks_in(entry.size)) == entry.sha256


@contextmanager
def _locked(part: Path, *, make: bool = False) -> Iterator[int | None]:
    """The part, open and this session's alone; None where there is none, or it has just got its name."""
    try:
        fd = sheet.opened(part) if make else os.open(part, _FLAGS)
    except FileNotFoundError:
        yield None
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd if _still(fd, part) else None
    finally:
        os.close(fd)


def _still(fd: int, part: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), part.lstat())
    except FileNotFoundError:
        return False


def _write(fd: int, data: memoryview, offset: int) -> None:
    """Past the page cache where file system and buffer allow it: that saves a copy, and memory for others."""
    if len(data) == CHUNK and _direct(fd, data, offset):
        return
    view, at = data, offset
    while view:
        count = os.pwrite(fd, view, at)
        view, at = view[count:], at + count
    # Has the disk begin now, and drops nothing that is not on it yet: little is left for fsync.
    os.posix_fadvise(fd, offset, len(data), os.POSIX_FADV_DONTNEED)


def _direct(fd: int, data: memoryview, offset: int) -> bool:
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT)
        return os.pwrite(fd, data, offset) == len(data)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
        return False
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
