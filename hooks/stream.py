"""What crosses the link's socket: lines out of a stream, and the pace of the steps as progress."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

from outlast.wire.messages import MAX_LINE, Flush, Progress, ToHook, WireError


def shortened(message: ToHook, seconds: float) -> ToHook:
    """A flush that has waited ``seconds`` before it is looked at has so much less time left."""
    if not isinstance(message, Flush) or message.seconds_left is None:
        return message
    return replace(message, seconds_left=message.seconds_left - seconds)


class Pace:
    """Step seconds, from what two looks at the step count show."""

    def __init__(self, now: float) -> None:
        self.at = now
        self._since = now
        self._step: int | None = None
        self.stepped = False  # a step was completed since the first look

    def next(self, step: int, now: float, loss: float | None) -> Progress | None:
        """What to tell; None while no step was completed since the last time."""
        self.at = now
        before, since = self._step, self._since
        if step == before:
            return None
        self._step, self._since, self.stepped = step, now, before is not None
        seconds = 0.0 if before is None else (now - since) / max(1, step - before)
        return Progress(step, seconds, loss)


class Lines:
    """Splits what arrives into lines; a line that has no end is refused."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._rest = b""

    def read(self) -> Iterator[bytes]:
        """The lines complete so far. Raises OSError at the end of the stream, WireError when too long."""
        data = self._sock.recv(MAX_LINE)
        if not data:
            raise ConnectionResetError("the daemon closed the connection")
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE:
            raise WireError(f"a line longer than {MAX_LINE} bytes")
        return iter(lines)
