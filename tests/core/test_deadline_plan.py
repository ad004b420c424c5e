"""The deadline plan: every provider's notice against every size, and what more time or bandwidth may do."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.core.deadline import SURVIVED, Choice, Outlook, checkpoint_bytes, decide, movable_bytes
from outlast.daemon.core.facts import AskFlush, Facts, GiveUp, NoticeFact, PeerFact, Place, RankFact, Ship
from outlast.daemon.core.plan import plan

NOW = 1000.0
# Every length of notice there is: Vast.ai and AWS hibernate, RunPod, Azure as it is, Google, AWS, Volcengine,
# CoreWeave.
NOTICES = (0.0, 5.0, 8.0, 30.0, 120.0, 300.0, 420.0)
# A LoRA, 1.3B, 7B and 70B trained in full: gigabytes, and the seconds a flush of it takes at 2 GB/s a node.
SIZES = {"LoRA": (0.1, 1.5), "1.3B": (18.0, 10.0), "7B": (98.0, 50.0), "70B": (980.0, 62.0)}
TEN_GBIT = 1.25e9
B, S, H, K = Choice.FLUSH_AND_SHIP, Choice.SHIP_UNDER_WAY, Choice.FLUSH_HERE, Choice.KEEP

# What is done where the node is terminated, over 10 Gbit/s (0.08, 14.4, 78.4 and 784 s for a whole
# checkpoint), a tenth of the newest one still to be sent.
TERMINATED = {
    #         0  5  8  30 120 300 420
    "LoRA": [K, B, B, B, B, B, B],
    "1.3B": [K, S, S, B, B, B, B],
    "7B": [K, K, K, S, S, B, B],
    "70B": [K, K, K, K, S, S, S],
}
# The same where all is at the peer already: nothing to ship but a flush.
NOTHING_UNDER_WAY = {
    "LoRA": [K, B, B, B, B, B, B],
    "1.3B": [K, K, K, B, B, B, B],
    "7B": [K, K, K, K, K, B, B],
    "70B": [K, K, K, K, K, K, K],
}
# ... and where the disk survives, as after a stop.
STOPPED = {
    "LoRA": [K, B, B, B, B, B, B],
    "1.3B": [K, K, K, B, B, B, B],
    "7B": [K, K, K, K, H, B, B],
    "70B": [K, K, K, K, H, H, H],
}


def facts_of(size_gb: float, flush_s: float, notice_s: float, action: str, left_to_send: float) -> Facts:
    """A job whose measured flush and bandwidth are these, under a notice just seen."""
    newest = Place(1, "global_step100", 100, "interval-1", int(size_gb * 1e9))
    older = Place(1, "global_step90", 90)
    return Facts(
        now=NOW,
        epoch=1,
        world=1,
        ranks=(RankFact(0, 70, 110),),
        notice=NoticeFact("i-1", "i-1@7", action, NOW + notice_s),
        newest=newest,
        peer=PeerFact(reachable=True, newest=older if left_to_send else newest),
        shipping=newest if left_to_send else None,
        unsent=int(size_gb * 1e9 * left_to_send) if left_to_send else None,
        flush_s=flush_s,
        ship_bytes_s=TEN_GBIT,
    )


@pytest.mark.parametrize(
    ("table", "action", "left_to_send"),
    [(TERMINATED, "terminate", 0.1), (NOTHING_UNDER_WAY, "terminate", 0.0), (STOPPED, "stop", 0.0)],
    ids=["terminated", "nothing under way", "stopped"],
)
@pytest.mark.parametrize("model", SIZES)
def test_every_notice_against_every_size(
    table: dict[str, list[Choice]], action: str, left_to_send: float, model: str
) -> None:
    """The plan's choice from 0 s to 420 s and from a LoRA to 70B, each with figures in its sentence."""
    size_gb, flush_s = SIZES[model]
    verdicts = []
    for notice_s in NOTICES:
        decision = plan(facts_of(size_gb, flush_s, notice_s, action, left_to_send))
        assert decision.verdict is not None
        assert decision.verdict.sentence in decision.because
        assert f"{notice_s:.1f} s" in decision.verdict.sentence
        verdicts.append(decision.verdict.choice)
    assert verdicts == table[model]


@pytest.mark.parametrize("action", ["terminate", *sorted(SURVIVED)])
def test_only_a_disk_that_survives_is_flushed_to(action: str) -> None:
    """A 70B flush that fits and a transfer that does not: what the notice's action leaves decides."""
    verdict = plan(facts_of(*SIZES["70B"], 120.0, action, 0.0)).verdict
    assert verdict is not None
    assert verdict.choice == (K if action == "terminate" else H)
    assert verdict.flushes


def test_what_is_under_way_goes_before_a_flush_that_cannot_arrive() -> None:
    """7B on AWS, half of a checkpoint sent: no rank is asked, the transfer goes on, and the log says why."""
    decision = plan(facts_of(*SIZES["7B"], 120.0, "terminate", 0.5))
    assert decision.verdict is not None
    assert decision.verdict.needed_s == pytest.approx(39.2)
    assert [type(a) for a in decision.actions] == [GiveUp]
    assert "120.0 s are too short to flush and ship (128.4 s needed)" in decision.because
    assert "ship global_step100 instead (39.2 s needed)" in decision.because


