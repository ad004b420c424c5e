"""Locks between processes on a store. The kernel drops them with their holder, so none outlives a crash."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.02


@contextmanager
def try_lock(path: Path, *, shared: bool = False, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock at ``path`` for the block; yields False if it was not to be had within ``wait_s``.

    Who holds it may delete it: whoever opened that one before holds nothing by it, and takes the new one.
    """
    until = time.monotonic() + wait_s
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            held = _acquire(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, until)
            if not held or _named(fd, path):
                yield held
                return
        finally:
            os.close(fd)


@contextmanager
def hold_folder(folder: Path, *, shared: bool = False, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold a folder for the block: shared to write in it, alone to look at all of it and then rename it.

    Yields False if there is none, or it was not to be had within ``wait_s``. Whoever waited while another
    folder got the name holds that one.
    """
    until = time.monotonic() + wait_s
    while (fd := _opened(folder)) is not None:
        try:
            held = _acquire(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, until)
            if not held or _named(fd, folder):
                yield held
                return
        finally:
            os.close(fd)
    yield False


@contextmanager
def hold_file(path: Path, mode: int, wait_s: float) -> Iterator[int]:
    """Hold a file for the block, made if there is none, and yield its descriptor for writing.

    Whoever waited while it was renamed away holds a new one. Raises OSError, also after ``wait_s``.
    """
    until = time.monotonic() + wait_s
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            if not _acquire(fd, fcntl.LOCK_EX, until):
                raise BlockingIOError(errno.EAGAIN, "another process is writing it", str(path))
            if _named(fd, path):
                yield fd
                return
        finally:
            os.close(fd)


def _opened(folder: Path) -> int | None:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _named(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _acquire(fd: int, kind: int, until: float) -> bool:
    while not _try(fd, kind):
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)
    return True


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
