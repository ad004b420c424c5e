"""Where the training thread and the link's thread meet: one flag, and what it stands for.

The link's thread calls ``hear`` with the daemon's words; the training thread calls ``meet`` at a step
boundary, and only when ``asked`` is set. No socket and no torch here.

How ranks agree without a collective. A flush reaches each rank's link thread, which promises at once the
step whose end the rank will not pass (``At``): the step in progress. When all have promised, the daemon
says ``Agree(T)`` with T the highest promise. A rank waits only at the end of its promised step, which is
at most T, and only for words between threads; so the rank with the highest promise can always reach it.
A rank whose daemon is lost in between learns T from another rank through the ballot, or gives up.

On several nodes no daemon hears all ranks: flushes and promises go through ``Calls``, and T is read there.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from outlast.hooks.ballot import Ballot, BallotError
from outlast.hooks.calls import Calls
from outlast.hooks.flushes import WAIT_AT_LEAST_S, Leave, Leaving, OpenFlush, Order, Save
from outlast.wire.messages import Agree, At, Failed, Flush, FromHook, Saved, StandDown

log = logging.getLogger("outlast")

# These bound the wait for a daemon that is lost or says nothing more.
RECONNECT_S = 10.0
HELD_LOST_S = 60.0
HELD_AT_MOST_S = 900.0
CHECK_S = 5.0
LEAVE_S = 10.0
SLICE_S = 0.05


class Agreement:
    """One rank's side of a flush. ``asked`` is the one flag a step looks at; ``step_count`` counts steps.

    ``wake`` is called, without the lock, when there is something to send. ``several``: the ranks of the job
    are on several nodes.
    """

    def __init__(
        self, ballot: Ballot, clock: Callable[[], float] = time.monotonic, *, several: bool = False
    ) -> None:
        self.asked = False
        self.step_count = 0
        self.phase = -1  # the step count at which check() was last called
        self.outbox: deque[FromHook] = deque()
        self.wake: Callable[[], None] = lambda: None
        self._ballot = ballot
        self._clock = clock
        self._calls = Calls(ballot, clock) if several else None
        self._later: deque[Order] = deque()
        self._unsaid: deque[Callable[[Calls], None]] = deque()
        self._cond = threading.Condition()
        self._flush: OpenFlush | None = None
        self._exit: Leaving | None = None
        self._unanswered: Saved | Failed | None = None
        self._at_boundary = False
        self._connected = False
        self._lost_at = clock()
        self.committed_step = -1

    # ---- the link's thread

    def hear(self, message: Flush | Agree | StandDown) -> None:
        """Take the daemon's word. Never blocks for long; replies are put into ``outbox``."""
        if isinstance(message, Flush) and self._calls is not None:
            self._call(self._calls, message)
            return
        with self._cond:
            if isinstance(message, Flush):
                self._hear_flush(message)
            elif isinstance(message, Agree):
                self._hear_agree(message)
            else:
                self._hear_stand_down(message)
            self._cond.notify_all()
        # Outside the lock: the training thread must not wait for the register.
        if isinstance(message, Agree):
            self._share(message)
        elif self._exit is not None:
            self._post_exit(self._exit)
        self._tell_others()

    @property
    def look_s(self) -> float:
        """How often to ``look``, in seconds; never on one node."""
        return self._calls.look_s if self._calls is not None else math.inf

    def look(self) -> None:
        """Hear what other nodes have called for. For the link's thread, while the trainer trains."""
        calls = self._calls
        if calls is None:
            return
        try:
            new = calls.look()
            with self._cond:
                for flush in new:
                    self._hear_flush(flush)
                current = self._flush
            off = calls.ended(current.order.id) if current is not None else None
            if current is not None and off is not None:
                self._ended_elsewhere(current, off)
        except BallotError as exc:
            log.debug("the other nodes cannot be heard: %s", exc)
        self._tell_others()

    def _call(self, calls: Calls, message: Flush) -> None:
        """The daemon of this node wants all nodes to save."""
        with self._cond:
            flush = self._flush
            answered = self._unanswered
            if flush is not None and flush.order.id == message.id:
                self._repeat(flush)
            elif answered is not None and answered.id == message.id:
                self.outbox.append(answered)
            elif calls.known(message.id) and all(order.id != message.id for order in self._later):
                self.outbox.append(Failed(message.id, "this flush was given up before"))
        try:
            new = calls.put(message)
        except BallotError as exc:
            self.outbox.append(Failed(message.id, f"the other nodes cannot be told: {exc}"))
            return
        with self._cond:
            for flush_ in new:
                self._hear_flush(flush_)
            self._cond.notify_all()
        self._tell_others()

    def _ended_elsewhere(self, flush: OpenFlush, why: str) -> None:
        with self._cond:
            if self._flush is not flush:
                return
            if flush.answer is None:
                self._unanswered = Failed(flush.order.id, why)
                self.outbox.append(self._unanswered)
            log.info("flush %s: another node trains on: %s", flush.order.id, why)
            self._over(None)
            self._cond.notify_all()

    def _tell_others(self) -> None:
        """Write what was promised or ended since into the register; never under the lock.

        What cannot be written now is tried again at the next look: without a promise all would wait for it.
        """
        while self._calls is not None and self._unsaid:
            try:
                self._unsaid[0](self._calls)
            except BallotError as exc:
                log.debug("the other nodes cannot be told: %s", exc)
                return
            self._unsaid.popleft()

    def connected(self) -> list[FromHook]:
        """A new connection is greeted: what must be said again on it."""
        with self._cond:
            self._connected = True
            again: list[FromHook] = [self._unanswered] if self._unanswered else []
            flush = self._flush
            if flush and flush.answer is None and flush.at is not None and flush.agreed is None:
                again.append(self._at_word(flush.order, flush.at))
            self.outbox.clear()
            self._cond.notify_all()
            return again

    def lost(self) -> None:
        """The connection is gone; waits at a boundary become bounded."""
        with self._cond:
            if self._connected:
                self._connected, self._lost_at = False, self._clock()
            self._cond.notify_all()

    @property
    def busy(self) -> bool:
        """A flush is open, or holds the ranks: both end by themselves, whether a daemon is there or not."""
        return self._flush is not None

    @property
    def urgent(self) -> bool:
        """A flush is open: reconnect without delay."""
        return self._flush is not None or self._unanswered is not None

    def promise_when_due(self) -> float | None:
        """Give the promise that waited for ``check()`` once its time is over; else the seconds left."""
        with self._cond:
            flush = self._flush
            if flush is None or flush.at is not None or flush.answer is not None:
                return None
            left = self._check_until(flush) - self._clock()
            if left > 0:
                return left
            self._promise(flush, self.step_count + 1)
            return None

    def _hear_flush(self, message: Flush) -> None:
        flush = self._flush
        if flush is not None and flush.order.id == message.id:
            # Asked again after a reconnect: say again what was promised.
            self._repeat(flush)
            return
        now = self._clock()
        deadline = None if message.seconds_left is None else now + message.seconds_left
        order = Order(message.id, message.reason, now, deadline, message.hold)
        if self._calls is not None and flush is not None and flush.answer is None:
            self._later.append(order)  # one after another, in the order that all ranks see
        else:
            self._open(order)

    def _open(self, order: Order) -> None:
        # Before step_count is read: either this rank's step sees the flag, or we see its count.
        self.asked = True
        held = self._flush
        if self._calls is not None and held is not None and held.answer is not None:
            # What holds the ranks holds them still, whatever they save on the way.
            order = replace(order, hold=True, deadline=order.deadline or held.order.deadline)
        new = self._flush = OpenFlush(order)
        if self._at_boundary:
            self._promise(new, self.step_count)
        elif self.phase != self.step_count:
            self._promise(new, self.step_count + 1)
        # else: a long phase that calls check(); see promise_when_due

    def _over(self, held: OpenFlush | None) -> None:
        """The flush is over, or only holds the ranks: the next one that was called is taken up."""
        self._flush = held
        if self._later:
            # Ranks are waited for from now on, however long the one before it took.
            self._open(replace(self._later.popleft(), asked_at=self._clock()))

    def _repeat(self, flush: OpenFlush) -> None:
        if flush.answer is not None:
            self.outbox.append(flush.answer)
        elif flush.at is not None:
            self.outbox.append(self._at_word(flush.order, flush.at))

    def _promise(self, flush: OpenFlush, step: int) -> None:
        flush.at, order = step, flush.order
        self.outbox.append(self._at_word(order, step))
        if self._calls is not None:
            self._unsaid.append(lambda calls: calls.promise(order.id, step))

    def _at_word(self, order: Order, step: int) -> At:
        """On several nodes it tells as well what was asked: the daemon may not have asked for it itself."""
        if self._calls is None:
            return At(order.id, step)
        left = None if order.deadline is None else max(0.0, order.deadline - self._clock())
        return At(order.id, step, order.reason[:200], left, order.hold)

    def _check_until(self, flush: OpenFlush) -> float:
        deadline = flush.order.deadline
        left = CHECK_S if deadline is None else (deadline - flush.order.asked_at) / 4
        return flush.order.asked_at + min(CHECK_S, max(0.0, left))

    def _hear_agree(self, message: Agree) -> None:
        flush = self._flush
        if flush is None or flush.order.id != message.id or flush.answer is not None:
            return
        if flush.at is not None and message.step >= flush.at:
            flush.agreed = message.step
        else:
            log.warning("flush %s: step %d was agreed below this rank's promise", message.id, message.step)

    def _hear_stand_down(self, message: StandDown) -> None:
        last = self._unanswered
        if last and message.id == last.id:
            self._unanswered = None
            if message.committed and isinstance(last, Saved):
                self.committed_step = last.step
        flush = self._flush
        mine = flush is not None and message.id in ("", flush.order.id)
        if message.then == "exit":
            self._hear_exit(message, flush)
        elif mine:
            if flush is not None and (flush.answer is None or flush.order.hold):
                self._end_everywhere(flush, message.reason)
            self._over(None)
        self._later = deque(order for order in self._later if order.id != message.id)

    def _end_everywhere(self, flush: OpenFlush, why: str) -> None:
        if self._calls is not None:
            flush_id = flush.order.id
            self._unsaid.append(lambda calls: calls.end(flush_id, why[:200]))

    def _hear_exit(self, message: StandDown, flush: OpenFlush | None) -> None:
        if self._exit is not None:
            return
        held = flush is not None and flush.answer is not None and self._at_boundary
        self.asked = True
        at = self.step_count if self._at_boundary else self.step_count + 1
        # Held ranks are all at one boundary and leave at once; others agree on the step first.
        self._exit = Leaving(message.reason, at, self._clock() + (0.0 if held else LEAVE_S))
        self._flush, self._unanswered = None, None
        self._later.clear()

    def _post_exit(self, leaving: Leaving) -> None:
        try:
            self._ballot.post(f"exit/{self._ballot.rank}", str(leaving.at))
        except BallotError:
            leaving.until = 0.0  # nobody to agree with

    def _share(self, agree: Agree) -> None:
        """Tell ranks that lose the daemon in between what was agreed."""
        try:
            self._ballot.post(f"agreed/{agree.id}", str(agree.step))
        except BallotError as exc:
            log.warning("flush %s: the other ranks cannot be told: %s", agree.id, exc)

    # ---- the training thread

    def meet(self) -> Save | Leave | None:
        """What to do at this boundary: save, leave, or (None) train on. Waits, bounded, for the daemon.

        Called with ``asked`` set, when ``step_count`` steps are complete and the next has not begun.
        """
        with self._cond:
            self._at_boundary = True
            todo = self._meet()
            # A rank that saves or leaves is still at its boundary until it comes back with nothing to do.
            self._at_boundary = todo is not None
            return todo

    def _meet(self) -> Save | Leave | None:
        while True:
            if self._exit is not None:
                return self._leaving(self._exit)
            if self._flush is None:
                self.asked = False
                return None
            order = self._flush.order
            todo = self._at(self._flush)
            if todo == "save":
                return Save(order, self.step_count)
            if todo == "go":
                return None
            self._cond.wait(SLICE_S)

    def answered(self, answer: Saved | Failed, hold: bool) -> None:
        """This rank has saved or not; tell the daemon, again after each reconnect until it has answered."""
        with self._cond:
            self._unanswered = answer
            self.outbox.append(answer)
            flush = self._flush
            if flush is not None and flush.order.id == answer.id:
                held = hold and isinstance(answer, Saved)
                if hold and not held:
                    self._end_everywhere(flush, "a rank could not save")  # and does not wait with the others
                flush.answer, flush.held_since = answer, self._clock()
                self._over(flush if held else None)
        self.wake()

    def called_off(self, flush_id: str) -> bool:
        """The daemon has given this flush up, or another has taken its place."""
        return self._flush is None or self._flush.order.id != flush_id

    def _at(self, flush: OpenFlush) -> str:
        """``go``, ``wait`` or ``save`` at this boundary."""
        if flush.answer is not None:
            return self._held(flush)
        if flush.at is None:
            self._promise(flush, self.step_count)
            self.wake()
        if flush.agreed is None and flush.at is not None and self.step_count >= flush.at:
            return self._unagreed(flush, flush.at)
        if flush.agreed is None or self.step_count < flush.agreed:
            return "go"
        if self.step_count == flush.agreed:
            return "save"
        return self._give_up(flush, f"step {flush.agreed} had passed when it was agreed")

    def _unagreed(self, flush: OpenFlush, at: int) -> str:
        if self.step_count > at:
            return self._give_up(flush, f"step {at} was promised and passed")
        told = self._told(flush)
        if told is not None and told >= at:  # lower ones are of an earlier try of the same flush
            flush.agreed = told
            return self._at(flush)
        now = self._clock()
        if not self._connected and now > self._lost_at + RECONNECT_S:
            return self._give_up(flush, "the daemon was lost before the ranks had agreed")
        if now > flush.order.patience:
            return self._give_up(flush, "no step was agreed in time")
        return "wait"

    def _told(self, flush: OpenFlush) -> int | None:
        try:
            if self._calls is not None:
                return self._calls.agreed(flush.order.id)
            value = self._ballot.read(f"agreed/{flush.order.id}")
        except BallotError:
            return None
        return int(value) if value is not None else None

    def _give_up(self, flush: OpenFlush, why: str) -> str:
        log.warning("flush %s is off: %s; training goes on", flush.order.id, why)
        self._unanswered = Failed(flush.order.id, why)
        self.outbox.append(self._unanswered)
        self._end_everywhere(flush, why)
        self._over(None)
        self.wake()
        return self._go()

    def _go(self) -> str:
        """Train on, unless another flush was called meanwhile: the step's end is promised to that one."""
        return "go" if self._flush is None else "wait"

    def _held(self, flush: OpenFlush) -> str:
        now = self._clock()
        deadline = flush.order.deadline
        until = (deadline + HELD_LOST_S) if deadline is not None else flush.held_since + HELD_AT_MOST_S
        if not self._connected:
            until = min(until, max(self._lost_at, flush.held_since) + HELD_LOST_S)
        if now <= max(until, flush.held_since + WAIT_AT_LEAST_S):
            return "wait"
        log.warning("flush %s: saved, but no word of the daemon since; training goes on", flush.order.id)
        self._end_everywhere(flush, "the daemon of a node said no more")
        self._over(None)
        self.wake()
        return self._go()

    def _leaving(self, leaving: Leaving) -> Leave | None:
        """All ranks leave at the end of the highest step any of them was in when it heard."""
        if self.step_count < leaving.at:
            return None
        last = self.step_count
        while self._clock() < leaving.until:
            try:
                said = [self._ballot.read(f"exit/{rank}") for rank in range(self._ballot.world)]
            except BallotError:
                break
            if None not in said:
                last = max(int(step) for step in said if step is not None)
                break
            self._cond.wait(SLICE_S)
        return None if self.step_count < last else Leave(leaving.reason)
