"""Ranks of several nodes agree on one step, each node with a daemon of its own: real sockets, real links."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.hooks import agreement, flushes, guard, link
from outlast.hooks.ballot import BallotError, LocalBallot
from outlast.hooks.calls import Calls
from outlast.simulations.training.nodes import Home, Nodes
from outlast.wire.messages import At, Failed, Flush, Saved, StandDown

QUICK = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
NODES, HERE = 2, 2
WORLD = NODES * HERE
MODEL = "mp_rank_00_model_states.pt"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules with waits short enough for a test."""
    monkeypatch.setattr(agreement, "RECONNECT_S", 0.5)
    monkeypatch.setattr(flushes, "WAIT_AT_LEAST_S", 2.0)
    monkeypatch.setattr(guard, "READY_S", 2.0)
    monkeypatch.setattr(link, "URGENT_RETRY_S", 0.02)


class Stage:
    """A daemon for each node, and the ranks once it is started."""

    def __init__(self, daemons: list[Any], root: Path) -> None:
        self.daemons, self.root = daemons, root
        for number, daemon in enumerate(daemons):
            daemon.path = daemon.path.with_name(f"{number}.sock")
            daemon.agree_with = set()  # the daemon of one node cannot say what all have agreed on
            daemon.start()

    def begin(self) -> Nodes:
        """Start the ranks and wait until all are known."""
        homes = [Home(self.root / f"node{number}", daemon.path) for number, daemon in enumerate(self.daemons)]
        ranks = Nodes(homes, HERE)
        ranks.start()
        for daemon in self.daemons:
            daemon.connected()
        return ranks

    def files(self, node: int, step: int) -> list[str]:
        """What lies in a node's folder of this step."""
        folder = self.root / f"node{node}" / "epoch-1" / f"global_step{step}.partial"
        return sorted(path.name for path in folder.iterdir())

    def saved(self, flush_id: str) -> int:
        """The one step at which every rank of both nodes saved it."""
        words = [word for daemon in self.daemons for word in daemon.all_said(Saved, flush_id).values()]
        steps = {word.step for word in words}
        assert len(words) == WORLD
        assert len(steps) == 1, steps
        return int(steps.pop())


@pytest.fixture
def stage(make_daemon: Callable[[int], Any], tmp_path: Path) -> Stage:
    """Two nodes."""
    return Stage([make_daemon(HERE) for _ in range(NODES)], tmp_path)


def test_a_flush_of_one_node_is_saved_by_all_at_one_step(stage: Stage) -> None:
    """Only node 1's daemon asks; each node's ranks save to their own folder, and tell their own daemon."""
    ranks = stage.begin()
    stage.daemons[1].flush("f")
    step = stage.saved("f")
    at = stage.daemons[0].all_said(At, "f")
    ranks.finish()
    assert {word.reason for word in at.values()} == {"test"}
    assert stage.files(0, step) == [MODEL, "outlast_rank_00000.pt", "outlast_rank_00001.pt"]
    assert stage.files(1, step) == [MODEL, "outlast_rank_00002.pt", "outlast_rank_00003.pt"]


def test_two_nodes_asked_at_the_same_moment_save_one_after_the_other(stage: Stage) -> None:
    """A burst takes both: each node's flush is saved by all, and nobody waits for the other for ever."""
    ranks = stage.begin()
    for number, daemon in enumerate(stage.daemons):
        daemon.flush(f"f{number}")
    first, second = stage.saved("f0"), stage.saved("f1")
    ranks.finish()
    assert abs(first - second) <= 2


def test_held_by_one_node_all_wait_until_it_lets_go(stage: Stage) -> None:
    """A notice holds the ranks of both nodes at the saved step; withdrawn on the one, all train on."""
    for daemon in stage.daemons:
        daemon.answers_saved = False
    ranks = stage.begin()
    stage.daemons[0].flush("f", hold=True)
    step = stage.saved("f")
    assert {word.hold for word in stage.daemons[1].words(Saved, "f").values()} == {True}
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert ranks.steps == [step] * WORLD
        time.sleep(0.05)
    stage.daemons[0].send(StandDown("the notice was withdrawn", "train", "f", committed=True))
    ranks.finish()
    assert min(ranks.steps) > step


