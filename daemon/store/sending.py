"""One file into one object, read once: its bytes are digested on the way, and a wrong one never appears."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.daemon.checkpoint.destinations import DAMAGED, Refused
from outlast.daemon.store.digesting import Running
from outlast.daemon.store.errors import asked
from outlast.daemon.store.listing import mark_of
from outlast.daemon.store.target import Target
from outlast.wire.manifest import FileEntry

if TYPE_CHECKING:
    from obstore import PutResult

# Stores take at most ten thousand parts.
_MOST_PARTS = 9_000
_MIB = 1024 * 1024
PARTS_AT_ONCE = 4
# How long a cut upload may take to have its parts thrown away.
_ABORT_S = 5.0


class _Cut(Exception):  # noqa: N818 - not an error: the sender has changed its mind
    pass


class Source:
    """A file as its bytes leave; raises Refused at the end rather than let a wrong object be completed."""

    def __init__(self, folder: Path, entry: FileEntry, note: Callable[[int], None]) -> None:
        self._path = folder / entry.path
        self._entry = entry
        self._note = note
        self._running = Running(entry.chunk)
        self._fd = -1
        self.cut = False

    async def parts(self, size: int) -> AsyncIterator[bytes]:
        """The bytes in pieces of ``size``."""
        while data := await asyncio.to_thread(self._read, size):
            if self.cut:
                raise _Cut
            yield data
            self._note(len(data))
        self._check()

    async def whole(self) -> bytes:
        """All bytes, of a file that is small enough for it."""
        return b"".join([data async for data in self.parts(self._entry.size + 1)])

    def open(self) -> None:
        """Open the file. Raises Refused."""
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as exc:
            raise self._damaged(exc.strerror or str(exc)) from exc

    def close(self) -> None:
        """Close it, however far it was read."""
        os.close(self._fd)

    def _read(self, size: int) -> bytes:
        pieces, left = [], size
        try:
            while left and (data := os.read(self._fd, left)):
                pieces.append(data)
                left -= len(data)
        except OSError as exc:
            raise self._damaged(f"cannot be read: {exc.strerror}") from exc
        whole = b"".join(pieces)
        self._running.update(whole)
        if self._running.size > self._entry.size:
            raise self._damaged(f"more than {self._entry.size} bytes")
        return whole

    def _check(self) -> None:
        what = self._running.differs_from(self._entry)
        if what:
            raise self._damaged(what)

    def _damaged(self, what: str) -> Refused:
        return Refused(DAMAGED, f"not sent, it is damaged here: {self._entry.path}: {what}")


async def send(
    target: Target, key: str, folder: Path, entry: FileEntry, note: Callable[[int], None]
) -> tuple[int, str]:
    """Put one file; size and mark of the object. ``note`` is called with bytes that left.

    Raises Refused (``damaged``: the file here is not what its manifest says) and Unreachable. Cancelled or
    failed, it has the parts that arrived thrown away.
    """
    import obstore

    source = Source(folder, entry, note)
    part = part_bytes(target.settings.part_bytes, entry.size)

    async def put() -> PutResult:
        if entry.size <= part:
            data = await source.whole()
            return await asked(
                target.address, obstore.put_async(target.store, key, data, use_multipart=False)
            )
        parts = obstore.put_async(
            target.store,
            key,
            source.parts(part),
            chunk_size=part,
            max_concurrency=PARTS_AT_ONCE,
            use_multipart=True,
        )
        return await asked(target.address, parts)

    await asyncio.to_thread(source.open)
    try:
        result = await _until_aborted(source, put())
    finally:
        source.close()
    return entry.size, mark_of(result["e_tag"])


def part_bytes(least: int, size: int) -> int:
    """How large the parts of an object of ``size`` bytes are: whole MiB, few enough for every store."""
    return least if size <= least * _MOST_PARTS else -(-size // (_MOST_PARTS * _MIB)) * _MIB


async def _until_aborted(source: Source, put: Coroutine[None, None, PutResult]) -> PutResult:
    """A cancelled upload is ended by its source, since only then its parts are thrown away."""
    task = asyncio.ensure_future(put)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        source.cut = True
        await asyncio.wait({task}, timeout=_ABORT_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
