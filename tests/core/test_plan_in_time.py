"""The primary's decision where a notice's time is short, or is shared with what is under way already."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.test_plan import (
    FLUSHING,
    NOTICE,
    NOTICED,
    NOW,
    OLD,
    PEER,
    PEER_AT_OLD,
    Case,
    at,
    due,
    for_notice,
)

from outlast.daemon.core.facts import Cause, FlushFact, GiveUp
from outlast.daemon.core.plan import MARGIN_S, PATIENCE_S, next_look, plan

UNHURRIED = FlushFact("interval-2", Cause.INTERVAL, NOW - 9.0, NOW - 9.0 + PATIENCE_S, hold=False)
IN_THE_WAY = replace(NOTICED, peer=PEER, newest=OLD, shipping=OLD, unsent=1000)
SHIP_OLD = (
    "120.0 s are too short to flush and ship (210.0 s needed): ship global_step100 instead (50.0 s needed)"
)

TABLE = [
    Case(
        "measured, and most of it leaves while it is saved",
        replace(NOTICED, peer=PEER_AT_OLD, newest=OLD, flush_s=10.0, ship_bytes_s=20.0, early_bytes=3000),
        (for_notice(NOTICE, NOW + 120 - MARGIN_S, hold=True),),
        "ship it and hand over (60.0 s needed, 120.0 s left)",
    ),
    Case(
        "measured, but another transfer is in the way while it is saved",
        replace(IN_THE_WAY, flush_s=10.0, ship_bytes_s=20.0, early_bytes=3000),
        (GiveUp("i-1@7", SHIP_OLD),),
        SHIP_OLD,
    ),
    Case(
        "a notice while a flush without a deadline waits: it may go on",
        replace(FLUSHING, now=NOW + 117.0, flush=UNHURRIED, ranks=at(111, None)),
        (),
        "waiting: rank 1 (pid 71) did not answer yet",
    ),
    Case(
        "a notice while a flush without a deadline waits: not beyond what the handover needs",
        replace(FLUSHING, now=NOW + 118.0, flush=UNHURRIED, ranks=at(111, None)),
        (GiveUp("interval-2", "rank 1 (pid 71) did not answer in time"),),
        "in time; the last committed checkpoint counts",
    ),
    Case(
        "a notice that is overdue leaves a flush its time",
        replace(FLUSHING, notice=due(-60.0), flush=UNHURRIED, ranks=at(111, None)),
        (),
        "waiting: rank 1 (pid 71) did not answer yet",
    ),
]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)
def test_plan_decides_in_time(case: Case) -> None:
    """Actions in order, and words of the sentence."""
    decision = plan(case.facts)
    assert decision.actions == case.actions
    assert case.why in decision.because


def test_a_flush_is_looked_at_again_when_the_notice_ends_it() -> None:
    """Though no fact changes until then."""
    assert next_look(replace(FLUSHING, flush=UNHURRIED)) == pytest.approx(118.0)
