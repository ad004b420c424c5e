"""Reading a file for sending, in a thread and one piece ahead of what is being sent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

from outlast.wire.manifest import READ_BYTES


async def chunks(path: Path, offset: int, size: int) -> AsyncGenerator[memoryview, None]:
    """The bytes of a file from ``offset`` up to ``size``. Raises OSError, also if the file is shorter."""
    fd = await asyncio.to_thread(os.open, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    ahead: asyncio.Task[bytes] | None = None
    try:
        while offset < size:
            ahead = ahead or _read(fd, offset, size)
            data = await asyncio.shield(ahead)
            if not data:
                raise OSError(f"{path} has become shorter")
            offset += len(data)
            ahead = _read(fd, offset, size) if offset < size else None
            yield memoryview(data)
    finally:
        if ahead:
            # The descriptor must not be closed, and perhaps used anew, under a thread that still reads.
            await asyncio.wait([ahead])
        os.close(fd)


def _read(fd: int, offset: int, size: int) -> asyncio.Task[bytes]:
    return asyncio.ensure_future(asyncio.to_thread(os.pread, fd, min(READ_BYTES, size - offset), offset))
