"""Bulk by the rsync binary through the connection that is already there.

rsync starts its remote shell as a child; ours is a bridge that copies between rsync and one end of a socket
pair, whose other end is pumped to a channel. Both directions run at once and each end-of-file is passed on
as a half-close: rsync ends with an exchange in both directions, and a bridge that copies one direction at a
time, or swallows an end-of-file, leaves both sides waiting for each other.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import asyncssh

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.ship.protocol import BULK_COMMAND, CODES, IO, Wanted
from outlast.daemon.ship.session import WRITE_BYTES, Channels, Session
from outlast.wire.store import Committed

_BRIDGE = Path(__file__).with_name("bridge.py")
_RSYNC = ("rsync", "--quiet", "--whole-file", "--ignore-times", "--inplace", "--from0", "--files-from=-")
_STOP_S = 5.0


class Rsync:
    """One rsync for all wanted files; files that broke off are sent again whole."""

    async def send(
        self,
        opener: Channels,
        committed: Committed,
        wanted: tuple[Wanted, ...],
        sent: Callable[[int], None],
    ) -> None:
        """Send the wanted files into the peer's staging folder; only the commit says that they are whole.

        ``sent`` is told of bytes as they leave. Can be cancelled at any time. Raises Unreachable, or
        Refused with the receiver's reason.
        """
        manifest = committed.manifest
        async with Session(opener, f"{BULK_COMMAND} {manifest.epoch} {manifest.staged}") as session:
            ours, theirs = socket.socketpair()
            try:
                process = await _start(committed.path, theirs)
            finally:
                theirs.close()
            try:
                await _run(process, ours, session, wanted, sent)
            finally:
                ours.close()
                await _stop(process)


async def _start(folder: Path, theirs: socket.socket) -> asyncio.subprocess.Process:
    shell = f'"{sys.executable}" -I -S "{_BRIDGE}" {theirs.fileno()}'
    try:
        return await asyncio.create_subprocess_exec(
            *_RSYNC, "-e", shell, f"{folder}/", "peer:.",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            pass_fds=(theirs.fileno(),), env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        )  # fmt: skip
    except FileNotFoundError as exc:
        raise Refused(IO, "rsync is not installed here: install it, or set bulk to channels") from exc


async def _run(
    process: asyncio.subprocess.Process,
    ours: socket.socket,
    session: Session,
    wanted: tuple[Wanted, ...],
    sent: Callable[[int], None],
) -> None:
    reader, writer = await asyncio.open_connection(sock=ours)
    names = b"\0".join(item.path.encode() for item in wanted) + b"\0"
    try:
        async with asyncio.TaskGroup() as group:
            said = group.create_task(process.communicate(names))
            group.create_task(_up(reader, session, sent))
            group.create_task(_down(session, writer))
    except ExceptionGroup as several:
        raise Unreachable(f"the connection broke under rsync: {several.exceptions[0]}") from several
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    _, stderr = said.result()
    if process.returncode:
        raise await _failure(process.returncode, stderr, session)


async def _up(reader: asyncio.StreamReader, session: Session, sent: Callable[[int], None]) -> None:
    stdin = session.process.stdin
    with suppress(BrokenPipeError):  # the far rsync has ended; what it said is on its way down
        while data := await reader.read(WRITE_BYTES):
            stdin.write(data)
            await stdin.drain()
            sent(len(data))
        stdin.write_eof()


async def _down(session: Session, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await session.process.stdout.read(WRITE_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _failure(code: int, stderr: bytes, session: Session) -> Exception:
    theirs = ""
    with suppress(TimeoutError, asyncssh.Error):
        async with asyncio.timeout(_STOP_S):
            theirs = (await session.process.stderr.read(4096)).decode(errors="replace").strip()
    refusal, _, because = theirs.partition(": ")
    if refusal in CODES:
        return Refused(refusal, because)
    lines = (theirs or stderr.decode(errors="replace").strip()).splitlines()
    if any("No space left" in line for line in lines):
        return Refused("no_space", "No space left on device")
    return Unreachable(f"rsync ended with {code}: {lines[0][:300] if lines else 'it said nothing'}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
