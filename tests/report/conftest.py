"""Values of a study made by hand: the report is tested on what the estimators give, not on the estimators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import gamma

from outlast.daemon.advice.values import Advice, BackTest, Bid, BidCurve, Request, Row
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import BANDS, CAUSES, Observed, Price, Table
from outlast.daemon.rates.values import (
    AgeBand,
    AgeCurve,
    Coverage,
    Pattern,
    PoolRate,
    Range,
    Study,
    Trend,
    Week,
    Weekend,
)

BEGINS = 1_767_571_200.0  # Monday 2026-01-05 00:00 UTC
DAYS = 42
EAST = Pool("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
WEST = Pool("aws", "us-west-2", "us-west-2b", "p3.2xlarge")
NEW = Pool("aws", "eu-west-1", "eu-west-1b", "p3.2xlarge")


def _range(shape: float, rate: float) -> Range:
    low, high = (float(gamma.ppf(p, shape, scale=1 / rate)) for p in (0.05, 0.95))
    return Range(shape / rate, low, high)


def _table(pools: tuple[Pool, ...]) -> Table:
    """Each pool seen by four nodes at all hours; pool i loses 4 + 3 i a day, at 16 UTC the most."""
    hours = DAYS * 24
    exposure = np.zeros((len(pools), BANDS, hours))
    losses = np.zeros((len(pools), BANDS, hours), dtype=np.int64)
    exposure[:, 3, :] = 4.0
    random = np.random.default_rng(7)
    of_day = np.arange(hours) % 24
    for number in range(len(pools)):
        mean = (4 + 3 * number) / 24 * np.exp(0.6 * np.cos(2 * np.pi * (of_day - 16) / 24))
        losses[number, 3] = random.poisson(mean)
    burst_pool, burst_hour = np.nonzero(losses.sum(axis=1))
    first_hour = round(BEGINS / 3600)
    return Table(
        pools=pools,
        origin=tuple("held" for _ in pools),
        first_hour=first_hour,
        exposure=exposure,
        losses=losses,
        bursts=np.minimum(losses, 1),
        spells=losses.sum(axis=(1, 2)) + 4,
        nodes=np.full(len(pools), 4),
        causes=np.zeros((len(pools), len(CAUSES)), dtype=np.int64),
        left_on_hint=np.zeros(len(pools), dtype=np.int64),
        burst_pool=burst_pool,
        burst_at=3600.0 * (first_hour + burst_hour) + 1800.0,
        burst_size=losses.sum(axis=1)[burst_pool, burst_hour],
    )


def _pool(table: Table, number: int) -> PoolRate:
    exposure, losses = float(table.exposure[number].sum()), int(table.losses[number].sum())
    phi = 3.0
    shape, rate = losses / phi + 1, exposure / phi + 10
    found = _range(shape, rate)
    return PoolRate(
        pool=table.pools[number],
        origin="held",
        exposure_h=exposure,
        spells=int(table.spells[number]),
        losses=losses,
        bursts=int((table.burst_pool == number).sum()),
        days=DAYS,
        shape=shape,
        rate_h=rate,
        phi=phi,
        hazard=found,
        as_left=found.mean,
        current=found,
        current_shape=shape,
        current_rate_h=rate,
        typical_stay_h=1 / found.mean,
        state="ok",
        because="enough to rank",
        newest=table.ends,
        causes={"interruption": losses, "job-done": 3, "running": 4},
        mean_burst=1.4,
        largest_burst=5,
    )


def _thin(pool: Pool) -> PoolRate:
    found = _range(0.5, 12.0)
    return PoolRate(
        pool=pool,
        origin="held",
        exposure_h=12.0,
        spells=1,
        losses=0,
        bursts=0,
        days=1,
        shape=0.5,
        rate_h=12.0,
        phi=1.0,
        hazard=found,
        as_left=found.mean,
        current=found,
        current_shape=0.5,
        current_rate_h=12.0,
        typical_stay_h=None,
        state="not enough",
        because="12 h seen, need about 100",
        newest=BEGINS + 43_200.0,
        causes={"running": 1},
        mean_burst=0.0,
        largest_burst=0,
    )


def _trend(table: Table, number: int) -> Trend:
    weeks = []
    for week in range(DAYS // 7):
        cut = slice(168 * week, 168 * (week + 1))
        exposure = float(table.exposure[number, :, cut].sum())
        losses = int(table.losses[number, :, cut].sum())
        found = _range(1 + losses / 3, 10 + exposure / 3)
        weeks.append(Week(BEGINS + 604_800.0 * week, exposure, losses, found))
    return Trend(table.pools[number], tuple(weeks))


def _ages() -> AgeCurve:
    bounds = ((0.0, 0.25, 2.4), (0.25, 1.0, 1.6), (1.0, 4.0, 0.9), (4.0, 12.0, 0.5), (12.0, None, 0.4))
    bands = tuple(AgeBand(a, b, 300.0, 90, _range(60 * f, 200.0), f) for a, b, f in bounds)
    return AgeCurve("aws", bands)


def _pattern(region: str, found: bool) -> Pattern:
    said = "daily cycle, peak at 16 UTC, 1.8x the mean (p 0.0001, held out-of-sample in 5 of 6 blocks)."
    none = "no daily pattern found; one stronger than 2.0x would have shown."
    return Pattern(
        provider="aws",
        region=region,
        state="pattern" if found else "no pattern",
        losses=200,
        bursts=150,
        days=DAYS,
        p_raw=0.00005 if found else 0.3,
        p=0.0001 if found else 0.3,
        peak_hour=16.0 if found else None,
        peak_to_mean=1.8 if found else None,
        gain=12.0 if found else -1.0,
        folds_won=5 if found else 1,
        folds=6,
        detectable=2.0,
        profile=(1.0,) * 24 if found else (),
        sentence=f"{region}: {said if found else none}",
    )


def _weekend() -> Weekend:
    return Weekend(
        "aws", "us-east-1", Range(0.5, 0.4, 0.62), 0.0001, "pattern", "weekends 0.5x weekdays (p 0.0001)."
    )


@pytest.fixture
def history() -> Callable[..., tuple[Study, Observed]]:
    """Makes a study of six weeks of the given pools, the last of which is hardly seen, and what it is of."""

    def make(*pools: Pool, prices: bool = True) -> tuple[Study, Observed]:
        seen = pools or (WEST, EAST, NEW)
        table = _table(seen)
        found = tuple(_pool(table, number) for number in range(len(seen) - 1))
        study = Study(
            begins=table.begins,
            ends=table.ends,
            now=table.ends,
            pools=(*found, _thin(seen[-1])),
            ages=(_ages(),),
            weekends=(_weekend(),),
            patterns=(_pattern("us-west-2", found=False), _pattern("us-east-1", found=True)),
            trends=tuple(_trend(table, number) for number in range(len(seen) - 1)),
            coverage=Coverage(9, 12, 10.0, 7.0, "These ranges held in 9 of 12 weeks (should be 10-11)."),
            notes=("2 stays began before they were observed: their age is not known.",),
        )
        cost = tuple(
            Price(pool, BEGINS + 86_400.0 * day, 900_000 + 1_000 * day)
            for pool in seen
            for day in range(DAYS)
        )
        listed = (Price(EAST, BEGINS, 3_060_000, "on_demand"),)
        return study, Observed(table, prices=cost + listed if prices else (), sources=("a.sqlite3",))

    return make


def _row(pool: Pool, usd: float, p_best: float) -> Row:
    return Row(
        pool=pool,
        market="spot",
        price_usd_h=usd,
        cap="none",
        hazard=Range(0.1, 0.06, 0.14),
        state="ok",
        interval_s=1450.0,
        interval_steps=290,
        goodput=0.95,
        per_useful_hour=Range(usd / 0.95, usd / 0.97, usd / 0.92),
        parts={"compute": usd / 0.95, "egress": 0.02},
        p_deadline=0.93,
        p_best=p_best,
        p_capacity=None,
        notes=("Waits for capacity are not included.",),
    )


@pytest.fixture
def advice() -> Advice:
    """A recommendation with all of its parts."""
    points = tuple(Bid(b, 0.5 / b**4, 0.9, 0.46 + (b - 0.5) ** 2) for b in (0.4, 0.44, 0.5, 0.6, 0.8))
    return Advice(
        verdict="run",
        sentence="Run in us-west-2b with the standby in us-east-1a: $1.00 a useful hour.",
        request=Request(hours=40.0, gpus=8),
        rows=(_row(WEST, 0.95, 0.9), _row(EAST, 1.65, 0.1)),
        order=(WEST, EAST),
        standby=EAST,
        window="any hour",
        policy="spot whenever it is there",
        cap="none",
        interval_s=1450.0,
        interval_steps=290,
        bids=(BidCurve(WEST, points[2], points),),
        reasons=("us-west-2b is lost a third as often as us-east-1a.",),
        not_known=("How long a new instance is waited for.",),
        assumed=("A restart takes 300 s of billed time.",),
        data_from=BEGINS,
        data_to=BEGINS + DAYS * 86_400.0,
        valid_until=BEGINS + (DAYS + 3) * 86_400.0,
        backtest=BackTest(4, 1.0, 1.4, 1.1, 0.98, "The advice was asked of each of the last 4 weeks."),
    )
