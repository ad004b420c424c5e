"""What one job's node knows: ranks, the flush in progress, wishes, what is committed. Facts come from here.

Inputs are plain method calls from the loop's thread; each sets ``changed``, and the keeper plans anew.
Nothing here waits, and nothing here acts.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import replace
from pathlib import Path

import structlog

from outlast.daemon.core.facts import (
    AskFlush,
    Cause,
    Facts,
    FlushFact,
    PeerFact,
    Place,
    Wish,
)
from outlast.daemon.core.notices import Live
from outlast.daemon.core.plan import PATIENCE_S
from outlast.daemon.core.ranks import Ranks
from outlast.daemon.core.record import Record
from outlast.daemon.core.state import JobState
from outlast.daemon.core.trainers import Connection
from outlast.providers.base import Clock, Hint
from outlast.wire.messages import (
    Agree,
    Ask,
    At,
    Done,
    Failed,
    Flush,
    FromHook,
    Progress,
    Saved,
    StandDown,
    ToHook,
)

log = structlog.get_logger("outlast.job")


class Job:
    """One job on this node. ``state`` is what outlives the daemon; the rest is re-derived."""

    def __init__(
        self,
        name: str,
        checkpoints: Path | None,
        every_s: float | None,
        state: JobState,
        clock: Clock,
        record: Record,
    ) -> None:
        self.name = name
        self.checkpoints = checkpoints
        self._folders = _spellings(checkpoints)
        self.state = state
        self.ranks = Ranks()
        self.changed = asyncio.Event()
        self.alarm = asyncio.Event()
        self.hint: Hint | None = None
        self.can_stand_by = False
        self.joining: list[Connection] = []
        self.notice: Live | None = None
        self.notice_since: float | None = None
        self.newest: Place | None = None
        self.flush: FlushFact | None = None
        self.resumed_at: int | None = None
        self.done_step: int | None = None
        self.flush_s: float | None = None
        self.ship_bytes_s: float | None = None
        self.given_up: dict[str, str] = {}
        self.held_for: str | None = None
        self.commit_failed: str | None = None
        self.last_decision = ""
        self.outcomes: dict[str, asyncio.Future[Place | str]] = {}
        self._clock = clock
        self._record = record
        self._every_s = every_s
        self._since: float | None = None
        self._incomplete_since: float | None = None
        self._wishes: list[Wish] = []
        self._answered: list[str] = []
        self._flush_deadline: float | None = None
        self._saw_first_step = False

    # ---- ranks

    def joined(self, connection: Connection) -> str | None:
        """A rank says hello. Returns why it is refused, or None; the keeper answers it."""
        refusal = self._wrong_folder(connection) or self.ranks.refusal(connection)
        if refusal is not None:
            return refusal
        self.ranks.add(connection)
        self.joining.append(connection)
        layout = connection.hello.layout
        self._note_complete()
        if len(self.ranks) == layout.world:
            self._since = self._clock.monotonic()
            self._record.event("trainer_connected", self.name, world=layout.world, step=self.ranks.step)
        self.changed.set()
        return None

    def _wrong_folder(self, connection: Connection) -> str | None:
        if self.checkpoints is None:
            return f"job {self.name} has no checkpoints folder on this node; set jobs.checkpoints"
        said = connection.hello.checkpoints
        if os.path.normpath(said) in self._folders:
            return None
        return f"the trainer saves to {said}, the configuration says {self.checkpoints}: make them agree"

    def said(self, connection: Connection, message: FromHook) -> None:
        """A rank's word, after its hello."""
        match message:
            case Progress():
                self.ranks.progress(connection, message)
                self._note_first_step(message.step)
                return  # steps alone change no decision
            case At():
                self.ranks.at(connection, message)
                self._orphan_at(connection, message)
            case Saved():
                self.ranks.saved(connection, message)
                self._adopt()
            case Failed():
                self.ranks.failed(connection, message)
            case Ask():
                self._signalled(connection, message.reason)
            case Done():
                self.done_step = message.step
                self._record.event("trainer_done", self.name, step=message.step)
            case _:
                return
        self.changed.set()

    def left(self, connection: Connection) -> None:
        """A rank's connection ended."""
        if connection in self.joining:
            self.joining.remove(connection)
        if self.ranks.remove(connection):
            self._note_complete()
            self.changed.set()

    def _note_complete(self) -> None:
        if self._whole() or not len(self.ranks):
            self._incomplete_since = None
        elif self._incomplete_since is None:
            self._incomplete_since = self._clock.monotonic()

    @property
    def has_stepped(self) -> bool:
        """A step was trained since the ranks were told where to resume."""
        return self._saw_first_step

    def expect_first_step(self, resumed_at: int) -> None:
        """The ranks were told to resume here; the next step beyond it is news."""
        self.resumed_at, self._saw_first_step = resumed_at, False

    def _signalled(self, connection: Connection, reason: str) -> None:
        """A rank was told to end. If it is held, its work is safe already: let it go."""
        held = self.held_for
        if held is not None and self.newest is not None and self.newest.flush_id == held:
            self.ranks.send(StandDown(f"committed; {reason}", "train", held, committed=True))
            return
        self._want(f"signal-{connection.pid}-{secrets.token_hex(3)}", Cause.SIGNAL, reason)

    def _note_first_step(self, step: int) -> None:
        if self._saw_first_step or self.resumed_at is None or step <= self.resumed_at:
            return
        self._saw_first_step = True
        self._record.event("first_step", self.name, step=step, epoch=self.state.epoch)

    def _orphan_at(self, connection: Connection, said: At) -> None:
        """A flush asked for by an earlier life of this daemon: let the rank train on."""
        if self.flush is None and self.notice is None:
            connection.send(StandDown("the daemon was restarted; the flush is off", "train", said.id))

    def _adopt(self) -> None:
        """Ranks that saved for an earlier life of this daemon have saved all the same: commit it."""
        saved = self.ranks.all_saved()
        if self.flush is not None or saved is None or saved.id in self.given_up:
            return
        now = self._clock.monotonic()
        cause = (
            Cause.NOTICE if self.notice is not None and self.notice.episode == saved.id else Cause.INTERVAL
        )
        hold = cause is Cause.NOTICE
        self.held_for = saved.id if hold else self.held_for
        self.flush = FlushFact(saved.id, cause, now, now + PATIENCE_S, hold, agreed=saved.step)
        log.info("flush_adopted", job=self.name, flush=saved.id, tag=saved.tag)

    # ---- wishes

    def _want(self, flush_id: str, cause: Cause, reason: str) -> None:
        if cause is Cause.SIGNAL and any(w.cause is Cause.SIGNAL for w in self._wishes):
            return  # a launcher signals all of its ranks; one checkpoint answers them all
        self._wishes.append(Wish(flush_id, cause, reason))
        self.changed.set()

    def ask_checkpoint(self, reason: str) -> asyncio.Future[Place | str]:
        """An operator wants a checkpoint: resolves to where it is, or to why there is none."""
        flush_id = f"operator-{secrets.token_hex(4)}"
        future: asyncio.Future[Place | str] = asyncio.get_running_loop().create_future()
        if not len(self.ranks):
            future.set_result("no trainer is connected")
            return future
        self.outcomes[flush_id] = future
        self._want(flush_id, Cause.OPERATOR, reason)
        return future

    def hinted(self, hint: Hint) -> None:
        """An early word of the provider: one checkpoint, training goes on."""
        self.hint = hint
        self.alarm.set()
        if len(self.ranks):
            self._want(hint.id, Cause.HINT, f"hint: {hint.kind}")

    def noticed(self, live: Live | None) -> None:
        """The most urgent notice is now this one, or none."""
        if live != self.notice:
            if live is None or self.notice is None or live.episode != self.notice.episode:
                self.notice_since = self._clock.monotonic() if live else None
            self.notice = live
            self.alarm.set()
            self.changed.set()

    # ---- the flush

    def asked(self, ask: AskFlush) -> None:
        """The flush is asked for; it answers every open wish, since it saves later than they wished."""
        now = self._clock.monotonic()
        self.flush = FlushFact(ask.id, ask.cause, now, ask.give_up_at, ask.hold)
        self._flush_deadline = ask.deadline
        self.commit_failed = None
        self.held_for = ask.id if ask.hold else self.held_for
        self._answered = [w.id for w in self._wishes]
        self._wishes.clear()
        self.changed.set()

    def found(self, place: Place) -> None:
        """A committed checkpoint lies here."""
        if self.newest is None or self.newest.order < place.order:
            self.newest = place
            self.changed.set()

    def flush_words(self) -> list[ToHook]:
        """What a rank that comes back during a flush has to hear."""
        flush = self.flush
        if flush is None:
            return []
        left = None if self._flush_deadline is None else self._flush_deadline - self._clock.monotonic()
        words: list[ToHook] = [Flush(flush.id, flush.cause.value, left and max(0.0, left), flush.hold)]
        return words if flush.agreed is None else [*words, Agree(flush.id, flush.agreed)]

    def agreed(self, step: int) -> None:
        if self.flush is not None:
            self.flush = replace(self.flush, agreed=step)

    def flush_ended(self, place: Place | None, because: str) -> None:
        """Committed (``place``) or given up (``because``)."""
        flush = self.flush
        if flush is None:
            return
        if place is None:
            self.given_up[flush.id] = because
        else:
            self.newest = place
            self.flush_s = self._clock.monotonic() - flush.asked_at
        self.ranks.forget(flush.id)
        self.flush, self.commit_failed = None, None
        self._since = self._clock.monotonic()
        for wish in {flush.id, *self._answered}:
            self._resolve(wish, place or because)
        self.changed.set()

    def _resolve(self, flush_id: str, outcome: Place | str) -> None:
        future = self.outcomes.pop(flush_id, None)
        if future is not None and not future.done():
            future.set_result(outcome)

    # ---- facts

    def interval_left(self) -> float | None:
        """Seconds until the next checkpoint is due; None without an interval or a whole trainer."""
        if self._every_s is None or self._since is None or not self._whole():
            return None
        return self._since + self._every_s - self._clock.monotonic()

    def _whole(self) -> bool:
        layout = self.ranks.layout
        return layout is not None and len(self.ranks) == layout.world

    def facts(self, peer: PeerFact | None, in_flight: dict[str, Place | None]) -> Facts:
        """Everything the plan looks at, now. ``in_flight``: long actions under way, by name."""
        left = self.interval_left()
        if left is not None and left <= 0 and self.flush is None and not self._wishes and self.ranks.step > 0:
            self._wishes.append(
                Wish(f"interval-{secrets.token_hex(4)}", Cause.INTERVAL, "the interval is over")
            )
        return Facts(
            now=self._clock.monotonic(),
            epoch=self.state.epoch,
            role=self.state.role,
            world=self.ranks.layout.world if self.ranks.layout else 0,
            ranks=self.ranks.facts(self.flush.id if self.flush else None),
            notice=self.notice.fact if self.notice else None,
            wishes=tuple(self._wishes),
            flush=self.flush,
            committing="commit" in in_flight,
            commit_failed=self.commit_failed,
            newest=self.newest,
            peer=peer,
            shipping=in_flight.get("ship"),
            handing_over="hand_over" in in_flight,
            given_up=frozenset(self.given_up),
            incomplete_since=self._incomplete_since,
            held=self.held_for is not None,
            can_stand_by=self.can_stand_by,
            flush_s=self.flush_s,
            ship_bytes_s=self.ship_bytes_s,
        )

    def _wish_on_interval(self) -> None:
        left = self.interval_left()
        if left is None or left > 0 or self.flush is not None or self._wishes or self.ranks.step == 0:
            return
        flush_id = f"interval-{secrets.token_hex(4)}"
        self._wishes.append(Wish(flush_id, Cause.INTERVAL, "the interval is over"))

    def became(self, state: JobState) -> None:
        """Another role or epoch; the caller has made it durable."""
        self.state = state
        self.changed.set()


def _spellings(folder: Path | None) -> frozenset[str]:
    """The path as configured and with links resolved: a trainer may say either."""
    if folder is None:
        return frozenset()
    return frozenset({os.path.normpath(folder), str(folder.resolve())})
