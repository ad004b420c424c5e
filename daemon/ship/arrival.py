"""One file arriving: under a part name, hashed on the way, and named only when its digest matches."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Protocol

from outlast.daemon.checkpoint.place import Step
from outlast.daemon.ship.protocol import DAMAGED
from outlast.daemon.ship.words import RefusedError
from outlast.wire.manifest import PART_SUFFIX, FileEntry

_CHUNK = 1024 * 1024
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class SenderGoneError(Exception):
    """The sender went away before all bytes of a file had come; what came is kept."""


class Source(Protocol):
    """Where a file's bytes come from."""

    def read(self, most: int) -> bytes:
        """The next 1 to ``most`` bytes, or none at the end."""
        ...


def arrive(staging: Path, entry: FileEntry, offset: int, source: Source, step: Step) -> None:
    """Take ``entry.size - offset`` bytes and make the file durable under its name.

    Raises RefusedError when the digest differs (the part is then deleted) and SenderGoneError when the
    bytes end early.
    """
    target = staging / entry.path
    part = target.with_name(target.name + PART_SUFFIX)
    target.parent.mkdir(parents=True, exist_ok=True)
    fd = _open_part(part, offset)
    try:
        total = _hash_prefix(fd, offset)
        _fill(fd, entry.size - offset, source, total, step)
        os.fsync(fd)
        step("file synced")
        if total.hexdigest() != entry.sha256:
            part.unlink(missing_ok=True)
            raise RefusedError(
                DAMAGED, f"{entry.path}: contents differ from the manifest's digest", in_step=True
            )
        _name(fd, part, target)
        step("file named")
    except OSError:
        part.unlink(missing_ok=True)  # a full disk is not helped by keeping half a file
        raise
    finally:
        os.close(fd)


def part_bytes(staging: Path, entry: FileEntry) -> int:
    """How many bytes of a file lie here from a transfer that broke off; 0 while one is still at it."""
    part = staging / (entry.path + PART_SUFFIX)
    try:
        fd = os.open(part, _FLAGS)
    except OSError:
        return 0
    try:
        size = os.fstat(fd).st_size
        return size if size < entry.size and _lock(fd) else 0
    finally:
        os.close(fd)


def _open_part(part: Path, offset: int) -> int:
    if offset == 0:
        # A session of a dead connection may still write to the old part: it keeps its nameless file.
        part.unlink(missing_ok=True)
        fd = os.open(part, _FLAGS | os.O_CREAT | os.O_EXCL, 0o644)
        _lock(fd)
        return fd
    try:
        fd = os.open(part, _FLAGS)
    except FileNotFoundError as exc:
        raise RefusedError(DAMAGED, f"{part.name} is no longer here: offer it again") from exc
    if os.fstat(fd).st_size < offset or not _lock(fd):
        os.close(fd)
        raise RefusedError(DAMAGED, f"{part.name} cannot be continued at byte {offset}: offer it again")
    os.ftruncate(fd, offset)
    return fd


def _hash_prefix(fd: int, offset: int) -> hashlib._Hash:
    total = hashlib.sha256()
    while offset:
        chunk = os.read(fd, min(offset, _CHUNK))
        if not chunk:
            raise RefusedError(DAMAGED, "what had arrived earlier has become shorter: offer it again")
        total.update(chunk)
        offset -= len(chunk)
    return total


def _fill(fd: int, left: int, source: Source, total: hashlib._Hash, step: Step) -> None:
    while left:
        chunk = source.read(min(left, _CHUNK))
        if not chunk:
            raise SenderGoneError
        total.update(chunk)
        left -= len(chunk)
        view = memoryview(chunk)
        while view:
            view = view[os.write(fd, view) :]
        step("bytes written")


def _name(fd: int, part: Path, target: Path) -> None:
    try:
        mine = os.path.samestat(os.fstat(fd), part.lstat())
    except FileNotFoundError:
        mine = False
    if not mine:
        raise RefusedError(DAMAGED, f"{target.name} is being sent by another session", in_step=True)
    part.replace(target)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
