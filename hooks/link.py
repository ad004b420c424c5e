"""The link to the daemon: one background thread a rank, one blocking socket."""

from __future__ import annotations

import logging
import os
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

from outlast.hooks.agreement import Agreement
from outlast.hooks.signals import Signals
from outlast.hooks.stream import Lines, Pace, shortened
from outlast.wire.messages import (
    Agree,
    Ask,
    Failed,
    Flush,
    FromHook,
    Hello,
    Park,
    Resume,
    StandDown,
    ToHook,
    WireError,
    decode_to_hook,
    encode,
)

log = logging.getLogger("outlast")

DEFAULT_SOCKET = "/run/outlast/trainer.sock"
FIRST_RETRY_S = 1.0
LAST_RETRY_S = 30.0
URGENT_RETRY_S = 0.25
SEND_S = 10.0
PROGRESS_S = 1.0
# The first step after a start or a takeover is news: look more often until it is there.
FIRST_PROGRESS_S = 0.1
SIGNAL_ANSWER_S = 10.0

Answer = Union[Resume, Park, StandDown]  # noqa: UP007 - evaluated at import


@dataclass(frozen=True)
class Absent:
    """No daemon answered. ``because`` is one line."""

    because: str


def socket_path() -> str:
    """Where the daemon listens: ``OUTLAST_SOCKET``, or the standard place."""
    return os.environ.get("OUTLAST_SOCKET") or DEFAULT_SOCKET


