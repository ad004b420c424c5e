"""The flush in progress, who wishes for one, and what comes of it. No decision, no waiting, no disk."""

from __future__ import annotations

import asyncio
import secrets
import statistics
from collections import deque
from dataclasses import replace
from typing import Literal

import structlog

from outlast.daemon.core.facts import AskFlush, Cause, FlushFact, Place, Wish
from outlast.daemon.core.lag import Commits
from outlast.daemon.core.notices import Live
from outlast.daemon.core.pace import Pace, span
from outlast.daemon.core.plan import PATIENCE_S
from outlast.daemon.core.ranks import Ranks
from outlast.providers.base import Clock
from outlast.wire.manifest import Part
from outlast.wire.messages import Agree, At, Flush, ToHook

log = structlog.get_logger("outlast.job")

Every = float | Literal["auto"] | None
# Stalls of so many checkpoints are kept: one that the disk held up does not count for all.
STALLS = 5


class Flushes:
    """One job's flushes on this node. ``changed`` is set by whatever may change a decision.

    ``held_for``: the flush after which the ranks wait; ``given_up``: flushes that will not come, and why;
    ``newest``: the newest committed checkpoint known here; ``flush_s``: how long the last flush took.
    ``every`` are the seconds between checkpoints, None for no interval, or ``auto``: as ``set_every`` says.
    ``part``: which part of the checkpoints is saved here, where the job spans several ``nodes``.
    """

    def __init__(self, name: str, every: Every, clock: Clock, part: Part | None = None) -> None:
        self.name = name
        self.part = part
        self.nodes = len(part.nodes) if part is not None else 1
        self.ranks = Ranks(self.nodes)
        self.changed = asyncio.Event()
        self.notice: Live | None = None
        self.newest: Place | None = None
        self.commits = Commits(clock)
        self.flush: FlushFact | None = None
        self.flush_s: float | None = None
        self.ended = {"committed": 0, "failed": 0}
        self.given_up: dict[str, str] = {}
        self.held_for: str | None = None
        self.commit_failed: str | None = None
        self.outcomes: dict[str, asyncio.Future[Place | str]] = {}
        self._clock = clock
        self.auto = isinstance(every, str)
        fixed = None if every is None or isinstance(every, str) else every
        self.pace = Pace(fixed, f"every {span(fixed)}, as configured") if fixed is not None else None
        self._stalls: deque[float] = deque(maxlen=STALLS)
        self._since: float | None = None
        self._wishes: list[Wish] = []
        self._answered: list[str] = []
        self._later: deque[FlushFact] = deque()
        self._adopted = ""
        self._held_at: int | None = None

    # ---- wishes

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

    def _want(self, flush_id: str, cause: Cause, reason: str) -> None:
        if cause is Cause.SIGNAL and any(w.cause is Cause.SIGNAL for w in self._wishes):
            return  # a launcher signals all of its ranks; one checkpoint answers them all
        self._wishes.append(Wish(flush_id, cause, reason))
        self.changed.set()

    def _forget_wishes(self) -> None:
        """With the last rank gone there is nobody to fulfil them."""
        if len(self.ranks):
            return
        wishes, self._wishes = self._wishes, []
        for wish in wishes:
            self._resolve(wish.id, "the trainer left")

    def interval_left(self) -> float | None:
        """Seconds until the next checkpoint is due; None without an interval or a whole trainer.

        None as well where another node of the job asks for all.
        """
        asks = self.part is None or self.part.index == 0
        if self.pace is None or self._since is None or not self._whole() or not asks:
            return None
        return self._since + self.pace.seconds - self._clock.monotonic()

    @property
    def stall_s(self) -> float | None:
        """How long a checkpoint holds the ranks: the median of the latest; None before the first."""
        return statistics.median(self._stalls) if self._stalls else None

    def set_every(self, pace: Pace) -> None:
        """The interval from now on. A change of a tenth is news for the log."""
        before = self.pace.seconds if self.pace else 0.0
        self.pace = pace
        if abs(pace.seconds - before) > before / 10:
            log.info("interval", job=self.name, seconds=round(pace.seconds, 1), because=pace.sentence)

    def _wish_on_interval(self) -> None:
        left = self.interval_left()
        if left is None or left > 0 or self.flush is not None or self._wishes or self.ranks.step == 0:
            return
        if self.part is not None and self._nothing_new():
            return  # where another node holds the ranks, nothing is to be saved
        flush_id = f"interval-{secrets.token_hex(4)}"
        self._wishes.append(Wish(flush_id, Cause.INTERVAL, "the interval is over"))

    def _nothing_new(self) -> bool:
        return self.newest is not None and self.ranks.step <= self.newest.step

    def _whole(self) -> bool:
        return len(self.ranks) > 0 and len(self.ranks) == self.ranks.world

    # ---- the flush

    def asked(self, ask: AskFlush) -> None:
        """The flush is asked for; it answers every open wish, since it saves later than they wished."""
        now = self._clock.monotonic()
        self.flush = FlushFact(ask.id, ask.cause, now, ask.give_up_at, ask.hold, deadline=ask.deadline)
        self.commit_failed = None
        self.held_for = ask.id if ask.hold else self.held_for
        self._answered = [w.id for w in self._wishes]
        self._wishes.clear()
        self.changed.set()

    def flush_words(self) -> list[ToHook]:
        """What a rank that comes back during a flush has to hear."""
        flush = self.flush
        if flush is None:
            return []
        if flush.cause is Cause.NODE:
            return []  # it comes from another node, through the ranks' own register
        left = None if flush.deadline is None else flush.deadline - self._clock.monotonic()
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
        self.ended["failed" if place is None else "committed"] += 1
        if place is None:
            self.given_up[flush.id] = because
        else:
            self.newest = place
            self.commits.note(place)
            self._held_at = place.step if flush.hold and flush.cause is Cause.NODE else None
            if flush.id != self._adopted:  # when that was asked for is not known
                self.flush_s = self._clock.monotonic() - flush.asked_at
            stall = self.ranks.stall_s(flush.id)
            self._stalls.extend([] if stall is None else [stall])
        self.ranks.forget(flush.id)
        self.flush, self.commit_failed = self._later.popleft() if self._later else None, None
        self._since = self._clock.monotonic()
        for wish in {flush.id, *(self._answered if flush.cause is not Cause.NODE else ())}:
            self._resolve(wish, place or because)
        self.changed.set()

    def _resolve(self, flush_id: str, outcome: Place | str) -> None:
        future = self.outcomes.pop(flush_id, None)
        if future is not None and not future.done():
            future.set_result(outcome)

    def _called(self, said: At) -> None:
        """On several nodes: the ranks are at a flush that another one asked for, maybe before one of here."""
        flush = self.flush
        if flush is not None and flush.id == said.id:
            self.flush = replace(flush, hold=flush.hold or said.hold)
            return
        if said.id in self.given_up or any(later.id == said.id for later in self._later):
            return
        if self.newest is not None and self.newest.flush_id == said.id:
            return
        now = self._clock.monotonic()
        deadline = None if said.seconds_left is None else now + said.seconds_left
        new = FlushFact(said.id, Cause.NODE, now, now + PATIENCE_S, said.hold, deadline=deadline)
        log.info("flush_called", job=self.name, flush=said.id, reason=said.reason)
        if flush is None or not self.ranks.spoke_of(flush.id):
            self._later.extendleft([flush] if flush is not None else [])
            self.flush = new
        else:
            self._later.append(new)

    def _adopt(self) -> None:
        """Ranks that saved for an earlier life of this daemon have saved all the same: commit it."""
        saved = self.ranks.all_saved()
        if self.flush is not None or saved is None or saved.id in self.given_up:
            return
        now = self._clock.monotonic()
        cause = Cause.NODE if self.nodes > 1 and saved.hold else Cause.INTERVAL
        if self.notice is not None and self.notice.episode == saved.id:
            cause = Cause.NOTICE
        hold = cause is not Cause.INTERVAL
        self.held_for = saved.id if cause is Cause.NOTICE else self.held_for
        self.flush = FlushFact(saved.id, cause, now, now + PATIENCE_S, hold, agreed=saved.step)
        self._adopted = saved.id
        log.info("flush_adopted", job=self.name, flush=saved.id, tag=saved.tag)

    @property
    def held_elsewhere(self) -> bool:
        """The ranks wait here because another node of the job was given notice: the job may move on."""
        return self._held_at is not None and len(self.ranks) > 0 and self.ranks.step <= self._held_at

    def found(self, place: Place) -> None:
        """A committed checkpoint lies here."""
        if self.newest is None or self.newest.order < place.order:
            self.newest = place
            self.commits.note(place)
            self.changed.set()
