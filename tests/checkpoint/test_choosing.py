"""Which checkpoint a job goes on from, whatever is found: the newest that can be used, or a refusal."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.checkpoint.choosing import Candidate, Go, Nothing, Refuse, Silent, choose
from outlast.wire.fit import World, advice, is_universal, misfit, world_of
from outlast.wire.manifest import FileEntry, Manifest
from outlast.wire.messages import Layout

TWO = Layout(world=2, data=2, zero_stage=2)
FOUR = Layout(world=4, data=2, tensor=2, zero_stage=1)
PLAIN = (FileEntry("mp_rank_00_model_states.pt", 10, "0" * 64),)
UNIVERSAL = (*PLAIN, FileEntry("zero/transformer.h.0.attn.weight/fp32.pt", 10, "1" * 64))


def manifest(step: int, epoch: int = 1, layout: Layout = TWO, *, universal: bool = False) -> Manifest:
    """A checkpoint of one or two files."""
    files = UNIVERSAL if universal else PLAIN
    return Manifest("gpt", f"global_step{step}", step, epoch, "f", "test", 0.0, layout, files)


manifests = st.builds(
    manifest,
    st.integers(0, 4),
    st.integers(1, 3),
    st.sampled_from([TWO, FOUR]),
    universal=st.booleans(),
)
candidates = st.lists(
    st.builds(
        Candidate,
        st.sampled_from(["here", "peer", "s3://b"]),
        st.integers(0, 3),
        manifests,
        st.sampled_from(["", "", "torn"]),
    ),
    max_size=6,
)
worlds = st.sampled_from([World(), world_of(TWO), world_of(FOUR), World(world=2), World(zero_stage=1)])
silent = st.lists(st.builds(Silent, st.just("peer"), st.just("no answer")), max_size=2)


@given(candidates, silent, worlds, st.none() | st.integers(1, 3))
def test_the_newest_that_can_be_used_or_a_refusal(
    found: list[Candidate], quiet: list[Silent], world: World, limit: int | None
) -> None:
    """What is newest decides: it is gone on from, or refused with advice; nothing older is ever taken."""
    decision = choose(found, quiet, world, limit)
    usable = [one for one in found if not one.trouble]
    assert isinstance(decision, Nothing) == (not usable)
    if isinstance(decision, Nothing):
        return
    newest = max(one.order for one in usable)
    assert decision.candidate in usable
    assert decision.candidate.order == newest
    fits = [one for one in usable if one.order == newest and not misfit(one.manifest, world)]
    allowed = limit is None or newest[0] <= limit
    assert isinstance(decision, Go) == (bool(fits) and allowed)
    if isinstance(decision, Go):
        assert not misfit(decision.candidate.manifest, world)
        same = [
            one for one in fits if is_universal(one.manifest) == is_universal(decision.candidate.manifest)
        ]
        assert decision.candidate.near == min(one.near for one in same)
    if isinstance(decision, Refuse):
        assert decision.because
        assert decision.advice


@given(candidates, silent, worlds)
def test_what_could_have_been_newer_is_told_of(
    found: list[Candidate], quiet: list[Silent], world: World
) -> None:
    """Every place that kept silent, and every damaged checkpoint that is not older than the chosen one."""
    decision = choose(found, quiet, world)
    newest = (0, 0) if isinstance(decision, Nothing) else decision.candidate.order
    torn = [one for one in found if one.trouble and one.order >= newest]
    assert len(decision.passed) == len(torn) + len(quiet)
    assert all("passed over" in sentence for sentence in decision.passed)


@given(st.permutations(range(6)), candidates, worlds)
def test_the_order_of_the_places_answers_does_not_matter(
    order: list[int], found: list[Candidate], world: World
) -> None:
    """Answers come as they come: what is chosen is an equal of what another order would have given."""
    shuffled = [found[number] for number in order if number < len(found)]
    one, other = choose(found, (), world), choose(shuffled, (), world)
    assert type(one) is type(other)
    if isinstance(one, Go) and isinstance(other, Go):
        assert (one.candidate.order, one.candidate.near) == (other.candidate.order, other.candidate.near)


def test_a_universal_checkpoint_fits_any_run() -> None:
    """Converted, the same step is gone on from by twice the ranks; unconverted it is not."""
    plain, universal = manifest(5, layout=FOUR), manifest(5, layout=FOUR, universal=True)
    assert misfit(plain, world_of(TWO)) == (
        "it was saved with 4 ranks (data 2, tensor 2, pipeline 1), ZeRO stage 1, "
        "this run has 2 ranks (data 2, tensor 1, pipeline 1), ZeRO stage 2"
    )
    assert misfit(universal, world_of(TWO)) == ""
    both = [
        Candidate("here", 0, plain),
        Candidate("here", 0, replace(universal, tag="global_step5_universal")),
    ]
    decision = choose(both, (), world_of(TWO))
    assert isinstance(decision, Go)
    assert decision.candidate.manifest.tag == "global_step5_universal"
    fitting = choose(both, (), world_of(FOUR))
    assert isinstance(fitting, Go)
    assert fitting.candidate.manifest == plain


def test_the_advice_names_the_ranks_the_converter_and_the_setting() -> None:
    """A person reads in one sentence what to start, or what to convert and how to load it."""
    told = advice(manifest(5))
    for words in (
        "2 ranks",
        "ZeRO stage 2",
        "ds_to_universal.py",
        "global_step5_universal",
        "load_universal",
    ):
        assert words in told


def test_only_what_is_known_of_a_run_is_compared() -> None:
    """A person may name the ranks alone; what is not named fits."""
    assert misfit(manifest(1), World(world=2)) == ""
    assert "this run has 3 ranks" in misfit(manifest(1), World(world=3))
    assert "this run has ZeRO stage 3" in misfit(manifest(1), World(zero_stage=3))


def test_a_later_epoch_than_the_nodes_is_refused() -> None:
    """The job has gone on elsewhere: not even a checkpoint that fits is taken, and none of this epoch is."""
    found = [Candidate("here", 0, manifest(9, epoch=1)), Candidate("s3://b", 1, manifest(2, epoch=2))]
    decision = choose(found, (), World(), limit=1)
    assert isinstance(decision, Refuse)
    assert "later epoch than this node's, which is 1" in decision.because
    assert "outlast takeover" in decision.advice
