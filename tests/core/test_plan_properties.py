"""What no facts, however odd, can make the plan do."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.daemon.core.facts import (
    AskFlush,
    Cause,
    Commit,
    Facts,
    Fence,
    FlushFact,
    GiveUp,
    HandOver,
    NoticeFact,
    PeerFact,
    Place,
    RankFact,
    Role,
    SayAgree,
    Ship,
    StandDownAll,
    StopShip,
    Wish,
)
from outlast.daemon.core.plan import next_look, plan

IDS = st.sampled_from(["i-1@7", "i-1@9", "interval-2", "operator-3"])
TAGS = st.sampled_from(["global_step8", "global_step9"])
TIMES = st.floats(900.0, 1100.0) | st.just(1000.0)
SECONDS = st.none() | st.floats(0.0, 500.0)
CAUSES = st.sampled_from(Cause)
WISHED = st.sampled_from([c for c in Cause if c not in (Cause.NOTICE, Cause.NODE)])
PLACES = st.builds(
    Place, st.integers(1, 3), TAGS, st.integers(0, 10), IDS | st.just(""), st.integers(0, 10_000)
)
PEERS = st.builds(
    PeerFact, st.none() | st.booleans(), st.text(max_size=5), st.none() | PLACES, st.integers(0, 4), TIMES
)
NOTICES = st.builds(NoticeFact, st.just("i-1"), st.sampled_from(["i-1@7", "i-1@9"]), st.just("stop"), TIMES)
FLUSHES = st.builds(FlushFact, IDS, CAUSES, TIMES, TIMES, st.booleans(), st.none() | st.integers(0, 12))


@st.composite
def rank_facts(draw: st.DrawFn, world: int) -> tuple[RankFact, ...]:
    """Any part of the world, in rank order, each rank having said anything or nothing."""
    here = draw(st.just(set(range(world))) | st.sets(st.integers(0, max(0, world - 1)), max_size=world))
    return tuple(
        RankFact(
            number,
            70 + number,
            draw(st.integers(0, 10)),
            draw(st.none() | st.integers(0, 12)),
            draw(st.none() | TAGS),
            draw(st.sampled_from([None, None, None, "disk full"])),
        )
        for number in sorted(here)
        if number < world
    )


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    """Facts of every kind together, also such as a sane daemon never sees."""
    world = draw(st.integers(0, 4))
    return Facts(
        now=1000.0,
        epoch=draw(st.integers(1, 3)),
        role=draw(st.sampled_from([Role.PRIMARY, Role.PRIMARY, Role.FENCED])),
        world=world,
        ranks=draw(rank_facts(world)),
        notice=draw(st.none() | NOTICES),
        wishes=tuple(draw(st.lists(st.builds(Wish, IDS, WISHED, st.just("asked")), max_size=3))),
        flush=draw(st.none() | FLUSHES),
        committing=draw(st.booleans()),
        commit_failed=draw(st.sampled_from([None, None, "no space left"])),
        newest=draw(st.none() | PLACES),
        peer=draw(st.none() | PEERS),
        shipping=draw(st.none() | PLACES),
        handing_over=draw(st.booleans()),
        given_up=frozenset(draw(st.sets(IDS, max_size=2))),
        incomplete_since=draw(st.none() | TIMES),
        held=draw(st.booleans()),
        flush_s=draw(SECONDS),
        ship_bytes_s=draw(st.none() | st.floats(1.0, 1e6)),
        early_bytes=draw(st.integers(0, 10**9)),
    )


@given(any_facts())
def test_same_facts_same_decision(facts: Facts) -> None:
    """The plan has no memory: an equal set of facts leads to an equal decision."""
    assert plan(facts) == plan(replace(facts))


@given(any_facts())
def test_every_action_has_its_sentence(facts: Facts) -> None:
    """The operator is always told why, in one line."""
    because = plan(facts).because
    assert because.strip()
    assert "\n" not in because
    assert "None" not in because


@settings(max_examples=400)
@given(any_facts())
def test_only_what_is_at_the_peer_is_handed_over(facts: Facts) -> None:
    """A handover needs a notice and names the peer's own newest checkpoint; nothing newer is here."""
    for action in plan(facts).actions:
        if isinstance(action, HandOver):
            assert facts.notice is not None
            assert facts.flush is None
            assert facts.peer is not None
            assert facts.peer.retry_at <= facts.now
            assert facts.peer.newest == action.place
            assert facts.newest is not None
            assert action.place.order >= facts.newest.order


