"""Shipping while the ranks still save: whole chunks of their files, as soon as writing has passed them.

Nothing is believed of a file that is still written: whatever changes in a chunk after it left shows in its
digest once the checkpoint is offered, and goes again. So this needs no word of the ranks and no order of
their writes; it only costs what it guessed wrong.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import structlog

from outlast.daemon.ship.transfer import Transfer
from outlast.wire.digests import CHUNK
from outlast.wire.manifest import MANIFEST_NAME, PART_SUFFIX
from outlast.wire.store import Committed, walk

log = structlog.get_logger("outlast.ship")

# Often enough that a folder's last bytes are soon seen, seldom enough to cost nothing.
LOOK_S = 0.05
# What lies this close behind the end of a growing file may still be written.
LAG = 2 * CHUNK


async def follow(transfer: Transfer, folder: Path, before: Mapping[str, bytes]) -> None:
    """Feed the files of ``folder`` as they grow, until cancelled.

    Of a file whose first chunk is as in the checkpoint ``before`` nothing is fed: it may not have changed at
    all, and then need not travel. Nor of one that has just been renamed: the commit is under way. A bug here
    is reported and costs the head start alone: what has not left goes after the commit.
    """
    try:
        await _follow(transfer, folder, before)
    except Exception:  # a bug is reported; it costs the head start alone
        log.exception("unexpected_error", part="early", folder=folder.name, hint="please report this")


async def _follow(transfer: Transfer, folder: Path, before: Mapping[str, bytes]) -> None:
    fed: dict[str, int] = {}
    while True:
        for path, size in (await asyncio.to_thread(_sizes, folder)).items():
            ready = max(0, size - LAG) // CHUNK
            first = fed.get(path, 0)
            if ready > first and await _changed(folder / path, before.get(path)):
                transfer.feed(path, range(first, ready), size)
                fed[path] = ready
        await asyncio.sleep(LOOK_S)


def firsts(committed: Committed) -> dict[str, bytes]:
    """What ``follow`` knows a checkpoint by: the digest of each file's first chunk."""
    found = {entry.path: _first(committed.path / entry.path) for entry in committed.manifest.files}
    return {path: first for path, first in found.items() if first is not None}


def _sizes(folder: Path) -> dict[str, int]:
    try:
        return {
            name: info.st_size
            for name, info in walk(folder)
            if name != MANIFEST_NAME and not name.endswith(PART_SUFFIX)
        }
    except OSError:
        return {}


async def _changed(path: Path, before: bytes | None) -> bool:
    first = await asyncio.to_thread(_first, path)
    return first is not None and first != before


def _first(path: Path) -> bytes | None:
    """The digest of a file's first chunk, or None where it is gone or cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return hashlib.sha256(os.pread(fd, CHUNK, 0)).digest()
    except OSError:
        return None
    finally:
        os.close(fd)
