"""A segment of a node's history arriving: kept beside the replicas, never at their cost.

No fence applies: what a node saw stays true whoever has the job now. Nothing here waits for a commit or a
handover, nor they for it. The bytes are not looked into: whoever reads them takes them for hostile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outlast.daemon.checkpoint.locks import try_lock
from outlast.daemon.checkpoint.place import Step, write_atomically
from outlast.daemon.history.layout import SUFFIX, file_name
from outlast.daemon.ship.arrival import SenderGoneError, Source
from outlast.daemon.ship.protocol import DAMAGED, IO, NO_SPACE, Stats
from outlast.daemon.ship.words import RefusedError

RESERVE_BYTES = 64 * 1024 * 1024
# Of one job: a node's year is about five hundred segments of half a kilobyte.
MOST_KEPT_BYTES = 512 * 1024 * 1024
MOST_KEPT_FILES = 50_000
WAIT_S = 10.0


def keep(
    folder: Path, request: Stats, source: Source, free: Callable[[Path], int], step: Step
) -> dict[str, Any]:
    """Take a segment's bytes and make them durable under its name. Returns the ``ok`` answer.

    A segment that is here already stays as it is; another one of the same number is kept beside it, under
    a name with its digest. Raises RefusedError, always in step, and SenderGoneError.
    """
    data = _all(source, request.size)
    if hashlib.sha256(data).hexdigest() != request.sha256:
        raise RefusedError(DAMAGED, f"segment {request.seq}: contents differ from its digest", in_step=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with try_lock(folder / ".lock", wait_s=WAIT_S) as held:
            if not held:
                raise RefusedError(IO, "another segment is still being kept here", in_step=True)
            _write(folder, request, data, free, step)
    except OSError as exc:
        raise RefusedError(IO, f"{exc.strerror}: {exc.filename or folder}", in_step=True) from exc
    return {"ok": True}


def _write(folder: Path, request: Stats, data: bytes, free: Callable[[Path], int], step: Step) -> None:
    home = folder / request.node
    target = home / file_name(request.seq)
    if _is(target, data):
        return
    if os.path.lexists(target):
        target = home / f"{request.seq:08d}-{request.sha256[:12]}{SUFFIX}"
        if _is(target, data):
            return
    _check_room(folder, len(data), free)
    home.mkdir(exist_ok=True)
    write_atomically(target, data, step)
    step("segment named")


def _all(source: Source, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = source.read(size - len(data))
        if not chunk:
            raise SenderGoneError
        data += chunk
    return bytes(data)


def _is(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def _check_room(folder: Path, size: int, free: Callable[[Path], int]) -> None:
    if size + RESERVE_BYTES > free(folder):
        raise RefusedError(NO_SPACE, "no space for history: what is free is for checkpoints", in_step=True)
    files = total = 0
    for path, _, names in os.walk(folder):
        files += len(names) + 1
        total += sum((Path(path) / name).lstat().st_size for name in names)
    if files >= MOST_KEPT_FILES or total + size > MOST_KEPT_BYTES:
        because = f"{folder} holds {files} files, {total} bytes of history: merge them and move them away"
        raise RefusedError(NO_SPACE, because, in_step=True)
