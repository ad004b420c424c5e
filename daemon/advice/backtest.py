"""The advice asked of the past: each week told from what was known before it, then held against what came.

At each origin, a week apart, only earlier hours and prices are seen and the pool that the advice puts first
is taken. What an hour of useful training then cost in each pool follows from that week's own losses,
exposure and mean price by the goodput formula, each pool at the interval its advised rate would have set.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from outlast.daemon.advice.cost import cost, interval_for
from outlast.daemon.advice.job import Job, filled
from outlast.daemon.advice.offers import Offers
from outlast.daemon.advice.ranking import Candidate, Ranked, rank
from outlast.daemon.advice.values import BackTest, Request
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.pools import estimate
from outlast.daemon.rates.table import Observed, Origin, Price, Table
from outlast.daemon.rates.tabulate import window

WEEK_S = 7 * 86400.0
# So much must have been seen before the first origin; a pool seen less in its week has no cost in it.
LEAST_DAYS = 10.0
LEAST_HOURS = 8.0
# Replayed are the latest weeks: as many as make no more pool-weeks than this, but at least LEAST_WEEKS.
MOST_POOL_WEEKS = 5000
LEAST_WEEKS = 8


@dataclass(frozen=True, slots=True)
class Week:
    """One origin: what each pool cost in the week after it, and what would have been chosen."""

    begins: float
    costs: dict[Pool, float]
    advised: Pool
    cheapest: Pool


@dataclass(frozen=True, slots=True)
class _Past:
    """What every origin looks into: the prices of each pool by time, and each pool's row of the table."""

    table: Table
    job: Job
    prices: dict[Pool, list[Price]]
    places: dict[tuple[Pool, Origin], int]

    def prices_at(self, origin: float) -> list[Price]:
        """The latest price of each pool and kind, none after ``origin``."""
        known = {
            (price.pool, price.kind): price
            for prices in self.prices.values()
            for price in prices[: bisect_right(prices, origin, key=_when)]
        }
        return list(known.values())


def backtest(observed: Observed, request: Request) -> BackTest:
    """Replay the whole history. Costs are means over the weeks, dollars an hour of useful training."""
    weeks = replay(observed, request)
    if not weeks:
        days = (observed.table.ends - observed.table.begins) / 86400
        why = f"Not back-tested: {days:.0f} days of history hold no week to advise on and check."
        return BackTest(0, None, None, None, None, why)
    advised = float(np.mean([week.costs[week.advised] for week in weeks]))
    cheapest = float(np.mean([week.costs[week.cheapest] for week in weeks]))
    random = float(np.mean([np.mean(list(week.costs.values())) for week in weeks]))
    best = float(np.mean([min(week.costs.values()) for week in weeks]))
    many = "s" if len(weeks) != 1 else ""
    sentence = (
        f"Over {len(weeks)} week{many}, each told from what was before it: following the advice cost"
        f" ${advised:.2f} a useful hour, a random pool ${random:.2f}, the cheapest by price"
        f" ${cheapest:.2f}, the best in hindsight ${best:.2f}."
    )
    return BackTest(len(weeks), advised, random, cheapest, best, sentence)


def replay(observed: Observed, request: Request) -> tuple[Week, ...]:
    """Every origin that had enough before it and at least two pools to choose from after it.

    The latest count where there are more than MOST_POOL_WEEKS: a year of hundreds of pools takes seconds.
    """
    table = observed.table
    past = _past(observed, request)
    first, room = table.begins + LEAST_DAYS * 86400, table.ends + 1.0 - WEEK_S
    weeks = max(0, math.floor((room - first) / WEEK_S) + 1)
    skipped = max(0, weeks - max(LEAST_WEEKS, MOST_POOL_WEEKS // max(1, len(table.pools))))
    found = (_week(past, first + WEEK_S * number) for number in range(skipped, weeks))
    return tuple(week for week in found if week is not None)


def _past(observed: Observed, request: Request) -> _Past:
    table = observed.table
    places = enumerate(zip(table.pools, table.origin, strict=True))
    job, _, _ = filled(request, observed.timing)
    return _Past(table, job, _by_pool(observed.prices), {place: index for index, place in places})


def _week(past: _Past, origin: float) -> Week | None:
    after = window(past.table, origin, origin + WEEK_S)
    ranked = rank(_candidates(past, origin), past.job, remote=False)
    costs = {}
    for one in ranked:
        paid = _cost_of(one, after, past, origin)
        if paid is not None:
            costs[one.candidate.rate.pool] = paid
    ranked = tuple(one for one in ranked if one.candidate.rate.pool in costs)
    if len(ranked) < 2:
        return None
    cheapest = min(ranked, key=lambda one: one.candidate.price_usd_h)
    return Week(origin, costs, ranked[0].candidate.rate.pool, cheapest.candidate.rate.pool)


def _candidates(past: _Past, origin: float) -> tuple[Candidate, ...]:
    """What could be ranked then: pools with enough data before ``origin`` and a price of it."""
    offers = Offers(past.prices_at(origin), ())
    found = []
    for rate in estimate(window(past.table, past.table.begins, origin), origin):
        price = offers.spot(rate.pool)
        if rate.state == "ok" and price is not None and rate.pool in past.prices:
            found.append(Candidate(rate, price, 1))
    return tuple(found)


def _cost_of(one: Ranked, after: Table, past: _Past, origin: float) -> float | None:
    """What came: that week's losses by its exposure, at the price that held on average."""
    rate = one.candidate.rate
    index = past.places[rate.pool, rate.origin]
    hours = float(after.exposure[index].sum(dtype=np.float64))
    if hours < LEAST_HOURS:
        return None
    hazard = float(after.losses[index].sum()) / hours
    share = past.job.flush_share(rate.pool.provider)
    interval = interval_for(past.job, one.hazard, share)
    price = _mean_price(past.prices[rate.pool], origin, origin + WEEK_S)
    return float(cost(replace(past.job, bytes=None), price, hazard, share, interval, remote=False).total)


def _by_pool(prices: Sequence[Price]) -> dict[Pool, list[Price]]:
    found: dict[Pool, list[Price]] = {}
    for price in sorted(prices, key=_when):
        if price.kind != "on_demand":
            found.setdefault(price.pool, []).append(price)
    return found


def _when(price: Price) -> float:
    return price.at


def _mean_price(prices: Sequence[Price], begins: float, ends: float) -> float:
    """The time-weighted mean of a step function; the last price before ``begins`` holds at first."""
    total = 0.0
    first = max(0, bisect_right(prices, begins, key=_when) - 1)
    for index in range(first, bisect_right(prices, ends, key=_when)):
        until = prices[index + 1].at if index + 1 < len(prices) else ends
        held = min(until, ends) - max(prices[index].at, begins)
        total += max(held, 0.0) * prices[index].micro_usd / 1e6
    return total / (ends - max(begins, prices[first].at))
