"""The guard a training loop holds: what happens at a step boundary. Knows no training framework."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol

from outlast.hooks.agreement import Agreement
from outlast.hooks.ballot import Ballot, BallotError, gather
from outlast.hooks.flushes import Leave, Save
from outlast.hooks.link import Link
from outlast.hooks.resume import Origin
from outlast.hooks.signals import Signals
from outlast.wire.messages import Done, Failed, Progress, Saved

log = logging.getLogger("outlast")

# Ranks come to the agreed boundary within a step's skew of each other.
READY_S = 20.0
# The longest pause of shipping that a daemon grants.
PAUSE_S = 60.0


class Saver(Protocol):
    """Writes this rank's part of a checkpoint."""

    def save(self, key: str, step: int, epoch: int) -> str:
        """Save; every rank calls it with the same arguments. Returns the tag; raises if it could not."""
        ...


class Guard:
    """Protects one rank's training loop. Call ``step()`` after each optimizer step.

    ``step_count`` is the number of steps completed, which is the data position; ``epoch`` the job's epoch,
    0 before a daemon has told it; ``resumed_from`` the tag that was loaded, or None.
    """

    def __init__(
        self,
        agreement: Agreement,
        link: Link,
        ballot: Ballot,
        saver: Saver,
        *,
        resumed_from: str | None = None,
        exit_on_stand_down: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resumed_from = resumed_from
        self._agreement = agreement
        self._link = link
        self._ballot = ballot
        self._saver = saver
        self._exits = exit_on_stand_down
        self._clock = clock
        self._signalled = 0
        self._closed = False
        self.signals = Signals(lambda: link.live, link.wake)

    @classmethod
    def begin(
        cls,
        agreement: Agreement,
        link: Link,
        ballot: Ballot,
        saver: Saver,
        origin: Origin,
        *,
        exit_on_stand_down: bool = True,
    ) -> Guard:
        """What was resumed is in place: hold signals, and let the link take requests."""
        if link.epoch == 0:
            link.epoch = origin.epoch
        guard = cls(
            agreement, link, ballot, saver, resumed_from=origin.tag, exit_on_stand_down=exit_on_stand_down
        )
        if guard.signals.install():
            link.signals = guard.signals
        link.training = True
        link.wake()
        if ballot.rank == 0:
            source = origin.tag or "scratch"
            log.info("the job begins at step %d, epoch %d, from %s", origin.step, guard.epoch, source)
        return guard

    @property
    def step_count(self) -> int:
        """Steps completed."""
        return self._agreement.step_count

    @property
    def epoch(self) -> int:
        """The job's epoch; 0 before a daemon has told it."""
        return self._link.epoch

    def step(self, loss: Any = None) -> bool:
        """One optimizer step is complete. Costs one look at a flag unless the daemon asked for something.

        Returns True to train on. When the job has moved on it raises SystemExit(0), or, with
        ``exit_on_stand_down=False``, returns False: leave the loop. Raises nothing else.
        """
        agreement = self._agreement
        agreement.step_count += 1
        if agreement.asked:
            return self._boundary()
        if loss is not None and self._link.wants_loss:
            self._note(loss)
        return True

    def check(self) -> bool:
        """Call every few seconds, on every rank, in a long phase between two steps; returns as ``step()``.

        The first call says that the phase has begun. If a flush comes after it, and all ranks call
        ``check()`` within 5 s (a quarter of the time left, if that is less), they save at the current step
        count; otherwise at the end of the next step. What the phase itself has done is not saved: on resume
        training goes on with the next step, with random numbers as they were at this call.
        """
        agreement = self._agreement
        agreement.phase = agreement.step_count
        return self._boundary() if agreement.asked else True

    @contextmanager
    def pause_shipping(self, seconds: float = PAUSE_S) -> Iterator[None]:
        """Within the block the daemon sends next to nothing to the peer: the network is the trainer's own.

        It lasts for ``seconds`` at most, a minute in any case, and until every rank that asked has left its
        block. A notice of the provider overrides it. It waits for nothing: what is on its way still arrives.
        """
        self._link.say_now(Progress(self.step_count, pause_s=float(seconds)))
        try:
            yield
        finally:
            self._link.say_now(Progress(self.step_count, pause_s=0.0))

    def close(self) -> None:
        """Training has ended by itself: tell the daemon, and hold no signal any longer."""
        self._end(Done(self.step_count))

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        # A loop left by an error or an exit has not come to its end.
        self._end(None if kind is not None else Done(self.step_count))

    def _end(self, last: Done | None) -> None:
        if not self._closed:
            self._closed = True
            self.signals.restore()
            self._link.close(last)

    def _note(self, loss: Any) -> None:
        """Take the loss for the next progress, once a second, and never wait for a GPU to compute it."""
        self._link.wants_loss = False
        try:
            if isinstance(loss, (float, int)) or loss.device.type == "cpu":
                self._link.loss = float(loss)
        except Exception as exc:  # noqa: BLE001 - whatever the loop passes must not end it
            log.debug("the loss is not a number: %s", exc)

    def _boundary(self) -> bool:
        try:
            while (todo := self._agreement.meet()) is not None:
                if isinstance(todo, Leave):
                    return self._leave(todo)
                self._flush(todo)
            self._heed_signal()
        except Exception:  # reported; never raised into the training loop
            log.exception("the hook failed; training goes on")
        return True

    def _leave(self, todo: Leave) -> bool:
        if not self._closed:
            log.warning("training ends here, after step %d: %s", self.step_count, todo.reason)
        self._end(None)
        if self._exits:
            raise SystemExit(0)
        return False

    def _heed_signal(self) -> None:
        """The flush is over: die of the signal that was held, if it was saved and committed or not."""
        number = self._signalled or self.signals.pending
        if not number:
            return
        if self._agreement.committed_step == self.step_count:
            log.warning("signal %d: saved and committed at step %d; leaving", number, self.step_count)
            self._end(None)
            raise SystemExit(128 + number)
        if self._signalled:  # saved for the signal, but never committed
            self._signalled = 0
            self.signals.let_through()

    def _flush(self, todo: Save) -> None:
        answer: Saved | Failed
        began = self._clock()
        try:
            why = self._vote(todo)
            if why:
                answer = Failed(todo.order.id, why)
            else:
                tag = self._saver.save(f"{todo.order.id}/{todo.step}", todo.step, self.epoch)
                took = self._clock() - began
                answer = Saved(todo.order.id, todo.step, tag, took, hold=todo.order.hold)
                log.info("saved %s in %.2f s: %s", tag, answer.seconds, todo.order.reason)
        except Exception as exc:  # noqa: BLE001 - a disk that is full must not end the training
            answer = Failed(todo.order.id, f"{type(exc).__name__}: {exc}"[:1000])
        if isinstance(answer, Failed):
            log.warning("flush %s failed: %s; training goes on", todo.order.id, answer.reason)
        self._agreement.answered(answer, hold=todo.order.hold or self._signalled > 0)

    def _vote(self, todo: Save) -> str:
        """All ranks save or none does. Returns why not, or an empty text."""
        key, flush_id = f"{todo.order.id}/{todo.step}", todo.order.id
        mine = f"{self.epoch}:{self.signals.pending or 0}"
        self._ballot.post(f"ready/{key}/{self._ballot.rank}", mine)

        def stop() -> bool:
            decided = self._ballot.read(f"verdict/{key}") is not None
            return decided or self._agreement.called_off(flush_id)

        said = gather(self._ballot, f"ready/{key}", self._clock() + READY_S, stop, self._clock)
        if self._ballot.decide(f"verdict/{key}", _proposal(said)) != "save":
            return "not every rank came to the agreed step in time, or their epochs differ"
        # Decided "save" means that all have posted: this read cannot miss one.
        said = gather(self._ballot, f"ready/{key}", self._clock(), clock=self._clock)
        if said is None:
            raise BallotError(f"the votes for {key} are gone")
        self._signalled = max(int(vote.partition(":")[2]) for vote in said)
        return ""


def _proposal(said: list[str] | None) -> str:
    epochs = {vote.partition(":")[0] for vote in said or ()}
    return "save" if len(epochs) == 1 and epochs != {"0"} else "skip"
