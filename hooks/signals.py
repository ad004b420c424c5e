"""SIGTERM and SIGHUP held back until the work is saved.

A handler can run seconds late, inside a collective or with locks held. So it stores the number, wakes the
link's thread by a pipe, and does nothing else.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

log = logging.getLogger("outlast")

HELD = (signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Holds SIGTERM and SIGHUP while ``live()`` says that a daemon is there to save the work.

    A second signal, ``let_through`` and a missing daemon give what was in place before: the previous
    handler, or death. A signal that was ignored before stays ignored. Forked children are not held.
    """

    def __init__(self, live: Callable[[], bool], wake: Callable[[], None]) -> None:
        self.pending: int | None = None
        self._live = live
        self._wake = wake
        self._pid = os.getpid()
        self._before: dict[int, Any] = {}
        self._through = False

    def install(self) -> bool:
        """Install the handlers. False outside the main thread, where Python forbids it."""
        if threading.current_thread() is not threading.main_thread():
            log.warning("signals are not held: protect() was not called in the main thread")
            return False
        for number in HELD:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return True

    def restore(self) -> None:
        """Put the previous handlers back, unless another has been installed since. Main thread only."""
        if os.getpid() != self._pid or threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL if before is None else before)
        self._before.clear()

    def let_through(self) -> None:
        """Have the pending signal do what it would have done without Outlast. From any thread."""
        if self.pending is not None and not self._through:
            self._through = True
            os.kill(self._pid, self.pending)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        held = not self._through and self.pending is None and os.getpid() == self._pid and self._live()
        if held:
            self.pending = number
            self._wake()
            return
        self._as_before(number, frame)

    def _as_before(self, number: int, frame: FrameType | None) -> None:
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
