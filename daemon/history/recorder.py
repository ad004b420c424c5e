"""The history in the event loop: what happens is queued at once and written by one thread, in order."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import structlog

from outlast.daemon.history.db import History
from outlast.daemon.history.rows import Cause, Degraded, FlushStep, Moment, RestoreStep, ShipStep
from outlast.providers.base import Clock, Hint, Identity, Notice

log = structlog.get_logger("outlast.history")

T = TypeVar("T")

# Beyond this many waiting records (some 10 MB) the newest are refused and counted: memory stays bounded.
FULL = 20_000
# A record that waits longer than this says that the disk hangs.
HANGS_S = 10.0


@dataclass(frozen=True, slots=True)
class _Errand:
    at: Moment
    work: Callable[[History], Any]
    answer: asyncio.Future[Any] | None


class Recorder:
    """Owns a History and its thread. Nothing here blocks the loop or raises for the disk's sake."""

    def __init__(self, history: History, clock: Clock) -> None:
        self.spell = 0
        self._history = history
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Errand | None] = queue.SimpleQueue()
        self._current: _Errand | None = None
        self._taken = 0
        self._done = 0
        self._refused = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()
        # A daemon thread: a disk that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="outlast-history", daemon=True)
        self._thread.start()

    @classmethod
    async def open(cls, path: Path, clock: Clock) -> Self:
        """Open the history in a thread and begin to record."""
        return cls(await asyncio.to_thread(History.open, path, clock), clock)

    # ---- recording

    def record(self, work: Callable[[History], object]) -> None:
        """Have ``work`` done in its turn, as of now. Returns at once."""
        self._put(work, None)

    async def ask(self, read: Callable[[History], T]) -> T:
        """The answer of ``read``, after all that was recorded before it. Raises what ``read`` raises."""
        answer: asyncio.Future[T] = self._loop.create_future()
        if not self._put(read, answer):
            raise RuntimeError(f"the history takes no questions: {self.trouble}")
        return await answer

    async def begin(self, identity: Identity, node: str, boot_id: str, drill: bool = False) -> int:
        """Begin or continue this node's spell; ``hint`` and ``heartbeat`` belong to it from now on."""
        self.spell = await self.ask(lambda h: h.begin_spell(identity, node, boot_id, drill))
        return self.spell

    def event(self, kind: str, job: str = "", episode: str = "", **fields: object) -> None:
        """One line of the timeline."""
        self.record(lambda h: h.event(kind, job, episode, **fields))

    def flush(self, job: str, flush_id: str, what: FlushStep, **fields: object) -> None:
        """A flush was asked, agreed, saved, committed or failed."""
        self.record(lambda h: h.flush_event(job, flush_id, what, **fields))

    def ship(self, job: str, epoch: int, tag: str, peer: str, what: ShipStep, **fields: object) -> None:
        """A transfer began, shipped, verified or failed."""
        self.record(lambda h: h.ship_event(job, epoch, tag, peer, what, **fields))

    def restore(self, job: str, restore_id: str, what: RestoreStep, **fields: object) -> None:
        """A restore began, came to its first step, or failed."""
        self.record(lambda h: h.restore_event(job, restore_id, what, **fields))

    def hint(self, hint: Hint) -> None:
        """A hint was seen in this spell."""
        spell = self.spell
        self.record(lambda h: h.hint_seen(spell, hint))

    def notice(self, notice: Notice, deadline_wall: float, boot_id: str, drill: bool = False) -> None:
        """A notice was seen in this spell."""
        spell = self.spell
        self.record(lambda h: h.notice_seen(spell, notice, deadline_wall, boot_id, drill))

    def withdrawn(self, notice_id: str) -> None:
        """A notice of this spell vanished."""
        spell = self.spell
        self.record(lambda h: h.notice_withdrawn(spell, notice_id))

    def heartbeat(self) -> None:
        """This spell's node lives."""
        spell = self.spell
        self.record(lambda h: h.heartbeat(spell))

    def end(self, cause: Cause) -> None:
        """This spell is over."""
        spell = self.spell
        self.record(lambda h: h.end_spell(spell, cause))

    # ---- how it goes

    @property
    def waiting(self) -> int:
        """Records not on the disk yet, those that the disk refused for now included."""
        return self._taken - self._done + self._history.waiting

    @property
    def trouble(self) -> Degraded | None:
        """Why the record is behind or incomplete; None while all is well."""
        if self._history.degraded:
            return self._history.degraded
        if self._refused:
            return Degraded(f"{self._refused} records were lost while the history's disk did not answer")
        current = self._current
        late = 0.0 if current is None else self._clock.monotonic() - current.at.mono
        if late > HANGS_S:
            return Degraded(
                f"the history's disk has not answered for {late:.0f} s; {self.waiting} records wait. "
                "Check the disk that holds the state folder."
            )
        return None

    async def drain(self, deadline: float) -> bool:
        """Wait until all that was recorded is written, at most to ``deadline``; whether it is.

        The deadline is monotonic seconds.
        """
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                await self._idle.wait()
        except TimeoutError:
            log.error("history_not_drained", waiting=self.waiting)
            return False
        return self.waiting == 0

    async def close(self, deadline: float) -> bool:
        """Drain, close the file, end the thread. Safe to call twice; False leaves a hanging disk behind."""
        drained = await self.drain(deadline)
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        if drained:
            await asyncio.to_thread(self._thread.join)
        return drained

    # ---- the thread

    def _put(self, work: Callable[[History], Any], answer: asyncio.Future[Any] | None) -> bool:
        if self._closing or self._taken - self._done >= FULL:
            self._refused += 1
            return False
        self._taken += 1
        self._idle.clear()
        self._queue.put(_Errand(Moment(self._clock.wall(), self._clock.monotonic()), work, answer))
        return True

    def _work(self) -> None:
        while (errand := self._queue.get()) is not None:
            self._current = errand
            result, failure = self._carry_out(errand)
            self._current = None
            try:
                self._loop.call_soon_threadsafe(self._finished, errand, result, failure)
            except RuntimeError:
                break  # the loop is gone, and with it all who could ask
        self._history.close()

    def _carry_out(self, errand: _Errand) -> tuple[Any, Exception | None]:
        try:
            with self._history.at(errand.at):
                return errand.work(self._history), None
        except Exception as exc:  # the thread must live; whoever asked gets the error
            if errand.answer is None:
                log.exception("history_error", hint="please report this")
            return None, exc

    def _finished(self, errand: _Errand, result: Any, failure: Exception | None) -> None:
        self._done += 1
        if self._done == self._taken:
            self._idle.set()
        if errand.answer is None or errand.answer.done():
            return
        if failure is not None:
            errand.answer.set_exception(failure)
        else:
            errand.answer.set_result(result)
