"""A TCP relay that is as far away and as narrow as said, and misbehaves on request: cuts, alters a byte…

    python -m outlast.simulations.wan --to 127.0.0.1:22 --port 2222 --rtt 70ms --bandwidth 1G

As a process of its own it says ``ready`` once it listens, and forwards until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

_PIECE = 64 * 1024
_LARGE_PIECE = 256 * 1024
_SMALL_PIECE = 4 * 1024
# A shaped line takes in what it sends in so long: less makes more work, more looks sent when it is not.
_PIECE_S = 0.004
# What may wait at its entry before senders are held up, as in a router's buffer.
_QUEUE_S = 0.02
# What one connection may have under way in one direction.
_UNDER_WAY = 256 * 1024 * 1024


class Line:
    """One direction of a wire that all connections share: what enters leaves ``delay_s`` after it was sent,
    and no more than ``bytes_s`` a second is. None: at any rate."""

    def __init__(self, delay_s: float = 0.0, bytes_s: float | None = None) -> None:
        self._delay_s = delay_s
        self._bytes_s = bytes_s
        self._free_at = 0.0

    @property
    def piece(self) -> int:
        """How many bytes to enter at once, at most."""
        if self._bytes_s is None:
            return _PIECE
        return max(_SMALL_PIECE, min(_LARGE_PIECE, int(self._bytes_s * _PIECE_S)))

    @property
    def under_way(self) -> int:
        """The bytes that fit into it."""
        if self._bytes_s is None:
            return _UNDER_WAY
        return int(self._bytes_s * (self._delay_s + _QUEUE_S)) + 4 * self.piece

    async def entry(self) -> None:
        """Return once what has entered by now is sent but for a short queue: so long a sender is held up."""
        await asyncio.sleep(max(0.0, self._free_at - asyncio.get_running_loop().time() - _QUEUE_S))

    def enter(self, size: int) -> float:
        """The loop's second at which so many bytes that enter now have left at the far end."""
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + (size / self._bytes_s if self._bytes_s else 0.0)
        return self._free_at + self._delay_s


class _Lane:
    """What one connection has under way in one direction, in order, and ``most`` bytes of it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._items: deque[tuple[float, bytes]] = deque()
        self._changed = asyncio.Event()

    async def put(self, due: float, data: bytes) -> None:
        """Wait for room, then append; empty ``data`` is the end."""
        while self._bytes >= self._most:
            await self._wait()
        self._items.append((due, data))
        self._bytes += len(data)
        self._changed.set()

    async def get(self) -> tuple[float, bytes]:
        """The next one and when it is due, once there is one."""
        while not self._items:
            await self._wait()
        due, data = self._items.popleft()
        self._bytes -= len(data)
        self._changed.set()
        return due, data

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class Relay:
    """Forwards a loopback port to ``(host, port)``. Counts run over the client's bytes, all connections.

    ``delay_s`` is that of one way; ``bytes_s`` bytes a second get through each way, all connections together
    (None: as many as come). A TCP connection's own window and slow start are those of the loopback.
    """

    def __init__(
        self, host: str, port: int, *, delay_s: float = 0.0, bytes_s: float | None = None, listen: int = 0
    ) -> None:
        self._target = (host, port)
        self._there = Line(delay_s, bytes_s)
        self._back = Line(delay_s, bytes_s)
        self._shaped = bytes_s is not None
        self._listen = listen
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.host = "127.0.0.1"
        self.port = 0
        self.forwarded = 0
        self.cut_after: int | None = None
        self.silent_after: int | None = None
        self.alter_after: int | None = None

    async def __aenter__(self) -> Self:
        room = self._there.piece
        entrance = socket.create_server((self.host, self._listen))
        if self._shaped:
            # The kernel would take in megabytes that the line has not sent: senders would think they had.
            entrance.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * room)
        self._server = await asyncio.start_server(self._accept, sock=entrance, limit=room)
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
                    group.create_task(self._pump(self._there, reader, far_writer, counted=True))
                    group.create_task(self._pump(self._back, far_reader, writer, counted=False))
        finally:
            for each in (writer, far_writer):
                if each is not None:
                    each.transport.abort()

    async def _pump(
        self, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool
    ) -> None:
        lane = _Lane(line.under_way)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._release(lane, writer))
            while data := await reader.read(line.piece):
                data = self._fate(data) if counted else data
                await self._silence()
                await lane.put(line.enter(len(data)), data)
                await line.entry()
            await lane.put(0.0, b"")
        raise ConnectionError("one side has ended")

    async def _release(self, lane: _Lane, writer: asyncio.StreamWriter) -> None:
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


def main() -> int:
    """Forward until ended."""
    from outlast.daemon.cli.quantities import bits_rate, length

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--port", type=int, default=0, help="listen there (default: any free one)")
    parser.add_argument("--rtt", type=length, default=0.0, help="round trip (default: none)")
    parser.add_argument("--bandwidth", type=bits_rate, help="bits a second (default: no bound)")
    args = parser.parse_args()
    host, _, port = args.to.rpartition(":")
    way = Relay(host, int(port), delay_s=args.rtt / 2, bytes_s=args.bandwidth, listen=args.port)
    asyncio.run(_forward(way))
    return 0


async def _forward(relay: Relay) -> None:
    async with relay as way:
        print(f"ready {way.port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
