"""A TCP relay that misbehaves on request: cuts, goes silent, delays, alters a byte."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

_PIECE = 64 * 1024


class Relay:
    """Forwards a loopback port to ``(host, port)``. Counts run over the client's bytes, all connections."""

    def __init__(self, host: str, port: int, *, delay_s: float = 0.0) -> None:
        self._target = (host, port)
        self._delay_s = delay_s
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.host = "127.0.0.1"
        self.port = 0
        self.forwarded = 0
        self.cut_after: int | None = None
        self.silent_after: int | None = None
        self.alter_after: int | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_writer: asyncio.StreamWriter | None = None
        try:
            with suppress(OSError, ExceptionGroup):
                far_reader, far_writer = await asyncio.open_connection(*self._target)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump(reader, far_writer, counted=True))
                    group.create_task(self._pump(far_reader, writer, counted=False))
        finally:
            for each in (writer, far_writer):
                if each is not None:
                    each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool
    ) -> None:
        lane: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=4096)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._release(lane, writer))
            while data := await reader.read(_PIECE):
                data = self._fate(data) if counted else data
                await self._silence()
                await lane.put((asyncio.get_running_loop().time() + self._delay_s, data))
            await lane.put((0.0, b""))
        raise ConnectionError("one side has ended")

    async def _release(self, lane: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await lane.get()
            if not data:
                return
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            await self._silence()
            writer.write(data)
            await writer.drain()

    def _fate(self, data: bytes) -> bytes:
        self.forwarded += len(data)
        if self.cut_after is not None and self.forwarded > self.cut_after:
            self.cut_after = None
            raise ConnectionError("cut")
        if self.alter_after is not None and self.forwarded > self.alter_after:
            self.alter_after = None
            return data[:-1] + bytes([data[-1] ^ 1])
        return data

    async def _silence(self) -> None:
        """Keep the connection and forward nothing, for good."""
        if self.silent_after is not None and self.forwarded > self.silent_after:
            await asyncio.Event().wait()
