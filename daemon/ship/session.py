"""One session with the peer's receiver, through a channel or a client of its own: requests and answers."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import asyncssh

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.ship.protocol import (
    IO,
    MAX_ANSWER,
    Chunk,
    ProtocolError,
    Reading,
    Refusal,
    Request,
    encode,
    parse_answer,
    request_body,
)
from outlast.wire.digests import CHUNK
from outlast.wire.manifest import PARTIAL_SUFFIX

WRITE_BYTES = 256 * 1024
ANSWER_S = 60.0
SYNC_S = 600.0  # the peer answers once the file is on its disk; a dead network is noticed long before
COMMIT_S = 1800.0
# Chunks of a session that the peer has not confirmed yet.
MOST_OPEN = 16
_WEATHER = (OSError, asyncssh.Error, asyncio.IncompleteReadError)


class ShorterError(Exception):
    """A file is gone, or ended before the bytes of its chunk did."""


@dataclass(frozen=True)
class Piece:
    """``size`` bytes of a file, from ``offset`` on. ``moved``: where it is if its folder was renamed."""

    file: Path
    offset: int
    size: int
    moved: Path | None = None

    def open(self) -> int:
        """The file, to read from. Raises ShorterError."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with suppress(FileNotFoundError):
                return os.open(self.file, flags)
            return os.open(self.moved or self.file, flags)
        except OSError as exc:
            raise ShorterError(f"{self.file.name} cannot be read here: {exc.strerror}") from exc

    def read(self) -> bytes:
        """All of it. Raises ShorterError."""
        fd = self.open()
        try:
            data = os.pread(fd, self.size, self.offset)
        finally:
            os.close(fd)
        if len(data) != self.size:
            raise self.shorter()
        return data

    def shorter(self) -> ShorterError:
        """What to raise where the file ends too early."""
        return ShorterError(f"{self.file.name} has become shorter here")


# The words that go before the bytes, and where these are.
Headed = tuple[bytes, Piece]
# A chunk, and why it was refused, or None.
Outcome = tuple[Chunk, Refused | None]


class Opener(Protocol):
    """Starts receivers at the peer; what it gives has stdin, stdout and stderr as asyncio's processes do."""

    async def open(self, command: str) -> Any:
        """Run ``command`` there. Raises Unreachable, OSError or asyncssh.Error."""
        ...

    async def feed(self, process: Any, batch: Sequence[Headed]) -> None:
        """Write each piece of a file after its head. Raises ShorterError at a file's end, and OSError."""
        ...

    async def end(self, process: Any, *, hurry: bool) -> None:
        """Let the receiver see the end; in a hurry, without waiting for what is under way."""
        ...


