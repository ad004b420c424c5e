"""``outlast receive``: the one thing a sender's key may run here. Standard library only, for a quick start.

As an sshd forced command it serves one session on its standard input and output. Whatever the client asked
to run is ignored, but for the bulk form, for which rsync is started with arguments of our own.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlast.daemon.ship.landing import Landing, RefusedError, SenderGoneError
from outlast.daemon.ship.protocol import (
    BAD_REQUEST,
    BULK_COMMAND,
    MAX_LINE,
    Commit,
    ProtocolError,
    Reading,
    Refusal,
    Request,
    Stats,
    encode,
    parse_request,
    refusal_body,
)
from outlast.daemon.ship.serving import Serving
from outlast.providers.base import SystemClock
from outlast.wire.manifest import ManifestError, check_name, check_staged

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name

IDLE_S = 30.0
_READ = 1024 * 1024
# Of a request that is not a manifest's: most are a tenth of that.
_LINE = 2048
# As an rsync client of 3.1 or later would ask for: whole files, in place, paths relative to the folder. No
# links, devices, owners or deletions; times are not kept either, as nothing here goes by them.
RSYNC_SERVER = ("rsync", "--server", "-WIRe.LsfxC", "--inplace", "--timeout=60", ".", ".")
_EXAMPLE = """\
example, one line of authorized_keys on the peer:
  command="outlast receive --root /var/lib/outlast/replicas --job gpt",restrict ssh-ed25519 AAAA... outlast
"""


class SenderSilentError(Exception):
    """Nothing came from the sender for too long."""


class Wire:
    """Bounded lines and raw bytes from a file descriptor, with a limit on silence in seconds."""

    def __init__(self, fd: int, idle_s: float = IDLE_S) -> None:
        self._fd = fd
        self._idle_s = idle_s
        self._buffer = bytearray()
        with suppress(OSError):  # of a socket, or more than an administrator allows
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _READ)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def line(self) -> bytes | None:
        """The next line without its newline, None at the end. Raises ProtocolError if it is too long."""
        seen = 0
        while (end := self._buffer.find(b"\n", seen)) < 0:
            seen = len(self._buffer)
            if seen > MAX_LINE:
                raise ProtocolError(f"line of more than {MAX_LINE} bytes")
            # What is read beyond a line is copied more than once, and mostly it is a chunk's bytes.
            chunk = self._more(_READ if seen else _LINE)
            if not chunk:
                return None
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def read(self, most: int) -> bytes:
        """The next 1 to ``most`` bytes, none at the end."""
        if self._buffer:
            chunk = bytes(self._buffer[:most])
            del self._buffer[:most]
            return chunk
        return self._more(most)

    def readinto(self, buffer: memoryview) -> int:
        """Fill 1 or more bytes of ``buffer`` and return how many, 0 at the end."""
        if self._buffer:
            count = min(len(buffer), len(self._buffer))
            buffer[:count] = self._buffer[:count]
            del self._buffer[:count]
            return count
        if not self._poll.poll(self._idle_s * 1000):
            raise SenderSilentError
        return os.readv(self._fd, [buffer])

    def _more(self, most: int) -> bytes:
        if not self._poll.poll(self._idle_s * 1000):
            raise SenderSilentError
        return os.read(self._fd, most)


def serve(landing: Landing, wire: Wire, out: int, *, reading: bool = True) -> int:
    """Answer requests until the sender is done, gone or silent; returns the exit status.

    Without ``reading`` nothing that was sent is given back.
    """
    shelf = Serving(landing.store if reading else None)
    try:
        while (line := wire.line()) is not None:
            request = parse_request(line)
            if isinstance(request, Reading):
                _give(shelf, request, out)
            elif not _serve_one(landing, request, wire, out):
                return 1
    except ProtocolError as exc:
        with suppress(BrokenPipeError, ConnectionResetError):  # who said so may be gone already
            _answer(out, refusal_body(Refusal(BAD_REQUEST, str(exc))))
        return 1
    except (SenderGoneError, SenderSilentError, BrokenPipeError, ConnectionResetError):
        return 1
    return 0


def _give(shelf: Serving, request: Reading, out: int) -> None:
    """Answer a request to read, with the bytes that were asked for."""
    try:
        body, data = shelf.answer(request)
    except RefusedError as exc:
        body, data = refusal_body(Refusal(exc.code, str(exc))), b""
    _answer(out, body)
    _write(out, data)


def _serve_one(landing: Landing, request: Request, wire: Wire, out: int) -> bool:
    """Answer one request. False where bytes of a refused segment are on the way: the session ends."""
    try:
        body = landing.answer(request, wire)
    except RefusedError as exc:
        _answer(out, refusal_body(Refusal(exc.code, str(exc))))
        return exc.in_step or not isinstance(request, Stats)
    _answer(out, body)
    if isinstance(request, Commit):
        with suppress(RefusedError, OSError):  # what cannot be deleted now is looked at after the next one
            landing.tidy(request.keep, (request.epoch, request.tag))
    return True


def _answer(out: int, body: dict[str, Any]) -> None:
    _write(out, encode(body))


def _write(out: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(out, view) :]


def serve_rsync(landing: Landing, words: list[str]) -> int:
    """Run an rsync that receives into the staging folder of one offered checkpoint, and nowhere else."""
    import subprocess

    try:
        epoch, tag = words
        folder = landing.staging(_whole_number(epoch), check_staged(tag))
        return subprocess.call(RSYNC_SERVER, cwd=folder, env={"PATH": os.defpath, "LC_ALL": "C"})
    except RefusedError as exc:
        print(f"{exc.code}: {exc}", file=sys.stderr)
    except (ValueError, OSError) as exc:
        print(f"{BAD_REQUEST}: {exc}", file=sys.stderr)
    return 1


def _whole_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 17):
        raise ValueError(f"{text!r:.50} is not an epoch")
    return int(text)


def add_parser(subparsers: Subparsers) -> None:
    """Add ``receive`` to the command line."""
    parser = subparsers.add_parser(
        "receive",
        help="take a job's checkpoints from its sender (run by sshd)",
        description="Serve one sender over standard input and output, as the forced command of its key.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve one session. Exit status 0 done, 1 cut off or refused, 2 usage."""
    try:
        job = check_name(args.job, "job")
    except ManifestError as exc:
        print(f"outlast receive: {exc}", file=sys.stderr)
        return 2
    landing = Landing(Path(args.root).absolute() / job, job, SystemClock())
    asked = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    try:
        if asked.startswith(BULK_COMMAND + " "):
            return serve_rsync(landing, asked.split()[1:])
        wire = Wire(sys.stdin.fileno())
        return serve(landing, wire, sys.stdout.fileno(), reading=not args.write_only)
    finally:
        landing.close()


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", required=True, help="folder of replicas; the job's lie in ROOT/JOB")
    parser.add_argument("--job", required=True, help="the one job that may be sent")
    parser.add_argument("--write-only", action="store_true", help="give nothing back: no restore from here")


def main(argv: list[str] | None = None) -> int:
    """``python -m outlast.daemon.ship.receive``: the same without the rest of the command line."""
    parser = argparse.ArgumentParser(prog="outlast receive")
    _arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
