"""The standby's shell: what the receiver has written to ``plan_standby``, its actions to the trainer.

The receiver runs as another process, so the border is files: they survive a crash of either side. They are
looked at four times a second, which costs a stat each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from outlast.daemon.core import state as job_state
from outlast.daemon.core.facts import Place, Role
from outlast.daemon.core.job import Job
from outlast.daemon.core.launch import Launcher, LaunchError
from outlast.daemon.core.record import Record
from outlast.daemon.core.state import JobState
from outlast.daemon.core.takeover import (
    Handover,
    SendHome,
    StandbyDecision,
    StandbyFacts,
    TakeOver,
    WarmUp,
    Warned,
    plan_standby,
)
from outlast.daemon.core.victim import last_heard_of
from outlast.daemon.core.welcome import Welcome
from outlast.daemon.ship import words
from outlast.daemon.ship.words import RefusedError
from outlast.providers.base import Clock
from outlast.wire.store import scan

log = structlog.get_logger("outlast.job")

LOOK_S = 0.25
# A trainer that dies while it warms up is not started again at once, and not for ever.
RESTART_S = 10.0
ATTEMPTS = 3


class Standby:
    """Watches one job's replicas at a standby (or at a node that has handed over) and takes over."""

    def __init__(
        self,
        job: Job,
        welcome: Welcome,
        launcher: Launcher | None,
        replicas: Path,
        when: str,
        takeover_after_s: float,
        state_file: Path,
        clock: Clock,
        record: Record,
    ) -> None:
        self._job = job
        self._welcome = welcome
        self._launcher = launcher
        self._replicas = replicas
        self._when = when
        self._after_s = takeover_after_s
        self._state_file = state_file
        self._clock = clock
        self._record = record
        self._started_at: float | None = None
        self._attempts = 0
        self._stamp: object = None
        self._newest: Place | None = None
        self._warned: Warned | None = None
        self._said_end = False
        self.operator_asks: asyncio.Event | None = None

    def ask_takeover(self) -> asyncio.Event:
        """An operator wants this node to be primary; the event is set once it is."""
        self.operator_asks = asyncio.Event()
        return self.operator_asks

    async def run(self, beat: Callable[[], None]) -> None:
        """Look, decide and act until cancelled."""
        while True:
            beat()
            if self._job.state.role is Role.PRIMARY:
                await self._see_to_trainer()
            else:
                await self._decide()
            await asyncio.sleep(LOOK_S)

    async def _decide(self) -> None:
        facts = await self._facts()
        if facts.warned != self._warned:
            self._note_warning(facts.warned)
        decision = plan_standby(facts)
        self._tell(decision)
        for action in decision.actions:
            match action:
                case WarmUp():
                    await self._start_trainer()
                case SendHome(reason):
                    self._welcome.dismiss(reason)
                case TakeOver():
                    await self._take_over(action, decision.because)

    async def _facts(self) -> StandbyFacts:
        handover, warned = await asyncio.to_thread(self._look)
        running = len(self._job.ranks) > 0 or (self._launcher is not None and await self._launcher.running())
        return StandbyFacts(
            now_wall=self._clock.wall(),
            epoch=self._job.state.epoch,
            highest=self._job.state.highest,
            newest=self._newest,
            handover=handover,
            warned=warned,
            trainer_running=running,
            can_start=self._may_start(),
            when=self._when,
            takeover_after_s=self._after_s,
            operator_asks=self.operator_asks is not None,
        )

    def _look(self) -> tuple[Handover | None, Warned | None]:
        stamp = _stamp(self._replicas)
        if stamp != self._stamp:
            found = next(iter(scan(self._replicas)), None)
            self._newest = Place(found.epoch, found.tag, found.step) if found else None
            self._stamp = stamp
        return _heard(self._replicas)

    def _note_warning(self, warned: Warned | None) -> None:
        self._warned = warned
        if warned is not None:
            kind, step, epoch = warned.kind, warned.step, warned.epoch
            self._record.event("peer_warned", self._job.name, warning=kind, step=step, epoch=epoch)

    def _tell(self, decision: StandbyDecision) -> None:
        gist = "".join(c for c in decision.because if not c.isdigit())
        if gist != "".join(c for c in self._job.last_decision if not c.isdigit()):
            log.info("decided", job=self._job.name, because=decision.because)
        self._job.last_decision = decision.because

    # ---- acting

    async def _take_over(self, action: TakeOver, because: str) -> None:
        job, place = self._job, action.place
        if not action.planned:
            # The old primary may yet live: from here on the receiver refuses its bytes.
            fence = words.Handover(action.epoch, place.tag, place.step, place.epoch, self._clock.wall())
            await asyncio.to_thread(words.record, self._replicas, fence)
        started = job.state.started_epoch
        await self._become(JobState(action.epoch, Role.PRIMARY, started, because, highest=action.epoch))
        gone = self.operator_asks is None and not action.planned
        if self.operator_asks is not None:
            self.operator_asks.set()
        self.operator_asks, self._attempts = None, 0
        log.warning("taken_over", job=job.name, epoch=action.epoch, tag=place.tag, steps_lost=action.lost)
        self._record.event(
            "taken_over",
            job.name,
            tag=place.tag,
            step=place.step,
            epoch=action.epoch,
            lost=action.lost,
            planned=action.planned,
        )
        await self._see_to_trainer()
        if gone:
            await self._note_loss()

    async def _note_loss(self) -> None:
        """The primary's end was announced and it handed nothing over: this may be the last word on it."""
        victim = await asyncio.to_thread(last_heard_of, self._replicas)
        if victim is not None:
            self._record.lost(victim)

    async def _see_to_trainer(self) -> None:
        """After a takeover: exactly one trainer, started for this epoch."""
        job = self._job
        if self._launcher is None or job.state.started_epoch >= job.state.epoch:
            self._note_end()
            return
        if not len(job.ranks) and not await self._launcher.running():
            if self._attempts >= ATTEMPTS or not self._may_start():
                return
            await self._start_trainer()
        if job.has_stepped:
            await self._become(replace(job.state, started_epoch=job.state.epoch))

    async def _become(self, state: JobState) -> None:
        """Durable first, then true."""
        await asyncio.to_thread(job_state.save, self._state_file, state)
        self._job.became(state)

    def _may_start(self) -> bool:
        if self._launcher is None:
            return False
        return self._started_at is None or self._clock.monotonic() - self._started_at >= RESTART_S

    async def _start_trainer(self) -> None:
        assert self._launcher is not None
        self._started_at = self._clock.monotonic()
        self._attempts += 1
        try:
            await self._launcher.start()
        except LaunchError as exc:
            log.error("trainer_not_started", job=self._job.name, because=str(exc))
            self._record.event("trainer_not_started", self._job.name, because=str(exc))
            return
        log.info("trainer_started", job=self._job.name, attempt=self._attempts)
        self._record.event("trainer_started", self._job.name, attempt=self._attempts)

    def _note_end(self) -> None:
        status = self._launcher.ended() if self._launcher is not None else None
        if status is None or self._said_end:
            return
        self._said_end = True
        say = log.info if status == 0 else log.error
        say("trainer_ended", job=self._job.name, status=status)
        self._record.event("trainer_ended", self._job.name, status=status)


# ---- the files the receiver writes


def _stamp(store: Path) -> object:
    """Changes whenever a checkpoint may have been committed here."""
    try:
        folders = [store, *sorted(p for p in store.iterdir() if p.name.startswith("epoch-"))]
        return tuple((p.name, p.stat().st_mtime_ns) for p in folders)
    except OSError:
        return None


def _heard(store: Path) -> tuple[Handover | None, Warned | None]:
    """The handover and the last warning, as far as they can be read; what cannot is as if unsaid."""
    handover = warned = None
    with suppress(RefusedError):
        if (said := words.read_handover(store)) is not None:
            handover = Handover(said.epoch, said.tag, said.step, said.from_epoch)
    with suppress(RefusedError):
        if (word := words.read_warning(store)) is not None:
            warned = Warned(word.kind, word.deadline_wall, word.step, word.epoch)
    return handover, warned
