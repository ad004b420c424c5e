"""One object's bytes, digested as they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import BinaryIO

from outlast.daemon.store.digesting import Running
from outlast.daemon.store.errors import sought
from outlast.daemon.store.target import Target
from outlast.daemon.store.together import each
from outlast.wire.manifest import FileEntry

_AT_ONCE = 4


async def differs_there(target: Target, key: str, entry: FileEntry) -> str:
    """What is wrong with the object for this entry, or an empty text. Raises Unreachable and Refused."""
    running = Running(entry.chunk)
    async for data in _pieces(target, key, entry.size):
        await asyncio.to_thread(running.update, data)
    return running.differs_from(entry)


async def receive(target: Target, key: str, entry: FileEntry, file: BinaryIO) -> str:
    """Write the object's bytes to ``file``; what is wrong with them, or an empty text.

    Raises Unreachable, Refused and, for what the disk here says, OSError.
    """
    running = Running(entry.chunk)

    def take(data: bytes) -> None:
        running.update(data)
        file.write(data)

    async for data in _pieces(target, key, entry.size):
        await asyncio.to_thread(take, data)
    return running.differs_from(entry)


async def _pieces(target: Target, key: str, size: int) -> AsyncIterator[bytes]:
    """The bytes in order, a few ranges asked for at once: each is small enough to be asked for again."""
    import obstore

    step = target.settings.part_bytes
    starts = range(0, size, step)
    for first in range(0, len(starts), _AT_ONCE):
        batch: dict[int, bytes] = {}

        async def fetch(start: int, batch: dict[int, bytes] = batch) -> None:
            end = min(start + step, size)
            answer = obstore.get_range_async(target.store, key, start=start, end=end)
            data = await sought(target.address, answer)
            # A file that is gone or shorter shows in the digest.
            batch[start] = b"" if data is None else bytes(data)

        chosen = starts[first : first + _AT_ONCE]
        await each(chosen, _AT_ONCE, fetch)
        for start in chosen:
            yield batch[start]
