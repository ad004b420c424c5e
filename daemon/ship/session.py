"""One session with the peer's receiver: a channel of the connection, requests and answers in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

import asyncssh

from outlast.daemon.ship.protocol import (
    IO,
    MAX_ANSWER,
    ProtocolError,
    Put,
    Refusal,
    Request,
    encode,
    parse_answer,
    request_body,
)
from outlast.daemon.ship.reading import chunks
from outlast.wire.manifest import FileEntry
from outlast.wire.store import Committed

WRITE_BYTES = 256 * 1024
ANSWER_S = 60.0
SYNC_S = 600.0  # the peer answers once the file is on its disk; a dead network is noticed long before
COMMIT_S = 1800.0
_WEATHER = (OSError, asyncssh.Error, asyncio.IncompleteReadError)


class PeerUnreachable(Exception):  # noqa: N818 - a state of the world, named as callers speak of it
    """The peer cannot be talked to just now; the text says why and what to do. Try again later."""


class PeerRefused(Exception):  # noqa: N818 - a state of the world, named as callers speak of it
    """The peer understood and said no. The same request is refused again until facts change."""

    def __init__(self, code: str, because: str) -> None:
        super().__init__(f"{because} ({code})")
        self.code = code
        self.because = because


class Session:
    """A receiver process at the peer, for the length of an ``async with`` block."""

    def __init__(self, connection: asyncssh.SSHClientConnection, command: str = "outlast-receive") -> None:
        self._connection = connection
        self._command = command
        self._process: asyncssh.SSHClientProcess[bytes] | None = None
        self._buffer = bytearray()

    @property
    def process(self) -> asyncssh.SSHClientProcess[bytes]:
        """The channel, while the block runs."""
        assert self._process is not None
        return self._process

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(ANSWER_S):
                self._process = await self._connection.create_process(self._command, encoding=None)
        except (*_WEATHER, TimeoutError) as exc:
            raise PeerUnreachable(f"the peer opened no session: {exc or 'no answer'}") from exc
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is not None:
            self.process.channel.abort()
        self.process.close()

    async def ask(self, request: Request, within_s: float = ANSWER_S, data: bytes = b"") -> dict[str, Any]:
        """Send one request, with the few bytes that belong to it, and return the ``ok`` answer.

        Raises PeerRefused and PeerUnreachable.
        """
        try:
            async with asyncio.timeout(within_s):
                await self._write(encode(request_body(request)) + data)
                return await self._answer()
        except TimeoutError as exc:
            raise PeerUnreachable(f"the peer did not answer within {within_s:.0f} s") from exc
        except _WEATHER as exc:
            raise PeerUnreachable(f"the connection broke: {exc}") from exc

    async def put(
        self, committed: Committed, entry: FileEntry, offset: int, sent: Callable[[int], None]
    ) -> None:
        """Send one file from ``offset`` on; ``sent`` is told of bytes as they leave. Raises as ``ask``."""
        manifest = committed.manifest
        put = Put(manifest.epoch, manifest.tag, entry.path, entry.size, entry.sha256, offset)
        try:
            await self._write(encode(request_body(put)))
            await self._send(committed, entry, offset, sent)
            async with asyncio.timeout(SYNC_S):
                await self._answer()
        except TimeoutError as exc:
            raise PeerUnreachable(f"the peer did not confirm {entry.path}") from exc
        except _WEATHER as exc:
            raise PeerUnreachable(f"the connection broke while sending {entry.path}: {exc}") from exc

    async def _send(
        self, committed: Committed, entry: FileEntry, offset: int, sent: Callable[[int], None]
    ) -> None:
        try:
            async with aclosing(chunks(committed.path / entry.path, offset, entry.size)) as read:
                async for chunk in read:
                    await self._write_pieces(chunk, sent)
        except BrokenPipeError:
            # A receiver that refuses in mid-file says why and ends the session.
            async with asyncio.timeout(ANSWER_S):
                await self._answer()
            raise

    async def _write_pieces(self, chunk: memoryview, sent: Callable[[int], None]) -> None:
        for start in range(0, len(chunk), WRITE_BYTES):
            piece = chunk[start : start + WRITE_BYTES]
            await self._write(piece)
            sent(len(piece))

    async def _write(self, data: bytes | memoryview) -> None:
        self.process.stdin.write(bytes(data))
        await self.process.stdin.drain()

    async def _answer(self) -> dict[str, Any]:
        while (end := self._buffer.find(b"\n")) < 0:
            chunk = await self.process.stdout.read(WRITE_BYTES)
            if not chunk or len(self._buffer) > MAX_ANSWER:
                raise PeerUnreachable(await self._last_words())
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            answer = parse_answer(line)
        except ProtocolError as exc:
            raise PeerRefused(IO, f"the peer does not speak this protocol: {exc}") from exc
        if isinstance(answer, Refusal):
            raise PeerRefused(answer.code, answer.because)
        return answer

    async def _last_words(self) -> str:
        try:
            async with asyncio.timeout(2.0):
                said = await self.process.stderr.read(4096)
        except (TimeoutError, *_WEATHER):
            said = b""
        text = said.decode(errors="replace").strip().splitlines()
        return f"the peer's receiver ended: {text[-1][:300] if text else 'it said nothing'}"
