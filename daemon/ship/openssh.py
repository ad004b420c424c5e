"""Sessions through OpenSSH's own client: each a process with a connection, a window and a core of its own.

The bytes of a file pass this process by. What is pinned and what is
offered are the same as for the connection that is kept up.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
from collections.abc import Sequence

from outlast.daemon.checkpoint.destinations import Unreachable
from outlast.daemon.ship.dial import CIPHERS, PeerSettings
from outlast.daemon.ship.protocol import State, encode, request_body
from outlast.daemon.ship.session import Headed, Piece

PIPE_BYTES = 1024 * 1024
_ALIAS = "outlast-peer"
# Prints the one host key that is known, so that no file with it has to be kept.
_ECHO = "/bin/echo"
# Training goes first.
_NICE = 10
_END_S = 5.0


class OpenSsh:
    """Starts clients for one peer, OpenSSH 8.5 or newer."""

    def __init__(self, settings: PeerSettings) -> None:
        self._settings = settings
        # Whether it has got through to the peer: None until tried.
        self.works: bool | None = None

    async def open(self, command: str) -> asyncio.subprocess.Process:
        """Start a client that runs ``command`` at the peer, which has answered. Raises Unreachable."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._arguments(), command,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                limit=PIPE_BYTES, start_new_session=True,
            )  # fmt: skip
        except OSError as exc:
            raise Unreachable(f"ssh cannot be started here: {exc.strerror}") from exc
        _widen(process)
        try:
            await self._greet(process)
        except BaseException:
            await self.end(process, hurry=True)
            raise
        return process

    async def _greet(self, process: asyncio.subprocess.Process) -> None:
        """A client that has started has not got through yet: only the receiver's answer says so."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(encode(request_body(State())))
            await process.stdin.drain()
        try:
            if await process.stdout.readline():
                return
        except ValueError as exc:
            raise Unreachable("ssh got a line without an end for an answer") from exc
        said = (await process.stderr.read(4096)).decode(errors="replace").strip().splitlines()
        raise Unreachable(f"ssh got no answer: {said[-1][:300] if said else 'it said nothing'}")

    async def feed(self, process: asyncio.subprocess.Process, batch: Sequence[Headed]) -> None:
        """See Opener. The files' pages go to the client without a copy here, in a thread."""
        assert process.stdin is not None
        await process.stdin.drain()
        # The thread may outlive this call, so it has a descriptor that nobody else closes.
        pipe = os.dup(process.stdin.transport.get_extra_info("pipe").fileno())
        await asyncio.to_thread(_pour, pipe, batch)

    async def end(self, process: asyncio.subprocess.Process, *, hurry: bool) -> None:
        """See Opener. No client is left behind."""
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(0.0 if hurry else _END_S):
                await process.wait()
        except TimeoutError:
            pass
        finally:  # also where this wait is cut short
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    def _arguments(self) -> list[str]:
        settings = self._settings
        alive = max(1, round(settings.keepalive_s))
        options = {
            "BatchMode": "yes",
            "Ciphers": ",".join(CIPHERS),
            "Compression": "no",
            "ConnectTimeout": str(max(1, round(settings.connect_s))),
            "ControlPath": "none",
            "GlobalKnownHostsFile": "/dev/null",
            "HostKeyAlias": _ALIAS,
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "KnownHostsCommand": f"{_ECHO} {_ALIAS} {' '.join(settings.host_key.split()[:2])}",
            "LogLevel": "ERROR",
            "PreferredAuthentications": "publickey",
            "ServerAliveCountMax": "2",
            "ServerAliveInterval": str(alive),
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": "/dev/null",
        }
        said = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        where = ["-p", str(settings.port), "-i", str(settings.key), f"{settings.user}@{settings.host}"]
        return ["nice", "-n", str(_NICE), "ssh", "-F", "none", "-T", "-a", "-x", *said, *where]


def _pour(pipe: int, batch: Sequence[Headed]) -> None:
    """Write heads and pieces, and close ``pipe``. Ends with BrokenPipeError once the client is gone."""
    try:
        for head, piece in batch:
            fd = piece.open()
            try:
                _write(pipe, head)
                _send(pipe, fd, piece)
            finally:
                os.close(fd)
    finally:
        os.close(pipe)


def _write(pipe: int, head: bytes) -> None:
    view = memoryview(head)
    while view:
        _writable(pipe)
        with contextlib.suppress(BlockingIOError):
            view = view[os.write(pipe, view) :]


def _send(pipe: int, fd: int, piece: Piece) -> None:
    offset, end = piece.offset, piece.offset + piece.size
    while offset < end:
        _writable(pipe)
        with contextlib.suppress(BlockingIOError):
            count = os.sendfile(pipe, fd, offset, end - offset)
            if not count:
                raise piece.shorter()
            offset += count


def _writable(pipe: int) -> None:
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    poll.poll()


def _widen(process: asyncio.subprocess.Process) -> None:
    """Larger pipes, so that the client is not fed in pieces of 64 KiB; an administrator may forbid them."""
    assert process.stdin is not None
    pipe = process.stdin.transport.get_extra_info("pipe")
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
