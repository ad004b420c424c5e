"""The standby's decision: when to warm its trainer up, and when the job is its own. Pure.

A takeover needs a reason the primary gave: a handover, or a notice whose deadline has passed without one.
An operator's word does as well. Silence alone is no reason here; that takes a lease.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlast.daemon.core.facts import Place


@dataclass(frozen=True, slots=True)
class Handover:
    """The primary gave the job over: resume ``tag`` in ``epoch``."""

    epoch: int
    tag: str
    step: int
    from_epoch: int


@dataclass(frozen=True, slots=True)
class Warned:
    """The primary's last warning. ``kind`` hint, notice or withdrawn; ``deadline_wall`` UTC epoch seconds."""

    kind: str
    deadline_wall: float | None
    step: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """What the standby sees.

    ``epoch``: the last one this node held itself, 0 for none; ``highest``: the highest it knows to exist.
    """

    now_wall: float
    epoch: int
    highest: int = 0
    newest: Place | None = None
    handover: Handover | None = None
    warned: Warned | None = None
    trainer_running: bool = False
    can_start: bool = True
    when: str = "warning"
    takeover_after_s: float = 5.0
    operator_asks: bool = False


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Start the trainer now; it parks until the takeover."""


@dataclass(frozen=True, slots=True)
class SendHome:
    """The parked trainer is not needed after all."""

    reason: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Become primary in ``epoch`` at ``place``. ``lost``: steps the primary was ahead; None if not known."""

    epoch: int
    place: Place
    lost: int | None
    planned: bool


StandbyAction = WarmUp | SendHome | TakeOver


@dataclass(frozen=True, slots=True)
class StandbyDecision:
    """What the standby does now and why."""

    actions: tuple[StandbyAction, ...]
    because: str


def plan_standby(facts: StandbyFacts) -> StandbyDecision:
    """Same facts, same decision."""
    if facts.handover is not None and facts.handover.epoch > facts.epoch:
        return _handed_over(facts, facts.handover)
    warned = facts.warned if facts.warned and facts.warned.epoch > facts.epoch else None
    if facts.operator_asks:
        return _unplanned(facts, warned, "an operator asked for the takeover")
    if warned is not None and warned.kind == "notice" and warned.deadline_wall is not None:
        return _after_notice(facts, warned, warned.deadline_wall)
    if facts.when == "always" and facts.can_start and not facts.trainer_running:
        return StandbyDecision((WarmUp(),), "standby: the trainer is kept parked")
    if (
        facts.trainer_running
        and facts.when == "warning"
        and warned is not None
        and warned.kind == "withdrawn"
    ):
        why = "the primary's notice was withdrawn"
        return StandbyDecision((SendHome(why),), why)
    return StandbyDecision((), _waiting(facts, warned))


def _handed_over(facts: StandbyFacts, handover: Handover) -> StandbyDecision:
    place = Place(handover.from_epoch, handover.tag, handover.step)
    lost = None
    if facts.warned is not None and facts.warned.epoch == handover.from_epoch:
        lost = max(0, facts.warned.step - handover.step)
    why = f"the primary handed over {handover.tag}: take over in epoch {handover.epoch}"
    return StandbyDecision((TakeOver(handover.epoch, place, lost, planned=True),), why)


def _after_notice(facts: StandbyFacts, warned: Warned, deadline_wall: float) -> StandbyDecision:
    overdue = facts.now_wall - deadline_wall - facts.takeover_after_s
    if overdue >= 0:
        return _unplanned(facts, warned, "the primary's deadline has passed without a handover")
    left = deadline_wall - facts.now_wall
    why = f"the primary has a notice, {left:.1f} s left: waiting for its handover"
    if facts.when != "takeover" and facts.can_start and not facts.trainer_running:
        return StandbyDecision((WarmUp(),), f"{why}, trainer started to park")
    return StandbyDecision((), why)


def _unplanned(facts: StandbyFacts, warned: Warned | None, why: str) -> StandbyDecision:
    newest = facts.newest
    if newest is None:
        return StandbyDecision((), f"{why}, but no committed checkpoint is here to resume from")
    epoch = max(newest.epoch, facts.epoch, facts.highest, warned.epoch if warned else 0) + 1
    lost = max(0, warned.step - newest.step) if warned else None
    steps = f"{lost} steps lost" if lost is not None else "steps lost not known"
    sentence = f"{why}: take over {newest.tag} in epoch {epoch}, {steps}"
    return StandbyDecision((TakeOver(epoch, newest, lost, planned=False),), sentence)


def _waiting(facts: StandbyFacts, warned: Warned | None) -> str:
    have = f"replica {facts.newest.tag} is here" if facts.newest else "no replica yet"
    if warned is not None and warned.kind == "hint":
        return f"standby, {have}; the primary has had a hint"
    return f"standby, {have}"
