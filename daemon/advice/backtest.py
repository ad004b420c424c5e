"""The advice asked of the past: each week told from what was known before it, then held against what came.

At each origin, a week apart, only earlier hours and prices are seen and the pool that the advice puts first
is taken. What an hour of useful training then cost in each pool follows from that week's own losses,
exposure and mean price by the goodput formula, each pool at the interval its advised rate would have set.
"""

from __future__ import annotations

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
from outlast.daemon.rates.table import Observed, Price, Table
from outlast.daemon.rates.tabulate import window

WEEK_S = 7 * 86400.0
# So much must have been seen before the first origin; a pool seen less in its week has no cost in it.
LEAST_DAYS = 10.0
LEAST_HOURS = 8.0


@dataclass(frozen=True, slots=True)
class Week:
    """One origin: what each pool cost in the week after it, and what would have been chosen."""

    begins: float
    costs: dict[Pool, float]
    advised: Pool
    cheapest: Pool


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
    """Every origin that had enough before it and at least two pools to choose from after it."""
    table = observed.table
    job, _, _ = filled(request, observed.timing)
    found = []
    origin = table.begins + LEAST_DAYS * 86400
    while origin + WEEK_S <= table.ends + 1.0:
        week = _week(observed, job, origin)
        if week is not None:
            found.append(week)
        origin += WEEK_S
    return tuple(found)


def _week(observed: Observed, job: Job, origin: float) -> Week | None:
    before = window(observed.table, observed.table.begins, origin)
    after = window(observed.table, origin, origin + WEEK_S)
    prices = _by_pool(observed.prices)
    offers = Offers([price for price in observed.prices if price.at <= origin], ())
    candidates = []
    for rate in estimate(before, origin):
        price = offers.spot(rate.pool)
        if rate.state == "ok" and price is not None:
            candidates.append(Candidate(rate, price, 1))
    ranked = rank(candidates, job, remote=False)
    costs = {}
    for one in ranked:
        paid = _cost_of(one, after, prices[one.candidate.rate.pool], job, origin)
        if paid is not None:
            costs[one.candidate.rate.pool] = paid
    ranked = tuple(one for one in ranked if one.candidate.rate.pool in costs)
    if len(ranked) < 2:
        return None
    cheapest = min(ranked, key=lambda one: one.candidate.price_usd_h)
    return Week(origin, costs, ranked[0].candidate.rate.pool, cheapest.candidate.rate.pool)


def _cost_of(one: Ranked, after: Table, prices: Sequence[Price], job: Job, origin: float) -> float | None:
    """What came: that week's losses by its exposure, at the price that held on average."""
    pool = one.candidate.rate.pool
    index = after.pools.index(pool)
    hours = float(after.exposure[index].sum(dtype=np.float64))
    if hours < LEAST_HOURS:
        return None
    hazard = float(after.losses[index].sum()) / hours
    share = job.flush_share(pool.provider)
    interval = interval_for(job, one.hazard, share)
    price = _mean_price(prices, origin, origin + WEEK_S)
    return float(cost(replace(job, bytes=None), price, hazard, share, interval, remote=False).total)


def _by_pool(prices: Sequence[Price]) -> dict[Pool, list[Price]]:
    found: dict[Pool, list[Price]] = {}
    for price in sorted(prices, key=lambda price: price.at):
        if price.kind != "on_demand":
            found.setdefault(price.pool, []).append(price)
    return found


def _mean_price(prices: Sequence[Price], begins: float, ends: float) -> float:
    """The time-weighted mean of a step function; the last price before ``begins`` holds at first."""
    total = 0.0
    for index, price in enumerate(prices):
        until = prices[index + 1].at if index + 1 < len(prices) else ends
        held = min(until, ends) - max(price.at, begins)
        total += max(held, 0.0) * price.micro_usd / 1e6
    first = max(begins, prices[0].at)
    return total / (ends - first)
