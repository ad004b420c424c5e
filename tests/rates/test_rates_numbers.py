"""Known answers of the estimators, to the digits given."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.gamma import posterior
from outlast.daemon.rates.gang import hit
from outlast.daemon.rates.hierarchy import posteriors
from outlast.daemon.rates.series import Series
from outlast.daemon.rates.table import BANDS, CAUSES, Columns
from outlast.daemon.rates.tabulate import tabulate
from outlast.daemon.rates.units import hazard_of, mtbf_h, probability_of

MONTH = 720.0
POOL = Pool("aws", "us-east-1", "use1-az1", "p5.48xlarge")


@pytest.mark.parametrize(
    ("percent", "hazard", "mtbf", "eight_for_a_day"),
    [
        (0.8, 1.116e-5, 89_640, 0.0021),
        (1.2, 1.677e-5, 59_639, 0.0032),
        (3.5, 4.948e-5, 20_209, 0.0095),
        (4.1, 5.814e-5, 17_198, 0.0111),
        (5.3, 7.563e-5, 13_222, 0.0144),
        (9.8, 1.433e-4, 6_981, 0.0271),
        (12.7, 1.886e-4, 5_301, 0.0356),
    ],
)
def test_percent_a_month(percent: float, hazard: float, mtbf: float, eight_for_a_day: float) -> None:
    """Statements over 30 days become hazards, and back."""
    found = hazard_of(percent / 100, MONTH)
    assert found == pytest.approx(hazard, rel=5e-4)
    assert mtbf_h(found) == pytest.approx(mtbf, abs=0.5)
    assert probability_of(found, 24, 8) == pytest.approx(eight_for_a_day, abs=5e-5)
    assert probability_of(found, MONTH) == pytest.approx(percent / 100)


def test_percent_an_hour_is_another_thing() -> None:
    """The same figure a thousand times worse when it is meant by the hour."""
    found = hazard_of(0.053, 1.0)
    assert found == pytest.approx(5.446e-2, rel=5e-4)
    assert mtbf_h(found) == pytest.approx(18.4, abs=0.05)
    assert probability_of(found, 24, 8) == pytest.approx(1.0, abs=5e-5)


def test_edges_of_the_advisor() -> None:
    """5, 10, 15 and 20 % of a month, if read so."""
    found = [hazard_of(p, MONTH) for p in (0.05, 0.10, 0.15, 0.20)]
    assert found == pytest.approx([7.12e-5, 1.46e-4, 2.26e-4, 3.10e-4], rel=3e-3)
    assert hazard_of(1.0, 24) == math.inf
    assert mtbf_h(0.0) == math.inf


@pytest.mark.parametrize(("edge", "jeffreys"), [(0.05, 26_961), (0.20, 6_197)])
def test_bands_cannot_be_checked_on_a_node(edge: float, jeffreys: float) -> None:
    """Hours without any loss that are needed to be under a band's edge, 95 % sure."""
    needed = stats.gamma.ppf(0.95, 0.5) / hazard_of(edge, MONTH)
    assert needed == pytest.approx(jeffreys, rel=1e-3)
    assert posterior(0, needed).interval().high == pytest.approx(hazard_of(edge, MONTH), rel=1e-3)
    assert 3 / hazard_of(edge, MONTH) == pytest.approx({0.05: 42_111, 0.20: 9_680}[edge], rel=1.5e-3)


@pytest.mark.parametrize(
    ("lost", "hours", "prior", "mean", "low", "high", "none"),
    [
        (0, 10, None, 0.050000, 0.000197, 0.192073, 0.745356),
        (0, 100, None, 0.005000, 0.000020, 0.019207, 0.962250),
        (1, 24, None, 0.062500, 0.007330, 0.162807, 0.649519),
        (3, 100, None, 0.035000, 0.010837, 0.070336, 0.763865),
        (3, 100, (2, 10), 0.045455, 0.017910, 0.083214, 0.703969),
        (0, 24, (2, 10), 0.058824, 0.010452, 0.139525, 0.655329),
        (12, 60, (2, 10), 0.200000, 0.120913, 0.295265, 0.219810),
    ],
)
def test_gamma_poisson(
    lost: int,
    hours: float,
    prior: tuple[float, float] | None,
    mean: float,
    low: float,
    high: float,
    none: float,
) -> None:
    """Mean, 90 % interval and the chance of eight hours without a loss."""
    found = posterior(lost, hours) if prior is None else posterior(lost, hours, prior[0] / prior[1], prior[0])
    interval = found.interval()
    assert (interval.mean, interval.low, interval.high) == pytest.approx((mean, low, high), abs=6e-7)
    assert found.none_in(8) == pytest.approx(none, abs=6e-7)


