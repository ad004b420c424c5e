"""What goes wrong in one process, at a chosen call to the file system: a kill, a full disk, an error, a halt.

Python tells its audit hooks of a call before it is made, so a death can be appointed between any two of them,
also inside a deletion or a lock, and the code under test knows nothing of it.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["none", "die", "full", "fail", "halt", "short"]

_MAKES = {"open", "os.mkdir", "os.link"}
_CHANGES = _MAKES | {"os.rename", "os.remove", "os.rmdir", "os.truncate", "fcntl.flock"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Mishap:
    """``die``, ``fail`` (EIO once) and ``halt`` (SIGSTOP once) come at the ``at``-th call that changes
    something, counted from 0; ``full`` refuses whatever needs room from then on. With ``short`` no file can
    grow beyond ``at`` KiB: a write ends early and the next one fails."""

    kind: Kind = "none"
    at: int = 0

    def arm(self, tell: Callable[[], None]) -> Callable[[], None]:
        """From now on, in this process, for good. ``tell`` is called before a halt.

        Returns what counts a call that no audit hook hears of.
        """
        trap = _Trap(self, tell)
        if self.kind == "short":
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.at * 1024, self.at * 1024))
        elif self.kind != "none":
            sys.addaudithook(trap.hear)
        return trap.strike


class _Trap:
    def __init__(self, mishap: Mishap, tell: Callable[[], None]) -> None:
        self._mishap = mishap
        self._tell = tell
        self._seen = 0
        self._lock = threading.Lock()

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """The audit hook."""
        if event in _CHANGES and (event != "open" or _writes(args)):
            self.strike(makes=event in _MAKES)

    def strike(self, *, makes: bool = True) -> None:
        """One call that changes something is about to be made."""
        with self._lock:
            due = self._seen - self._mishap.at
            self._seen += 1
        kind = self._mishap.kind
        if kind == "die" and due >= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "halt" and due == 0:
            self._tell()
            os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "fail" and due == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if kind == "full" and due >= 0 and makes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _writes(args: tuple[Any, ...]) -> bool:
    path, _, flags = args
    if isinstance(path, int) or not isinstance(flags, int):
        return False
    return bool(flags & _WRITING) and not os.fsdecode(path).startswith("/dev/")


NONE = Mishap()
