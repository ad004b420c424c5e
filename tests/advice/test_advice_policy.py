"""Spot with on-demand under a deadline, replayed on availability."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.advice.policy import Policy, replay

TICK = 0.1


def test_spot_that_is_always_there_is_all_that_is_paid() -> None:
    """Both policies then run on spot alone, one change of instance."""
    for policy in ("greedy", "uniform progress"):
        done = replay(policy, [True] * 400, TICK, 24.0, 30.0, 0.2)
        assert done.met
        assert done.spot_h == pytest.approx(24.2)
        assert done.on_demand_h == 0.0
        assert done.cost(0.25, 24.0) == pytest.approx(24.2 * 0.25 / 24)


def test_without_spot_all_is_on_demand() -> None:
    """Greedy waits for the last moment, Uniform Progress keeps to its line; both are in time."""
    for policy in ("greedy", "uniform progress"):
        done = replay(policy, [False] * 400, TICK, 24.0, 30.0, 0.2)
        assert done.met
        assert done.spot_h == 0.0
        assert done.on_demand_h >= 24.2 - 1e-6


def test_uniform_progress_starts_at_once_where_greedy_waits() -> None:
    """After two hours without spot one has worked, the other has not."""
    quiet = [False] * 20 + [True] * 380
    steady = replay("uniform progress", quiet, TICK, 24.0, 36.0, 0.2)
    eager = replay("greedy", quiet, TICK, 24.0, 36.0, 0.2)
    assert steady.on_demand_h > 0.0
    assert eager.on_demand_h == 0.0
    assert steady.met
    assert eager.met


def test_a_trace_that_ends_early_is_no_success() -> None:
    """What was not seen is not assumed."""
    assert not replay("greedy", [True] * 10, TICK, 24.0, 30.0, 0.2).met


@given(
    up=st.lists(st.tuples(st.booleans(), st.integers(1, 40)), min_size=30, max_size=60),
    policy=st.sampled_from(["greedy", "uniform progress"]),
    slack=st.floats(1.1, 2.0),
)
def test_the_safety_net_holds(up: list[tuple[bool, int]], policy: Policy, slack: float) -> None:
    """Whatever spot does, a deadline that leaves two changes and a few ticks is met."""
    ticks = [there for there, count in up for _ in range(count)]
    ticks += [False] * 200
    assert replay(policy, ticks, TICK, 10.0, 10.0 * slack, 0.2).met
