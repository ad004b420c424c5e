"""What systemd is told, and how often it wants to hear it (sd_notify(3)), without a library."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from outlast.providers.base import Clock

STATUS_LIMIT = 400


class Notifier:
    """Sends notifications, never blocks, never raises; does nothing where systemd did not ask.

    A change of state that cannot be sent now (the socket is full) goes with the next message.
    """

    def __init__(self, env: Mapping[str, str], clock: Clock) -> None:
        self._address = _address(env.get("NOTIFY_SOCKET", ""))
        self._clock = clock
        self._owed: list[str] = []
        self.watchdog_interval_s = _watchdog_interval_s(env) if self._address else None

    @property
    def active(self) -> bool:
        """Whether somebody listens."""
        return self._address is not None

    def ready(self, status: str) -> None:
        """The daemon serves; also ends a reload."""
        self._change("READY=1", _status(status))

    def reloading(self) -> None:
        """A reload begins; ``ready`` ends it."""
        self._change("RELOADING=1", f"MONOTONIC_USEC={round(self._clock.monotonic() * 1_000_000)}")

    def stopping(self, status: str) -> None:
        """The daemon is on its way out."""
        self._change("STOPPING=1", _status(status))

    def status(self, text: str) -> None:
        """The sentence that ``systemctl status`` shows; cut to one line."""
        self._send(_status(text))

    def watchdog(self) -> None:
        """A sign of life; due at least every ``watchdog_interval_s``, which is half of what is allowed."""
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Ask for ``seconds`` more, from now, before the start or the stop counts as hung."""
        self._send(f"EXTEND_TIMEOUT_USEC={max(0, round(seconds * 1_000_000))}")

    def _change(self, *lines: str) -> None:
        if not self._send(*lines):
            self._owed += lines

    def _send(self, *lines: str) -> bool:
        if self._address is None:
            return True
        message = "\n".join([*self._owed, *lines]).encode()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(message, self._address)
        except OSError:
            return False
        self._owed.clear()
        return True


def _address(text: str) -> str | bytes | None:
    if text.startswith("@"):
        return b"\0" + os.fsencode(text[1:])
    return text if text.startswith("/") else None


def _status(text: str) -> str:
    """One line: a newline would start another assignment."""
    return "STATUS=" + " ".join(text.encode("utf-8", "replace").decode().split())[:STATUS_LIMIT]


def _watchdog_interval_s(env: Mapping[str, str]) -> float | None:
    try:
        allowed_s = int(env["WATCHDOG_USEC"]) / 1_000_000
        owner = int(env.get("WATCHDOG_PID", os.getpid()))
    except (KeyError, ValueError):
        return None
    return allowed_s / 2 if allowed_s > 0 and owner == os.getpid() else None
