"""The primary's shell: facts to ``plan``, its actions to ranks, disk and peer. No decision is made here.

Short actions happen at once; long ones (commit, ship, hand over) run as tasks, at most one of a kind, and
their outcome is a fact for the next plan. Cancelling the keeper cancels them; each is safe to repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from outlast.daemon.core.deadline import Verdict
from outlast.daemon.core.errands import Errands
from outlast.daemon.core.facts import (
    Action,
    AskFlush,
    Commit,
    Decision,
    Fence,
    GiveUp,
    HandOver,
    Release,
    Retire,
    Role,
    SayAgree,
    Ship,
    StandDownAll,
    StopShip,
)
from outlast.daemon.core.job import Job
from outlast.daemon.core.plan import next_look, plan
from outlast.daemon.core.record import Record
from outlast.daemon.core.seeoff import see_off
from outlast.daemon.core.welcome import Welcome
from outlast.providers.base import Clock
from outlast.wire.messages import Agree, Flush, StandDown

log = structlog.get_logger("outlast.job")

# Facts that no event announces (a deadline that has come) are looked at this often.
LOOK_S = 5.0


class Keeper:
    """Keeps one job: plans whenever its facts change, and carries the plan out."""

    def __init__(
        self,
        job: Job,
        errands: Errands,
        welcome: Welcome,
        clock: Clock,
        record: Record,
        stop_signal: str | None = None,
    ) -> None:
        self._job = job
        self._stop_signal = stop_signal
        self._errands = errands
        self._welcome = welcome
        self._clock = clock
        self._record = record

    async def run(self, beat: Callable[[], None]) -> None:
        """Decide and act until cancelled. ``beat`` is called each cycle: proof of life."""
        async with asyncio.TaskGroup() as group:
            while True:
                beat()
                self._job.changed.clear()
                self._welcome.answer(group)
                if self._job.state.role is not Role.STANDBY:
                    self._decide(group)
                await self._sleep()

    def _decide(self, group: asyncio.TaskGroup) -> None:
        errands = self._errands
        decision = plan(self._job.facts(errands.peer_fact(), errands.in_flight, errands.unsent))
        self._tell(decision)
        for action in decision.actions:
            if not self._speak(group, action):
                self._run(group, action)

    def _tell(self, decision: Decision) -> None:
        # A sentence with a running countdown is the same sentence: compare without figures.
        if _gist(decision.because) != _gist(self._job.last_decision):
            log.info("decided", job=self._job.name, because=decision.because)
        self._job.last_decision = decision.because
        if decision.verdict is not None:
            self._log_plan(decision.verdict)

    def _log_plan(self, verdict: Verdict) -> None:
        job, figures = self._job, {"needed_s": verdict.needed_s, "left_s": verdict.left_s}
        job.verdict = verdict
        log.info("planned", job=job.name, choice=verdict.choice.value, because=verdict.sentence, **figures)
        episode = job.notice.episode if job.notice else ""
        self._record.event("planned", job.name, episode, choice=verdict.choice.value, **figures)

    async def _sleep(self) -> None:
        facts = self._job.facts(self._errands.peer_fact(), {})
        due = self._job.interval_left() if self._job.flush is None else None
        # What is due already and was not asked for waits for something else: the first step, say.
        looks = [next_look(facts), due if due is not None and due > 0 else None, LOOK_S]
        wait = min(max(0.05, look) for look in looks if look is not None)
        try:
            async with asyncio.timeout(wait):
                await self._job.changed.wait()
        except TimeoutError:
            return

    # ---- actions

    def _run(self, group: asyncio.TaskGroup, action: Action) -> None:
        """The actions that take time."""
        errands = self._errands
        match action:
            case Commit():
                errands.start(group, "commit", errands.commit(action))
            case Ship(place):
                errands.start(group, "ship", errands.ship(place), place)
            case StopShip():
                errands.stop("ship")
            case HandOver(place):
                errands.start(group, "hand_over", errands.hand_over(place), place)
            case Retire():
                errands.start(group, "retire", errands.retire())
            case Fence(epoch):
                errands.start(group, "fence", errands.fence(f"epoch {epoch} exists at the peer", epoch))

    def _speak(self, group: asyncio.TaskGroup, action: Action) -> bool:
        """The actions that are words to the ranks. False if this is none of them."""
        job = self._job
        match action:
            case AskFlush():
                self._ask(action)
            case SayAgree():
                self._agree(action)
                self._errands.follow(group, action.step)
            case GiveUp():
                self._give_up(action)
            case Release(reason):
                self._release(reason)
            case StandDownAll(reason):
                if self._stand_down(reason):
                    self._errands.start(group, "see_off", see_off(job.name, job.ranks, self._stop_signal))
            case _:
                return False
        return True

    def _agree(self, agree: SayAgree) -> None:
        self._job.agreed(agree.step)
        self._job.ranks.send(Agree(agree.id, agree.step))
        self._record.event("step_agreed", self._job.name, agree.id, step=agree.step)
        self._record.flush(self._job.name, agree.id, "agreed", step=agree.step)

    def _ask(self, ask: AskFlush) -> None:
        left = None if ask.deadline is None else max(0.0, ask.deadline - self._clock.monotonic())
        self._job.ranks.send(Flush(ask.id, ask.reason, left, ask.hold))
        self._job.asked(ask)
        log.info("flush_asked", job=self._job.name, flush=ask.id, reason=ask.reason, seconds_left=left)
        self._record.event("flush_asked", self._job.name, ask.id, cause=ask.cause.value, seconds_left=left)
        self._record.flush(self._job.name, ask.id, "asked", reason=ask.reason)

    def _give_up(self, action: GiveUp) -> None:
        self._job.ranks.send(StandDown(action.because, "train", action.id))
        if self._job.held_for == action.id:
            self._job.held_for = None
        if self._job.flush is None:  # never asked: the plan chose to ship instead
            self._job.given_up[action.id] = action.because
            self._job.changed.set()
        self._job.flush_ended(None, action.because)
        self._errands.unfollow()
        log.warning("flush_given_up", job=self._job.name, flush=action.id, because=action.because)
        self._record.event("flush_failed", self._job.name, action.id, because=action.because)
        self._record.flush(self._job.name, action.id, "failed", because=action.because)

    def _release(self, reason: str) -> None:
        self._job.ranks.send(StandDown(reason, "train", self._job.held_for or "", committed=True))
        self._job.held_for = None
        self._record.event("released", self._job.name, reason=reason)

    def _stand_down(self, reason: str) -> bool:
        """Tell those who have not been told. Whether there were any."""
        told = False
        held = self._job.held_for or ""
        for connection in self._job.ranks:
            if connection not in self._welcome.dismissed:
                self._welcome.dismissed.add(connection)
                connection.send(StandDown(reason, "exit", held, committed=True))
                told = True
        self._job.held_for = None
        return told


def _gist(sentence: str) -> str:
    """The sentence without its figures."""
    return "".join(c for c in sentence if not c.isdigit())
