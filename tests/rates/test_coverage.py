"""How often the stated ranges held, asked of histories whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.coverage import coverage
from outlast.daemon.rates.study import study
from outlast.daemon.rates.table import BANDS, CAUSES, Observed, Origin, Table

FIRST = 480_000
HELD: Origin = "held"


def made(rates: np.ndarray[tuple[int, int], np.dtype[np.float64]], seed: int = 1) -> Table:
    """Pools at risk with four nodes at all hours, their losses drawn from ``rates`` (pool, hour) an hour."""
    pools, hours = rates.shape
    losses = np.zeros((pools, BANDS, hours), dtype=np.int64)
    exposure = np.zeros((pools, BANDS, hours))
    exposure[:, 3] = 4.0
    losses[:, 3] = np.random.default_rng(seed).poisson(rates * 4.0)
    pool, hour = np.nonzero(losses[:, 3])
    return Table(
        pools=tuple(Pool("aws", "r", f"z{number}", "t") for number in range(pools)),
        origin=tuple(HELD for _ in range(pools)),
        first_hour=FIRST,
        exposure=exposure,
        losses=losses,
        bursts=losses,
        spells=losses.sum(axis=(1, 2)),
        nodes=np.full(pools, 4),
        causes=np.zeros((pools, len(CAUSES)), dtype=np.int64),
        left_on_hint=np.zeros(pools, dtype=np.int64),
        burst_pool=np.repeat(pool, losses[pool, 3, hour]),
        burst_at=np.repeat(3600.0 * (FIRST + hour + 0.5), losses[pool, 3, hour]),
        burst_size=np.ones(int(losses.sum()), dtype=np.int64),
    )


def test_ranges_hold_where_nothing_changes() -> None:
    """At constant rates about nine in ten hold."""
    found = coverage(made(np.full((12, 24 * 80), 0.05)))
    assert found is not None
    assert found.asked == 12 * 10
    assert 0.82 <= found.held / found.asked <= 0.97


def test_ranges_do_not_hold_where_all_changes() -> None:
    """A rate that grows tenfold half way is told by the ranges that then missed."""
    rates = np.full((12, 24 * 38), 0.02)
    rates[:, 24 * 24 :] = 0.2
    found = coverage(made(rates))
    assert found is not None
    assert found.held / found.asked < 0.7


def test_a_short_history_cannot_be_asked() -> None:
    """Sixteen days hold no ten to learn from and seven to check."""
    assert coverage(made(np.full((2, 24 * 16), 0.05))) is None
    empty = made(np.zeros((0, 0)))
    assert coverage(empty) is None
    assert study(Observed(empty), 3600.0 * FIRST).pools == ()


@pytest.mark.parametrize(("days", "asked"), [(17, 1), (23, 1), (24, 2), (45, 5)])
def test_origins_are_a_week_apart(days: int, asked: int) -> None:
    """One pool is asked once a whole week after the first ten days."""
    found = coverage(made(np.full((1, 24 * days), 0.05)))
    assert found is not None
    assert found.asked == asked
    assert f"of the last {asked} weeks of a pool" in found.sentence


def test_the_latest_weeks_are_told() -> None:
    """The report speaks of twelve weeks at most."""
    table = made(np.full((1, 24 * 200), 0.05))
    found = coverage(table, weeks=12)
    assert found is not None
    assert found.asked == 12
    told = study(Observed(table), table.ends).coverage
    assert told == found