def test_what_is_saved_while_ranks_are_held_does_not_let_them_go(stage: Stage) -> None:
    """Both nodes get notice, one a little later: the second save is of the same step, and they stay held."""
    for daemon in stage.daemons:
        daemon.answers_saved = False
    ranks = stage.begin()
    stage.daemons[0].flush("f", hold=True)
    step = stage.saved("f")
    stage.daemons[1].flush("g", hold=False)
    assert stage.saved("g") == step
    assert {word.hold for word in stage.daemons[1].words(Saved, "g").values()} == {True}
    assert stage.files(0, step) == [MODEL, "outlast_rank_00000.pt", "outlast_rank_00001.pt"]
    assert ranks.steps == [step] * WORLD
    stage.daemons[1].send(StandDown("the notice was withdrawn", "train", "g", committed=True))
    ranks.finish()


def test_a_flush_given_up_by_one_node_is_off_for_all(stage: Stage) -> None:
    """Its daemon gives up while ranks wait for a node that does not answer: the waiting ones train on."""
    ranks = stage.begin()
    stage.daemons[1].stop()
    for rank in (2, 3):
        ranks.guards[rank]._link.epoch = 0  # as long as a rank has not been told its epoch it hears nothing
    stage.daemons[0].flush("f")
    stage.daemons[0].all_said(At, "f")
    stage.daemons[0].send(StandDown("not every rank answered", "train", "f"))
    ranks.finish()
    assert stage.daemons[0].words(Saved, "f") == {}


def test_a_node_without_its_daemon_saves_and_tells_it_later(stage: Stage) -> None:
    """Ranks whose daemon is being restarted hear the other node all the same; the new daemon is told."""
    ranks = stage.begin()
    stage.daemons[1].stop()
    stage.daemons[0].flush("f")
    stage.daemons[0].all_said(Saved, "f")
    stage.daemons[1].start()
    assert len(stage.daemons[1].all_said(Saved, "f")) == HERE
    ranks.finish()


@QUICK
@given(st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=1, max_size=5))
def test_any_order_of_flushes_is_saved_by_all(
    make_daemon: Callable[[int], Any], tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[int, bool]]
) -> None:
    """Asked at any node, one right after the other: all are saved, each at one step, and none hangs."""
    stage = Stage([make_daemon(HERE) for _ in range(NODES)], tmp_path_factory.mktemp("nodes"))
    ranks = stage.begin()
    for number, (node, at_once) in enumerate(asked):
        stage.daemons[node].flush(f"f{number}")
        if not at_once:
            stage.saved(f"f{number}")
    steps = [stage.saved(f"f{number}") for number in range(len(asked))]
    ranks.finish()
    for daemon in stage.daemons:
        daemon.stop()
    assert max(steps) <= min(ranks.steps)


def test_slots_give_all_ranks_one_order() -> None:
    """Whoever calls first, and whoever looks when: the same flushes in the same order, each once."""
    shared: dict[str, str] = {}
    ours, theirs = (Calls(LocalBallot(rank, 2, shared), clock=lambda: 0.0) for rank in range(2))
    heard = ours.put(Flush("a", "x"))
    heard += ours.put(Flush("b", "x"))
    seen = theirs.put(Flush("c", "x"))
    assert [flush.id for flush in seen] == ["a", "b", "c"]
    assert theirs.put(Flush("a", "x")) == []
    assert [flush.id for flush in [*heard, *ours.look()]] == ["a", "b", "c"]


def test_a_slot_that_nobody_can_read_is_passed_over() -> None:
    """Words of another version, or none at all, end nothing."""
    shared = {"call/0": "{}", "call/1": '{"type": "resume", "epoch": 1}', "call/2": "no json"}
    calls = Calls(LocalBallot(0, 2, shared), clock=lambda: 0.0)
    assert [flush.id for flush in calls.put(Flush("a", "x"))] == ["a"]


def test_without_the_register_a_flush_fails_at_once() -> None:
    """The process that keeps it is gone: the daemon hears why, and does not wait for its bound."""

    class Gone(LocalBallot):
        def decide(self, key: str, value: str) -> str:
            raise BallotError(f"reset at {key}, {len(value) > 0}")

    rank = agreement.Agreement(Gone(0, 2), several=True)
    rank.hear(Flush("f", "test"))
    assert list(rank.outbox) == [Failed("f", "the other nodes cannot be told: reset at call/0, True")]
