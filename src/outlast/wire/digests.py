"""Digests of files as trees: of each chunk, and of the chunks' digests together.

A chunk can so be checked by itself, as it arrives, and a file's digest follows from those of its chunks
without a second look at its bytes. A file of one chunk has the SHA-256 that ``sha256sum`` prints.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# Small enough that a transfer which breaks off has little to send again, large enough that what is said of
# each chunk costs nothing beside its bytes.
CHUNK = 1024 * 1024
READ_BYTES = 4 * 1024 * 1024


def digest(path: Path, chunk: int = CHUNK) -> str:
    """Hex digest of a regular file's bytes in chunks of ``chunk`` bytes; 0 takes the whole file as one.

    Raises OSError, also for a symbolic link.
    """
    return root(list(chunk_digests(path, chunk))) if chunk else _whole(path)


def root(digests: Sequence[bytes]) -> str:
    """Hex digest of a file whose chunks have these, in order: the only one's own, else that of them all."""
    return digests[0].hex() if len(digests) == 1 else hashlib.sha256(b"".join(digests)).hexdigest()


def chunk_digests(path: Path, chunk: int = CHUNK) -> Iterator[bytes]:
    """SHA-256 of each chunk of a regular file, the last one being shorter. Raises OSError."""
    with _opened(path) as fd:
        buffer = memoryview(bytearray(chunk))
        while count := _fill(fd, buffer):
            yield hashlib.sha256(buffer[:count]).digest()


def chunks_in(size: int, chunk: int = CHUNK) -> int:
    """How many chunks a file of ``size`` bytes has."""
    return -(-size // chunk)


def _fill(fd: int, buffer: memoryview) -> int:
    """Read until the buffer is full or the file ends: a chunk is never short because a read was."""
    count = 0
    while count < len(buffer):
        got = os.readv(fd, [buffer[count:]])
        if not got:
            break
        count += got
    return count


def _whole(path: Path) -> str:
    total = hashlib.sha256()
    with _opened(path) as fd:
        buffer = memoryview(bytearray(READ_BYTES))
        while count := _fill(fd, buffer):
            total.update(buffer[:count])
    return total.hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is not a regular file")
        yield fd
    finally:
        os.close(fd)
