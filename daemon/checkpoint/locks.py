"""Locks between processes on a store. The kernel drops them with their holder, so none outlives a crash."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.02


@contextmanager
def try_lock(path: Path, *, shared: bool = False, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock at ``path`` for the block; yields False if it was not to be had within ``wait_s``."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield _acquire(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, time.monotonic() + wait_s)
    finally:
        os.close(fd)


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
