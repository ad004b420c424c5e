"""What a loss this instant would cost, and what the status says of it and of the deadline plan."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.core.facts import PeerFact, Place
from outlast.daemon.core.prospect import prospect
from outlast.daemon.core.status import job_status

if TYPE_CHECKING:
    from tests.core.conftest import Ground, Life

HERE = Place(1, "global_step120", 120)
THERE = PeerFact(reachable=True, newest=Place(1, "global_step100", 100))


@dataclass(frozen=True)
class Case:
    """At step 130 with 12 s a step."""

    name: str
    newest: Place | None
    peer: PeerFact | None
    lost: int | None
    sentence: str
    stores: tuple[PeerFact, ...] = ()


CASES = [
    Case(
        "the peer's counts, not this node's",
        HERE,
        THERE,
        30,
        "taken now, you would lose 30 steps (6.0 minutes); the peer has step 100",
    ),
    Case(
        "the peer has all",
        HERE,
        replace(THERE, newest=Place(1, "global_step130", 130)),
        0,
        "taken now, you would lose nothing; the peer has step 130",
    ),
    Case(
        "one step is no plural",
        HERE,
        replace(THERE, newest=Place(1, "global_step129", 129)),
        1,
        "taken now, you would lose 1 step (12 s); the peer has step 129",
    ),
    Case(
        "the peer is away",
        HERE,
        replace(THERE, reachable=False),
        30,
        "taken now, you would lose 30 steps (6.0 minutes); the peer has step 100, as last heard",
    ),
    Case(
        "the peer has nothing",
        HERE,
        PeerFact(reachable=True),
        130,
        "taken now, you would lose all 130 steps (26.0 minutes); the peer has nothing yet, "
        "this node has step 120",
    ),
    Case(
        "the peer was never heard",
        None,
        PeerFact(reachable=False),
        None,
        "taken now, you would lose an unknown number of steps; the peer was not heard yet, "
        "nothing is committed here",
    ),
    Case(
        "no peer",
        HERE,
        None,
        10,
        "taken now, you would lose 10 steps (2.0 minutes) if this disk survives: it has step 120, "
        "and no peer is configured",
    ),
    Case(
        "without a peer the store's counts that is furthest, not this node's",
        HERE,
        None,
        30,
        "taken now, you would lose 30 steps (6.0 minutes); the store has step 100",
        (PeerFact(reachable=True), THERE, replace(THERE, newest=Place(1, "global_step90", 90))),
    ),
    Case(
        "no store has anything",
        HERE,
        None,
        130,
        "taken now, you would lose all 130 steps (26.0 minutes); the store has nothing yet, "
        "this node has step 120",
        (PeerFact(reachable=False), PeerFact(reachable=True)),
    ),
    Case(
        "no store was heard",
        HERE,
        None,
        None,
        "taken now, you would lose an unknown number of steps; the store was not heard yet, "
        "this node has step 120",
        (PeerFact(reachable=False),),
    ),
    Case(
        "with a peer the stores do not count: a standby goes on from its own",
        HERE,
        THERE,
        30,
        "taken now, you would lose 30 steps (6.0 minutes); the peer has step 100",
        (replace(THERE, newest=Place(1, "global_step120", 120)),),
    ),
    Case(
        "nothing anywhere",
        None,
        None,
        130,
        "taken now, you would lose all 130 steps (26.0 minutes); nothing is committed, "
        "and no peer is configured",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_would_be_lost(case: Case) -> None:
    """The steps, their training time, what the peer has: in numbers and in one sentence."""
    seen = prospect(130, 12.0, case.newest, case.peer, case.stores)
    assert seen.sentence == case.sentence
    assert seen.lost_steps == case.lost
    assert seen.lost_s == (None if case.lost is None else case.lost * 12.0)


def test_without_a_step_time_no_minutes_are_made_up() -> None:
    """Before the first measured step only steps are told; nothing lost is no time lost."""
    seen = prospect(130, 0.0, HERE, THERE)
    assert (seen.lost_steps, seen.lost_s) == (30, None)
    assert "minutes" not in seen.sentence
    assert prospect(100, 0.0, HERE, THERE).lost_s == 0.0


PLACES = st.none() | st.builds(Place, st.just(1), st.just("t"), st.integers(0, 50))
PEERS = st.none() | st.builds(PeerFact, st.none() | st.booleans(), st.just(""), PLACES)


@given(st.integers(0, 50), st.floats(0.0, 100.0), PLACES, PEERS)
def test_more_at_the_peer_never_costs_more(
    step: int, step_s: float, newest: Place | None, peer: PeerFact | None
) -> None:
    """Never below 0, never more than was trained, and less the more the peer has."""
    lost = prospect(step, step_s, newest, peer).lost_steps
    if lost is None:
        assert peer is not None
        return
    assert 0 <= lost <= step
    if peer is not None and peer.newest is not None:
        more = replace(peer, newest=replace(peer.newest, step=peer.newest.step + 1))
        assert (prospect(step, step_s, newest, more).lost_steps or 0) <= lost


def status_of(life: Life) -> dict[str, object]:
    """The first job's part of the status."""
    desk = next(iter(life.desks.values()))
    return job_status(desk.job, desk.errands, parked=0)


async def test_the_status_tells_the_prospect_and_the_plan(ground: Ground) -> None:
    """While training: what would be lost now. Under a notice: the plan's choice and sentence, as recorded;
    without the notice there is no plan."""
    async with ground.life() as life, ground.trainer(ground.script()):
        await life.record.until("first_step")
        before = status_of(life)
        assert before["plan"] is None
        taken_now = before["taken_now"]
        assert isinstance(taken_now, dict)
        assert taken_now["lost_steps"] == taken_now["step"] > 0
        life.notice(60.0)
        told = await life.record.until("planned")
        assert told["choice"] == "flush to a disk that survives"
        assert told["episode"] == "i-1@7"
        await life.record.until("committed")
        plan = status_of(life)["plan"]
        assert isinstance(plan, dict)
        assert plan["sentence"] == "flush, then keep it here (no peer is configured)"
        assert 50.0 < plan["left_s"] < 60.0
        assert "if this disk survives" in str(status_of(life)["taken_now"])
        life.job.noticed(None)
        assert status_of(life)["plan"] is None
