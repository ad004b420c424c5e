"""Real processes in a few milliseconds: one that has imported everything forks for each life asked for.

    python -m outlast.simulations.zygote SERVER_FD CLIENT_FD

It ends with its standard input. A life is told its program, its arguments and its mishap; it has one socket
as standard input and output, and says on another what became of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from outlast.simulations.mishap import NONE, Mishap

# Of chunks in every life: as small as a manifest may have them, so that small files have many.
CHUNK = 64 * 1024
_MOST = 1 << 16
PATIENCE_S = 20.0


class Zygote:
    """Asks the process that forks; ``log`` gets what lives say on standard error."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._client, self._server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        fds = (self._server.fileno(), self._client.fileno())
        command = [sys.executable, "-B", "-m", __name__, *map(str, fds)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log, pass_fds=fds)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._client.close()
        self._server.close()

    def told(self) -> str:
        """What all lives have said on standard error."""
        return self._log.read_text(errors="replace")

    def bear(
        self,
        program: str,
        args: dict[str, Any],
        mishap: Mishap = NONE,
        stdio: socket.socket | None = None,
    ) -> Life:
        """Start a life; ``stdio`` becomes its standard input and output, else there is none."""
        ours, theirs = socket.socketpair()
        lease, held = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            request(
                self._client,
                {"program": program, "args": args, "mishap": asdict(mishap)},
                (stdio.fileno() if stdio is not None else null, theirs.fileno(), held),
            )
        finally:
            theirs.close()
            os.close(held)
            os.close(null)
        return Life(ours, lease)


def request(client: socket.socket, body: dict[str, Any], fds: tuple[int, int, int]) -> None:
    """Ask for a life with these: its standard input and output, where it says what it came to, its lease."""
    socket.send_fds(client, [json.dumps(body).encode()], fds)


@dataclass
class Life:
    """A process that was started. ``lease`` is at its end once it and all that it started are gone."""

    status: socket.socket
    lease: int
    said: list[str] = field(default_factory=list)
    ended: bool = False
    _buffer: bytes = b""

    def look(self, within_s: float) -> str | None:
        """The next thing that happens to it: ``halted``, or ``ended``; None if nothing did in time."""
        until = time.monotonic() + within_s
        while (line := self._line(until)) is not None:
            if line == "halted":
                return line
            self.said.append(line)
        return "ended" if self.ended else None

    def _line(self, until: float) -> str | None:
        """Its next words; None at its end, or where none came in time."""
        while b"\n" not in self._buffer:
            left = max(0.0, until - time.monotonic())
            if self.ended or not select.select([self.status], [], [], left)[0]:
                return None
            data = self._receive()
            self._buffer += data
            self.ended = not data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def _receive(self) -> bytes:
        try:
            return self.status.recv(_MOST)
        except ConnectionResetError:
            return b""

    @property
    def pid(self) -> int:
        """Of the process."""
        if not self.said:
            line = self._line(time.monotonic() + PATIENCE_S)
            if line is None:
                raise ChildProcessError("no life was started")
            self.said.append(line)
        return int(self.said[0])

    @property
    def outcome(self) -> dict[str, Any] | None:
        """What it came to; None if it was killed."""
        return json.loads(self.said[1]) if len(self.said) > 1 else None

    def go_on(self) -> None:
        """After a halt."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """At once, as a power cut would."""
        self._signal(signal.SIGKILL)

    def gone(self, within_s: float) -> bool:
        """Wait until it and all that it started are gone."""
        until = time.monotonic() + within_s
        while select.select([self.lease], [], [], max(0.0, until - time.monotonic()))[0]:
            if not os.read(self.lease, _MOST):
                return True
        return False

    def close(self) -> None:
        """Forget it."""
        self.status.close()
        os.close(self.lease)

    def _signal(self, number: int) -> None:
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


# ---- in the process that forks


def serve(server: socket.socket, client: socket.socket, programs: dict[str, Callable[..., Any]]) -> None:
    """Fork for each request until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        ready, _, _ = select.select([server.fileno(), 0], [], [])
        if 0 in ready:
            return
        data, fds, _, _ = socket.recv_fds(server, _MOST, 8)
        if os.fork() == 0:
            _live(json.loads(data), fds, client, programs)
        for fd in fds:
            os.close(fd)


def _live(
    body: dict[str, Any], fds: list[int], client: socket.socket, programs: dict[str, Callable[..., Any]]
) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        stdio, status, lease = fds
        for fd in (0, 1):
            os.dup2(stdio, fd)
        os.close(stdio)

        def say(text: str) -> None:
            with contextlib.suppress(OSError):
                os.write(status, f"{text}\n".encode())

        say(str(os.getpid()))
        strike = Mishap(**body["mishap"]).arm(lambda: say("halted"))
        outcome = programs[body["program"]](Surroundings(client, lease, strike), **body["args"])
        say(json.dumps(outcome))
    except BaseException:  # noqa: BLE001 - the life's last words; nothing may run on in the fork
        traceback.print_exc()
    finally:
        os._exit(0)


@dataclass(frozen=True)
class Surroundings:
    """What a life has of its zygote: to ask it for others, the lease they share, its own mishap's count."""

    client: socket.socket
    lease: int
    strike: Callable[[], None]


def main() -> int:
    """Import everything, then fork when asked."""
    from outlast.wire import digests

    digests.CHUNK = CHUNK  # before anybody else has taken the number
    for function in (digests.digest, digests.chunk_digests, digests.chunks_in):
        function.__defaults__ = (CHUNK,)  # they all have it as their one default
    import gc

    from outlast.simulations.lives import PROGRAMS

    server, client = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:3])
    gc.freeze()
    serve(server, client, PROGRAMS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