class Link:
    """Speaks with the daemon until closed; a missing daemon is retried quietly, for ever.

    ``hello`` gives the first line of each connection; its epoch is taken from ``epoch``, which every
    Resume sets.
    """

    def __init__(
        self,
        path: str,
        hello: Callable[[int, int], Hello],
        agreement: Agreement,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.epoch = 0
        self.training = False
        self.signals: Signals | None = None
        self.loss: float | None = None
        self.wants_loss = False
        self._path = path
        self._hello = hello
        self._agreement = agreement
        self._clock = clock
        self._sock: socket.socket | None = None
        self._pace = Pace(clock())
        self._first: Answer | Absent | None = None
        self._heard = threading.Condition()
        self._closing = False
        self._asked = False
        self._early: list[tuple[ToHook, float]] = []
        self._quiet_since = clock()
        self._warned: set[str] = set()
        self._wake_r, self._wake_w = os.pipe()
        for end in (self._wake_r, self._wake_w):
            os.set_blocking(end, False)
        self._thread = threading.Thread(target=self._run, name="outlast-link", daemon=True)
        agreement.wake = self.wake
        os.register_at_fork(after_in_child=self._forked)

    def start(self) -> None:
        """Begin to connect, in the background."""
        self._thread.start()

    def wake(self) -> None:
        """Have the thread look at once. Safe in a signal handler."""
        try:
            os.write(self._wake_w, b"w")
        except OSError:
            return  # full: it will wake anyway

    @property
    def live(self) -> bool:
        """A daemon is connected and knows where this rank trains."""
        return self._sock is not None and self.epoch > 0

    @property
    def connected(self) -> bool:
        """A daemon is connected."""
        return self._sock is not None

    def first_answer(self, until: float) -> Answer | Absent:
        """The daemon's first word, or Absent; waits until ``until`` (monotonic seconds) at most."""
        with self._heard:
            while self._first is None and self._clock() < until:
                self._heard.wait(0.05)
            return self._first or Absent("it did not answer in time")

    def next_answer(self, until: float) -> Resume | StandDown | None:
        """Resume or StandDown, once it comes; None if it has not by ``until`` (monotonic seconds)."""
        with self._heard:
            while not isinstance(self._first, (Resume, StandDown)) and self._clock() < until:
                self._heard.wait(0.05)
            return self._first if isinstance(self._first, (Resume, StandDown)) else None

    def say_now(self, message: FromHook) -> None:
        """Say something that is of no use later: without a daemon it is not said."""
        if self.live:
            self._agreement.outbox.append(message)
            self.wake()

    def close(self, last: FromHook | None = None) -> None:
        """Say ``last``, end the connection and the thread; bounded by a second."""
        if last is not None:
            self._agreement.outbox.append(last)
        self._closing = True
        self.wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    # ---- the thread

    def _run(self) -> None:
        delay = FIRST_RETRY_S
        while not self._closing:
            greeted = self.epoch
            try:
                self._talk()
            except (OSError, WireError) as exc:
                self._absent(f"{type(exc).__name__}: {exc}")
            except Exception:  # reported; the thread must live
                log.exception("the link to the daemon failed; it will be tried again")
            finally:
                self._drop()
            delay = FIRST_RETRY_S if self.epoch != greeted else min(LAST_RETRY_S, delay * 2)
            if self._agreement.urgent or self._sent_home():
                delay = URGENT_RETRY_S
            self._idle(delay * random.uniform(0.7, 1.3))  # noqa: S311 - spreads retries, no secret

    def _sent_home(self) -> bool:
        """Parked or pending: what the daemon says next decides whether anything runs at all."""
        return isinstance(self._first, Park) or (
            self.signals is not None and self.signals.pending is not None
        )

    def _talk(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(SEND_S)
            sock.connect(self._path)
            sock.sendall(encode(self._hello(self._agreement.step_count, self.epoch)))
            self._sock = sock
            for message in self._agreement.connected():
                sock.sendall(encode(message))
            lines = Lines(sock)
            while not self._closing:
                ready, _, _ = select.select([sock.fileno(), self._wake_r], [], [], self._timer())
                if self._wake_r in ready:
                    self._drain()
                for line in lines.read() if sock.fileno() in ready else ():
                    self._take(line)
                self._send_due(sock)
            self._send_outbox(sock)
        finally:
            sock.close()

    def _take(self, line: bytes) -> None:
        try:
            message = decode_to_hook(line)
        except WireError as exc:
            self._warn(f"a line of the daemon is not understood and left out: {exc}")
            return
        self._hear(message)

    def _hear(self, message: ToHook) -> None:
        if isinstance(message, (Flush, Agree)):
            self._hear_flush(message)
            return
        if isinstance(message, Resume):
            self.epoch = message.epoch
        if self.training:
            self._hear_in_training(message)
            return
        if isinstance(self._first, Resume):
            self._early.append((message, self._clock()))
            return
        if isinstance(message, Park):
            log.info("parked: %s", message.reason)
        with self._heard:
            self._first = message
            self._heard.notify_all()

    def _catch_up(self) -> None:
        """Take what came while the checkpoint was being loaded: only now is the step count right."""
        early, self._early = self._early, []
        for message, at in early:
            self._hear(shortened(message, self._clock() - at))

    def _hear_flush(self, message: Flush | Agree) -> None:
        if not self.training:
            self._early.append((message, self._clock()))
        elif self.epoch == 0 and isinstance(message, Flush):
            self._agreement.outbox.append(Failed(message.id, "this rank has not been told its epoch yet"))
        else:
            self._agreement.hear(message)

    def _hear_in_training(self, message: Resume | Park | StandDown) -> None:
        if isinstance(message, Park):
            log.info("the daemon is not ready for this trainer yet: %s", message.reason)
        elif isinstance(message, StandDown):
            if message.then != "exit" and not message.id:
                self._warn(f"the daemon does not take this rank: {message.reason}")
            self._agreement.hear(message)

    def _send_due(self, sock: socket.socket) -> None:
        if self.training and self._early:
            self._catch_up()
        self._agreement.promise_when_due()
        self._look()
        self._send_outbox(sock)
        self._ask(sock)
        now = self._clock()
        if self.training and now - self._pace.at >= self._pace_s():
            progress = self._pace.next(self._agreement.step_count, now, self.loss)
            self.wants_loss = True
            if progress is not None:
                sock.sendall(encode(progress))

    def _send_outbox(self, sock: socket.socket) -> None:
        while self._agreement.outbox:
            sock.sendall(encode(self._agreement.outbox.popleft()))

    def _ask(self, sock: socket.socket | None) -> None:
        """A signal is pending: ask for a flush once; without any, let the signal through in the end."""
        signals, now = self.signals, self._clock()
        # What a daemon that is gone has not answered yet is nothing to wait for.
        waits = self._agreement.urgent if sock is not None else self._agreement.busy
        if signals is None or signals.pending is None or waits:
            self._quiet_since = now
        if signals is None or signals.pending is None:
            return
        if not self._asked and sock is not None:
            self._asked = True
            sock.sendall(encode(Ask(f"signal {signals.pending}")))
        elif now - self._quiet_since > SIGNAL_ANSWER_S:
            log.warning("signal %d was held, but the daemon did not answer", signals.pending)
            signals.let_through()

    def _look(self) -> None:
        """Hear what other nodes have called for."""
        if self.training and self.epoch > 0:
            self._agreement.look()

    def _timer(self) -> float:
        due = self._agreement.promise_when_due()
        often = min(self._pace_s(), self._agreement.look_s)
        return often if due is None else min(often, due)

    def _pace_s(self) -> float:
        return PROGRESS_S if self._pace.stepped or not self.training else FIRST_PROGRESS_S

    def _absent(self, because: str) -> None:
        with self._heard:
            if self._first is None:
                self._first = Absent(because)
            self._heard.notify_all()
        if self.training:
            log.debug("the daemon is not there: %s", because)

    def _drop(self) -> None:
        if self._sock is not None:
            self._sock = None
            self._asked = False
            self._agreement.lost()

    def _idle(self, seconds: float) -> None:
        until = self._clock() + seconds
        while not self._closing and (left := until - self._clock()) > 0:
            select.select([self._wake_r], [], [], min(left, PROGRESS_S, self._agreement.look_s))
            self._drain()
            self._look()
            self._agreement.promise_when_due()
            self._ask(None)

    def _drain(self) -> None:
        try:
            os.read(self._wake_r, 4096)
        except OSError:
            return

    def _warn(self, text: str) -> None:
        if text not in self._warned and len(self._warned) < 100:
            self._warned.add(text)
            log.warning(text)

    def _forked(self) -> None:
        # A data loader's worker must not keep the connection open after this rank has died.
        if self._sock is not None:
            self._sock.close()