def test_a_notice_without_warning_is_tried_all_the_same() -> None:
    """With 0 s nothing fits, and nothing is lost by asking for as long as the node lives."""
    decision = plan(facts_of(*SIZES["1.3B"], 0.0, "pause", 0.1))
    assert decision.verdict is not None
    assert decision.verdict.choice is K
    assert [type(a) for a in decision.actions] == [AskFlush]


def test_neither_fits_so_the_transfer_is_not_slowed_down() -> None:
    """A flush that cannot end is not asked for beside a transfer that cannot end either, but may."""
    decision = plan(facts_of(*SIZES["70B"], 8.0, "terminate", 1.0))
    assert decision.verdict is not None
    assert decision.verdict.choice is K
    assert [type(a) for a in decision.actions] == [GiveUp]
    assert "ship what fits of global_step100 (784.0 s needed)" in decision.because


def test_what_a_flush_has_to_send_is_what_the_last_one_had_to() -> None:
    """Frozen weights that lie at the peer already do not count: then 70B fits into two minutes."""
    frozen = replace(facts_of(*SIZES["70B"], 120.0, "terminate", 0.0), flush_bytes=10**9)
    verdict = plan(frozen).verdict
    assert verdict is not None
    assert verdict.choice is B
    assert verdict.needed_s == pytest.approx(62.8)


def test_a_committed_checkpoint_that_waits_for_its_transfer_is_under_way() -> None:
    """Committed, not at the peer, not being sent this moment: its whole size counts, and it is shipped."""
    waiting = replace(facts_of(*SIZES["1.3B"], 20.0, "terminate", 1.0), shipping=None, unsent=None)
    decision = plan(waiting)
    assert decision.verdict is not None
    assert decision.verdict.choice is S
    assert decision.verdict.needed_s == pytest.approx(14.4)
    assert [type(a) for a in decision.actions] == [GiveUp, Ship]


NUMBERS = st.floats(0.0, 2000.0)
BYTES = st.sampled_from([0.0, 1e8, 18e9, 98e9, 980e9]) | st.floats(0.0, 1e12)
OUTLOOKS = st.builds(
    Outlook,
    left_s=st.none() | st.floats(-60.0, 1000.0),
    flush_s=st.none() | NUMBERS,
    commit_s=st.none() | st.floats(0.0, 100.0),
    bytes_s=st.none() | st.floats(1e6, 1e11),
    flush_bytes=st.none() | BYTES,
    unsent=st.none() | BYTES,
    margin_s=st.floats(0.0, 2.0),
    survives=st.booleans(),
    peer=st.booleans(),
    reachable=st.none() | st.booleans(),
)


@given(OUTLOOKS, st.floats(1.0, 1000.0))
def test_more_bandwidth_never_makes_it_worse(outlook: Outlook, factor: float) -> None:
    """The same notice over a faster link: as good a choice, or a better one."""
    if outlook.bytes_s is not None:
        faster = replace(outlook, bytes_s=outlook.bytes_s * factor)
        assert decide(faster).choice.rank <= decide(outlook).choice.rank


@given(OUTLOOKS, st.floats(0.0, 1000.0))
def test_a_longer_notice_never_makes_it_worse(outlook: Outlook, more_s: float) -> None:
    """The same node with more time, or with no deadline at all."""
    if outlook.left_s is not None:
        longer = replace(outlook, left_s=outlook.left_s + more_s)
        endless = replace(outlook, left_s=None)
        ranks = [decide(o).choice.rank for o in (endless, longer, outlook)]
        assert all(a <= b for a, b in pairwise(ranks))


@given(OUTLOOKS)
def test_what_was_chosen_fits(outlook: Outlook) -> None:
    """Whatever is known of the choice's need is over before the deadline; only KEEP promises nothing."""
    verdict = decide(outlook)
    if verdict.choice is not K and verdict.needed_s is not None and outlook.left_s is not None:
        assert verdict.needed_s + outlook.margin_s <= outlook.left_s
    assert "None" not in verdict.sentence
    if verdict.choice in (B, S):
        assert outlook.peer
    if verdict.choice is H:
        assert outlook.survives


@given(OUTLOOKS)
def test_what_was_never_measured_is_tried(outlook: Outlook) -> None:
    """Without figures a flush is asked for, whatever the notice."""
    unknown = replace(outlook, flush_s=None, commit_s=None, bytes_s=None, flush_bytes=None, unsent=0)
    assert decide(unknown).flushes


@pytest.mark.parametrize(
    ("parameters", "zero", "size_gb"),
    [(1.3e9, 2, 18.2), (7e9, 1, 98.0), (70e9, 2, 980.0), (7e9, 3, 84.0), (7e6, 2, 0.098)],
)
def test_bytes_a_parameter(parameters: float, zero: int, size_gb: float) -> None:
    """14 bytes with ZeRO 1 and 2, 12 with ZeRO 3, as measured."""
    assert checkpoint_bytes(parameters, zero) == pytest.approx(size_gb * 1e9)


def test_movable_bytes() -> None:
    """120 s at 10 Gbit/s are 150 GB; what comes before the first byte is taken off; never below 0."""
    nothing = {"detect_s": 0.0, "step_s": 0.0, "save_s": 0.0, "commit_s": 0.0}
    assert movable_bytes(120.0, TEN_GBIT, **nothing) == pytest.approx(150e9)
    taken = {"detect_s": 1.0, "step_s": 4.0, "save_s": 10.0, "commit_s": 5.0}
    assert movable_bytes(120.0, TEN_GBIT, **taken) == pytest.approx(125e9)
    assert movable_bytes(8.0, TEN_GBIT, **taken) == 0.0