class Channels:
    """Opens sessions as channels of the connection that is kept up."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self._connection = connection

    async def open(self, command: str) -> asyncssh.SSHClientProcess[bytes]:
        """See Opener."""
        return await self._connection.create_process(command, encoding=None)

    async def feed(self, process: asyncssh.SSHClientProcess[bytes], batch: Sequence[Headed]) -> None:
        """See Opener."""
        for head, piece in batch:
            data = await asyncio.to_thread(piece.read)
            process.stdin.write(head)
            for start in range(0, piece.size, WRITE_BYTES):
                process.stdin.write(data[start : start + WRITE_BYTES])
                await process.stdin.drain()

    async def end(self, process: asyncssh.SSHClientProcess[bytes], *, hurry: bool) -> None:
        """See Opener."""
        if hurry:
            process.channel.abort()
        process.close()


class Session:
    """A receiver process at the peer, for the length of an ``async with`` block."""

    def __init__(self, opener: Opener, command: str = "outlast-receive") -> None:
        self._opener = opener
        self._command = command
        self._process: Any = None
        self._buffer = bytearray()
        self._open: deque[Chunk] = deque()

    @property
    def process(self) -> Any:
        """The channel, while the block runs."""
        assert self._process is not None
        return self._process

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(ANSWER_S):
                self._process = await self._opener.open(self._command)
        except (*_WEATHER, TimeoutError) as exc:
            raise Unreachable(f"the peer opened no session: {exc or 'no answer'}") from exc
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opener.end(self.process, hurry=exc is not None)

    async def ask(
        self, request: Request | Reading, within_s: float = ANSWER_S, data: bytes = b""
    ) -> dict[str, Any]:
        """Send one request, with the few bytes that belong to it, and return the ``ok`` answer.

        Raises Refused and Unreachable.
        """
        try:
            async with asyncio.timeout(within_s):
                await self._write(encode(request_body(request)) + data)
                return await self._answer()
        except TimeoutError as exc:
            raise Unreachable(f"the peer did not answer within {within_s:.0f} s") from exc
        except _WEATHER as exc:
            raise Unreachable(f"the connection broke: {exc}") from exc

    async def chunks(self, requests: Sequence[Chunk], folder: Path) -> list[Outcome]:
        """Send chunks of files in ``folder``, which may be committed meanwhile.

        Returns what the peer has said of earlier ones, in order.

        Answers are waited for only once many are open: distance costs a window, not a chunk.
        Raises as ``ask``.
        """
        self._open.extend(requests)
        moved = folder.with_name(folder.name.removesuffix(PARTIAL_SUFFIX))
        batch = [
            (
                encode(request_body(one)),
                Piece(folder / one.path, CHUNK * one.index, one.size, moved / one.path),
            )
            for one in requests
        ]
        try:
            async with asyncio.timeout(
                SYNC_S
            ):  # a receiver that is stuck takes nothing, and its server lives
                await self._opener.feed(self.process, batch)
            return await self._outcomes(MOST_OPEN)
        except TimeoutError as exc:
            raise Unreachable(f"the peer takes no more of {requests[0].path}") from exc
        except BrokenPipeError:
            return await self._outcomes(0)  # a receiver that ends says why before it does
        except _WEATHER as exc:
            raise Unreachable(f"the connection broke while sending {requests[0].path}: {exc}") from exc

    async def settle(self) -> list[Outcome]:
        """Wait for the answers that are still open. Raises as ``ask``."""
        try:
            return await self._outcomes(0)
        except _WEATHER as exc:
            raise Unreachable(f"the connection broke: {exc}") from exc

    async def _outcomes(self, most: int) -> list[Outcome]:
        found: list[Outcome] = []
        while len(self._open) > most:
            try:
                async with asyncio.timeout(SYNC_S):
                    await self._answer()
            except TimeoutError as exc:
                raise Unreachable(f"the peer did not confirm {self._open[0].path}") from exc
            except Refused as exc:
                found.append((self._open.popleft(), exc))
            else:
                found.append((self._open.popleft(), None))
        return found

    async def _write(self, data: bytes | memoryview) -> None:
        for start in range(0, len(data), WRITE_BYTES):
            self.process.stdin.write(bytes(data[start : start + WRITE_BYTES]))
            await self.process.stdin.drain()

    async def _answer(self) -> dict[str, Any]:
        while (end := self._buffer.find(b"\n")) < 0:
            chunk = await self.process.stdout.read(WRITE_BYTES)
            if not chunk or len(self._buffer) > MAX_ANSWER:
                raise Unreachable(await self._last_words())
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            answer = parse_answer(line)
        except ProtocolError as exc:
            raise Refused(IO, f"the peer does not speak this protocol: {exc}") from exc
        if isinstance(answer, Refusal):
            raise Refused(answer.code, answer.because)
        return answer

    async def _last_words(self) -> str:
        try:
            async with asyncio.timeout(2.0):
                said = await self.process.stderr.read(4096)
        except (TimeoutError, *_WEATHER):
            said = b""
        text = said.decode(errors="replace").strip().splitlines()
        return f"the peer's receiver ended: {text[-1][:300] if text else 'it said nothing'}"