@settings(max_examples=400)
@given(any_facts())
def test_only_what_every_rank_saved_is_committed(facts: Facts) -> None:
    """All ranks of the world have saved one and the same tag, or nobody commits."""
    for action in plan(facts).actions:
        if isinstance(action, Commit):
            assert [r.rank for r in facts.ranks] == list(range(facts.world))
            assert {r.saved for r in facts.ranks} == {action.tag}
            assert not any(r.failed for r in facts.ranks)
            assert facts.flush is not None
            assert action.flush_id == facts.flush.id


@given(any_facts())
def test_a_fenced_node_only_sends_its_ranks_home(facts: Facts) -> None:
    """Whatever else is known, a node that lost its epoch saves, commits and ships nothing."""
    actions = plan(replace(facts, role=Role.FENCED)).actions
    assert all(isinstance(a, StandDownAll) for a in actions)
    assert bool(actions) == bool(facts.ranks)


@given(any_facts())
def test_a_higher_epoch_at_the_peer_stops_everything(facts: Facts) -> None:
    """Once the peer refuses this epoch, the only action is to give the job up."""
    peer = PeerFact(fence=facts.epoch + 1)
    fenced = replace(facts, role=Role.PRIMARY, peer=peer, handing_over=False)
    assert plan(fenced).actions == (Fence(facts.epoch + 1),)


@given(any_facts())
def test_one_flush_at_a_time(facts: Facts) -> None:
    """No flush is asked for while one is in progress, and none that has been given up."""
    asked = [a for a in plan(facts).actions if isinstance(a, AskFlush)]
    assert len(asked) <= (1 if facts.flush is None else 0)
    assert all(a.id not in facts.given_up for a in asked)


@given(any_facts())
def test_only_a_notice_with_a_peer_holds_the_ranks(facts: Facts) -> None:
    """Hint, interval and operator never stop training (T3), nor does a notice that no peer can answer."""
    for action in plan(facts).actions:
        if isinstance(action, AskFlush) and action.hold:
            assert action.cause is Cause.NOTICE
            assert facts.notice is not None
            assert facts.peer is not None


@given(any_facts())
def test_the_agreed_step_is_one_no_rank_has_passed(facts: Facts) -> None:
    """The agreed step is the highest that any rank promised not to pass; every rank has promised."""
    for action in plan(facts).actions:
        if isinstance(action, SayAgree):
            promised = [r.at for r in facts.ranks if r.at is not None]
            assert len(promised) == facts.world > 0
            assert action.step == max(promised)


@given(any_facts())
def test_waiting_ends(facts: Facts) -> None:
    """At its bound a flush ends, unless its commit is under way: given up, committed or agreed too late."""
    if facts.flush is None or facts.role is Role.FENCED or facts.committing:
        return
    late = replace(facts, now=facts.flush.give_up_at, peer=None)
    (action, *rest) = plan(late).actions or (None,)
    done = facts.newest is not None and facts.newest.flush_id == facts.flush.id
    assert isinstance(action, GiveUp | Commit) or done
    assert not rest


@given(any_facts())
def test_one_transfer_at_a_time(facts: Facts) -> None:
    """Nothing is shipped beside a transfer, before its time, or to a peer that does not answer."""
    for action in plan(facts).actions:
        if isinstance(action, Ship | StopShip | HandOver):
            assert facts.peer is not None
            assert facts.peer.reachable
        if isinstance(action, Ship):
            assert facts.shipping is None
            assert action.place == facts.newest
            assert facts.peer is not None
            assert facts.peer.retry_at <= facts.now
        if isinstance(action, StopShip):
            assert action.place == facts.shipping != facts.newest


@given(any_facts())
def test_the_keeper_never_sleeps_past_a_bound(facts: Facts) -> None:
    """The next look is not negative, and not after the instant at which waiting for ranks ends."""
    look = next_look(facts)
    assert look is None or look >= 0
    if facts.flush is not None:
        assert look is not None
        assert look <= max(0.0, facts.flush.give_up_at - facts.now)
