"""The standby's decision: a table, and what it never does."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.daemon.core.facts import Place
from outlast.daemon.core.takeover import (
    Handover,
    SendHome,
    StandbyAction,
    StandbyFacts,
    TakeOver,
    WarmUp,
    Warned,
    plan_standby,
)

NOW = 1_800_000_000.0
REPLICA = Place(1, "global_step100", 100)
GIVEN = Handover(2, "global_step120", 120, from_epoch=1)
IDLE = StandbyFacts(now_wall=NOW, epoch=0, newest=REPLICA)
HINTED = Warned("hint", None, 110, 1)
WITHDRAWN = Warned("withdrawn", None, 110, 1)


def noticed(seconds_left: float, step: int = 110, epoch: int = 1) -> Warned:
    return Warned("notice", NOW + seconds_left, step, epoch)


@dataclass(frozen=True)
class Case:
    """``why`` are words of the sentence."""

    name: str
    facts: StandbyFacts
    actions: tuple[StandbyAction, ...]
    why: str


TABLE = [
    Case("idle", IDLE, (), "standby, replica global_step100 is here"),
    Case("idle and empty", replace(IDLE, newest=None), (), "standby, no replica yet"),
    Case("hint", replace(IDLE, warned=HINTED), (), "the primary has had a hint"),
    Case("withdrawn", replace(IDLE, warned=WITHDRAWN), (), "standby, replica"),
    Case(
        "withdrawn after the trainer was warmed up",
        replace(IDLE, warned=WITHDRAWN, trainer_running=True),
        (SendHome("the primary's notice was withdrawn"),),
        "withdrawn",
    ),
    Case(
        "withdrawn, but the trainer is always kept",
        replace(IDLE, warned=WITHDRAWN, trainer_running=True, when="always"),
        (),
        "standby",
    ),
    Case("always", replace(IDLE, when="always"), (WarmUp(),), "the trainer is kept parked"),
    Case("always, parked", replace(IDLE, when="always", trainer_running=True), (), "standby"),
    Case("always, cannot start now", replace(IDLE, when="always", can_start=False), (), "standby"),
    Case(
        "notice: warm up",
        replace(IDLE, warned=noticed(60)),
        (WarmUp(),),
        "the primary has a notice, 60.0 s left: waiting for its handover, trainer started to park",
    ),
    Case("notice, warm", replace(IDLE, warned=noticed(60), trainer_running=True), (), "60.0 s left"),
    Case("notice, start at takeover", replace(IDLE, warned=noticed(60), when="takeover"), (), "60.0 s left"),
    Case(
        "deadline past, still in the grace",
        replace(IDLE, warned=noticed(-4.9), when="takeover"),
        (),
        "waiting",
    ),
    Case(
        "deadline and grace past",
        replace(IDLE, warned=noticed(-5.0)),
        (TakeOver(2, REPLICA, 10, planned=False),),
        "deadline has passed without a handover: take over global_step100 in epoch 2, 10 steps lost",
    ),
    Case(
        "deadline past, nothing here",
        replace(IDLE, newest=None, warned=noticed(-60.0)),
        (),
        "no committed checkpoint is here to resume from",
    ),
    Case(
        "a warning of an epoch this node has held itself",
        replace(IDLE, epoch=2, warned=noticed(-60.0, epoch=2)),
        (),
        "standby",
    ),
    Case(
        "handover",
        replace(IDLE, handover=GIVEN),
        (TakeOver(2, Place(1, "global_step120", 120), None, planned=True),),
        "the primary handed over global_step120: take over in epoch 2",
    ),
    Case(
        "handover after a warning: steps lost are counted",
        replace(IDLE, handover=GIVEN, warned=noticed(20.0, step=120)),
        (TakeOver(2, Place(1, "global_step120", 120), 0, planned=True),),
        "handed over",
    ),
    Case(
        "handover of an older checkpoint",
        replace(IDLE, handover=GIVEN, warned=noticed(20.0, step=127)),
        (TakeOver(2, Place(1, "global_step120", 120), 7, planned=True),),
        "handed over",
    ),
    Case(
        "a handover long taken up",
        replace(IDLE, epoch=2, handover=GIVEN),
        (),
        "standby, replica global_step100 is here",
    ),
    Case(
        "operator",
        replace(IDLE, operator_asks=True),
        (TakeOver(2, REPLICA, None, planned=False),),
        "an operator asked for the takeover: take over global_step100 in epoch 2, steps lost not known",
    ),
    Case("operator, nothing here", replace(IDLE, newest=None, operator_asks=True), (), "no committed"),
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_standby_decides(case: Case) -> None:
    """Each row of the table: the actions exactly, and the words of the sentence."""
    decision = plan_standby(case.facts)
    assert decision.actions == case.actions
    assert case.why in decision.because


PLACES = st.builds(Place, st.integers(1, 5), st.just("global_step9"), st.integers(0, 200))
HANDOVERS = st.builds(
    Handover, st.integers(0, 6), st.just("global_step9"), st.integers(0, 200), st.integers(0, 6)
)
WALLS = st.floats(NOW - 1000, NOW + 1000)
KINDS = st.sampled_from(["hint", "notice", "withdrawn", "?"])
WARNINGS = st.builds(Warned, KINDS, st.none() | WALLS, st.integers(0, 200), st.integers(0, 6))
ANY = st.builds(
    StandbyFacts,
    now_wall=st.just(NOW),
    epoch=st.integers(0, 6),
    newest=st.none() | PLACES,
    handover=st.none() | HANDOVERS,
    warned=st.none() | WARNINGS,
    trainer_running=st.booleans(),
    can_start=st.booleans(),
    when=st.sampled_from(["warning", "takeover", "always"]),
    takeover_after_s=st.floats(0, 60),
    operator_asks=st.booleans(),
)


def takeovers(facts: StandbyFacts) -> list[TakeOver]:
    return [a for a in plan_standby(facts).actions if isinstance(a, TakeOver)]


@settings(max_examples=400)
@given(ANY)
def test_no_takeover_without_a_word(facts: StandbyFacts) -> None:
    """Hint, withdrawal and silence never promote: it takes a handover, a passed deadline or an operator."""
    alone = replace(facts, handover=None, operator_asks=False)
    warned = alone.warned
    overdue = (
        warned is not None
        and warned.kind == "notice"
        and warned.deadline_wall is not None
        and alone.now_wall - warned.deadline_wall - alone.takeover_after_s >= 0
    )
    assert overdue or takeovers(alone) == []


@settings(max_examples=400)
@given(ANY)
def test_the_epoch_only_grows(facts: StandbyFacts) -> None:
    """A takeover is in an epoch above this node's own, and an unplanned one above all that is known."""
    for action in takeovers(facts):
        assert action.epoch > facts.epoch
        if not action.planned:
            assert facts.newest is not None
            assert action.epoch > facts.newest.epoch
            assert action.place == facts.newest
            assert (
                facts.warned is None or facts.warned.epoch <= facts.epoch or action.epoch > facts.warned.epoch
            )


@given(ANY)
def test_steps_lost_are_never_negative_nor_invented(facts: StandbyFacts) -> None:
    """Without a warning of that epoch nobody knows where the primary was."""
    for action in takeovers(facts):
        assert action.lost is None or action.lost >= 0
        assert facts.warned is not None or action.lost is None


@given(ANY)
def test_same_sight_same_decision(facts: StandbyFacts) -> None:
    """No memory, one action at most, one line of why."""
    decision = plan_standby(facts)
    assert decision == plan_standby(replace(facts))
    assert len(decision.actions) <= 1
    assert decision.because
    assert "\n" not in decision.because


@given(ANY)
def test_a_trainer_is_started_once(facts: StandbyFacts) -> None:
    """Nothing is warmed up beside a running trainer, and nothing where it cannot be started."""
    warm = [a for a in plan_standby(facts).actions if isinstance(a, WarmUp)]
    assert not warm or (facts.can_start and not facts.trainer_running)
