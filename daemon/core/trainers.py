"""The trainer socket: one connection a rank, peer credentials checked, lines turned into messages.

This module knows the wire and nothing of jobs: it hands each rank's words to a :class:`Listener`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import structlog

from outlast.wire.messages import (
    MAX_LINE,
    PROTOCOL,
    FromHook,
    Hello,
    StandDown,
    ToHook,
    WireError,
    decode_from_hook,
    encode,
)

log = structlog.get_logger("outlast.trainers")

HELLO_S = 10.0

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Connection:
    """One rank's connection. ``pid`` is the kernel's word (SO_PEERCRED), not the rank's."""

    def __init__(self, writer: asyncio.StreamWriter, pid: int, uid: int, hello: Hello) -> None:
        self._writer = writer
        self.pid = pid
        self.uid = uid
        self.hello = hello

    def send(self, message: ToHook) -> None:
        """Queue a line; a rank that is gone is noticed by its reader, not here."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    def close(self) -> None:
        """End the connection; the rank will reconnect if it still lives."""
        self._writer.close()


class Listener(Protocol):
    """Who hears the ranks."""

    def rank_joined(self, connection: Connection) -> str | None:
        """Take the rank, or return why it is refused."""
        ...

    def rank_said(self, connection: Connection, message: FromHook) -> None: ...

    def rank_left(self, connection: Connection) -> None: ...


class TrainerSocket:
    """Serves the trainer socket until cancelled; a bad line ends its connection, never the server."""

    def __init__(self, path: Path, listener: Listener, allowed_uids: Iterable[int] | None = None) -> None:
        self._path = path
        self._listener = listener
        self._allowed = frozenset(allowed_uids) if allowed_uids is not None else None
        self._sock: socket.socket | None = None

    async def start(self) -> None:
        """Bind: from here on ranks can connect. Raises OSError with what to do."""
        self._sock = await asyncio.to_thread(bind_unix, self._path, 0o660)

    async def run(self) -> None:
        """Serve until cancelled; removes the socket on the way out."""
        assert self._sock is not None, "start() comes first"
        await serve_unix(self._sock, self._path, self._serve, MAX_LINE)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = await self._greet(reader, writer)
            if connection is not None:
                await self._listen(reader, connection)
        except (WireError, ValueError, ConnectionError, asyncio.IncompleteReadError) as exc:
            log.warning("trainer_line_refused", because=str(exc))
        finally:
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Connection | None:
        pid, uid = _credentials(writer)
        if self._allowed is not None and uid not in self._allowed:
            log.warning("trainer_refused", pid=pid, uid=uid, because="this user may not speak for a job")
            return None
        try:
            async with asyncio.timeout(HELLO_S):
                line = await reader.readline()
        except TimeoutError:
            return None
        if not line:
            return None
        message = decode_from_hook(line)
        if not isinstance(message, Hello):
            raise WireError(f"expected hello, got {message.type}")
        return self._admit(Connection(writer, pid, uid, message))

    def _admit(self, connection: Connection) -> Connection | None:
        hello = connection.hello
        refusal = None
        if hello.protocol != PROTOCOL:
            refusal = (
                f"the hook speaks protocol {hello.protocol}, this daemon {PROTOCOL}: install one version"
            )
        refusal = refusal or self._listener.rank_joined(connection)
        if refusal is None:
            return connection
        log.warning("trainer_refused", job=hello.job, rank=hello.rank, pid=connection.pid, because=refusal)
        connection.send(StandDown(reason=refusal, then="train"))
        return None

    async def _listen(self, reader: asyncio.StreamReader, connection: Connection) -> None:
        try:
            while line := await reader.readline():
                self._listener.rank_said(connection, decode_from_hook(line))
        finally:
            self._listener.rank_left(connection)


def _credentials(writer: asyncio.StreamWriter) -> tuple[int, int]:
    sock: socket.socket = writer.get_extra_info("socket")
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _gid = struct.unpack("3i", raw)
    return pid, uid


def bind_unix(path: Path, mode: int) -> socket.socket:
    """A listening Unix socket with exactly this mode; a socket left by a killed daemon is replaced.

    Raises OSError with what to do when another daemon answers there or the path is too long.
    """
    if len(os.fsencode(path)) > 107:
        raise OSError(f"socket path {path} is longer than 107 bytes: set a shorter node.runtime")
    path.parent.mkdir(parents=True, exist_ok=True)
    if _answers(path):
        raise OSError(f"another daemon listens on {path}: stop it, or set another node.runtime")
    if path.exists() and not path.is_socket():
        raise OSError(f"{path} is not a socket: move it away, or set another node.runtime")
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(mode)
        sock.listen()  # who connects from here on waits in the queue; nobody is refused
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


async def serve_unix(sock: socket.socket, path: Path, serve: Serve, limit: int) -> None:
    """Serve connections until cancelled; then end each, wait for its task, and remove the socket.

    ``asyncio.Server`` alone would wait for the clients to leave (from Python 3.12 on), and ranks stay.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        with suppress(asyncio.CancelledError):  # ours, at the end; asyncio would report it as a bug
            await serve(reader, writer)

    server = await asyncio.start_unix_server(handle, sock=sock, limit=limit, start_serving=False)
    try:
        await server.start_serving()
        await asyncio.Event().wait()
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(path.unlink, missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True  # it hangs, with its queue full: it lives all the same
        return True