def test_up_the_hierarchy() -> None:
    """Provider 40 in 400 h, region 6 in 100 h, pool 0 in 12 h."""
    region = posterior(6, 100, 40 / 400)
    pool = posterior(0, 12, region.mean)
    assert region.mean == pytest.approx(0.0636364, abs=5e-8)
    assert pool.mean == pytest.approx(0.0360825, abs=5e-8)
    assert pool.interval().low == pytest.approx(0.00185079, abs=5e-9)
    assert pool.interval().high == pytest.approx(0.1080934, abs=5e-8)


def test_the_hierarchy_is_what_pools_are_estimated_with() -> None:
    """The same figures from pools that add up to them."""
    pools = (
        Pool("aws", "a", "1", "t"),
        Pool("aws", "a", "2", "t"),
        Pool("aws", "b", "1", "t"),
    )
    found = posteriors(pools, np.array([0.0, 6.0, 34.0]), np.array([12.0, 88.0, 300.0]))
    assert found[0] is not None
    assert found[0].mean == pytest.approx(0.0360825, abs=5e-8)
    assert posteriors((POOL,), np.array([0.0]), np.array([0.0])) == [None]


def test_forgetting() -> None:
    """One event in 100 h now and as much one half-life ago are 1.5 in 150."""
    grid = np.zeros((1, 73))
    grid[0, 0], grid[0, 72] = 1.0, 1.0
    series = Series((POOL,), 0, grid * 100, grid, grid)
    now = 72.5 * 3600
    events, hours = (series.faded(each, now, 72.0)[0] for each in (grid, grid * 100))
    assert (events, hours) == pytest.approx((1.5, 150.0))
    assert events / hours == pytest.approx(0.01)


def test_one_node_held_for_ever_is_never_sure() -> None:
    """At a half-life of 72 h its exposure tends to 72 / ln 2."""
    grid = np.ones((1, 40_000))
    series = Series((POOL,), 0, grid, grid, grid)
    assert series.faded(grid, 40_000 * 3600.0, 72.0)[0] == pytest.approx(103.87, abs=0.01)


def columns(
    began: list[float], ended: list[float], cause: list[str] | None = None, known: bool = True
) -> Columns:
    """Spells of one pool, a node each."""
    count = len(began)
    return Columns(
        pools=(POOL,),
        pool=np.zeros(count, dtype=np.int64),
        node=np.arange(count),
        began=np.array(began),
        ended=np.array(ended),
        cause=np.array([CAUSES.index(c) for c in cause or ["user-stop"] * count]),
        known=np.full(count, known),
        hinted=np.zeros(count, dtype=np.bool_),
    )


def test_exposure_by_hour() -> None:
    """From 00:10 on Saturday 2025-10-04 for 5,400 s: 3,000 s in the first hour, 2,400 in the second."""
    table = tabulate(columns([1_759_536_600.0], [1_759_542_000.0]), 1_759_600_000.0)
    hours = table.exposure.sum(axis=(0, 1)) * 3600
    assert hours[hours > 0].tolist() == pytest.approx([3000.0, 2400.0])
    week_hour = (table.first_hour + int(np.flatnonzero(hours)[0]) + 72) % 168
    assert divmod(week_hour, 24) == (5, 0)


def test_exposure_from_the_epoch() -> None:
    """9,000 s from Thursday 1970-01-01 00:00."""
    table = tabulate(columns([0.0], [9000.0]), 20_000.0)
    hours = table.exposure.sum(axis=(0, 1)) * 3600
    assert hours[:3].tolist() == pytest.approx([3600.0, 3600.0, 1800.0])
    assert (table.first_hour + 72) % 168 == 72


def test_bands_of_age() -> None:
    """A stay of 20 h is a quarter in the first band, and what is left after 12 h in the last."""
    table = tabulate(columns([0.0], [20 * 3600.0], ["interruption"]), 30 * 3600.0)
    assert table.exposure.sum(axis=(0, 2)).tolist() == pytest.approx([0.25, 0.75, 3.0, 8.0, 8.0, 0.0])
    assert table.losses.sum(axis=(0, 2)).tolist() == [0, 0, 0, 0, 1, 0]
    unknown = tabulate(columns([0.0], [20 * 3600.0], known=False), 30 * 3600.0)
    assert unknown.exposure.sum(axis=(0, 2)).tolist() == pytest.approx([0.0] * (BANDS - 1) + [20.0])


@pytest.mark.parametrize(("up", "size", "nodes"), [(16, 9, 1), (16, 9, 4), (10, 3, 8), (5, 5, 2), (8, 0, 3)])
def test_hits_of_a_gang(up: int, size: int, nodes: int) -> None:
    """The chance that a burst takes any of the job's nodes is hypergeometric."""
    found = hit(np.array([up]), np.array([size]), nodes)[0]
    assert found == pytest.approx(1 - stats.hypergeom.pmf(0, up, size, nodes), abs=1e-12)
