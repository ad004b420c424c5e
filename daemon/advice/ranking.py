"""Pools against each other when no rate is known exactly: draws from each posterior, and who wins them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outlast.daemon.advice.cost import Cost, cost, interval_for
from outlast.daemon.advice.job import Job
from outlast.daemon.rates.values import PoolRate, Range

DRAWS = 2000
# The cheapest is called so with this much confidence, else it is a tie.
SURE = 0.8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pool that can be priced: ``count`` instances at ``price_usd_h`` for all of them.

    ``factor`` is the job's hazard by a node's: bursts take several of its nodes at once and count once.
    """

    rate: PoolRate
    price_usd_h: float
    count: int
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its cost of a useful hour, dollars; ``middle`` is the cost at the mean hazard."""

    candidate: Candidate
    hazard: float
    interval_s: float
    middle: Cost
    range: Range
    p_best: float


def rank(candidates: Sequence[Candidate], job: Job, *, remote: bool, seed: int = 0) -> tuple[Ranked, ...]:
    """All candidates, the cheapest first, by ``DRAWS`` draws from the rates for what starts now.

    ``p_best`` is the share of draws in which the pool is the cheapest of all.
    """
    if not candidates:
        return ()
    rng = np.random.default_rng(seed)
    found, costs = [], []
    for candidate in candidates:
        rate, share = candidate.rate, job.flush_share(candidate.rate.pool.provider)
        hazard = rate.current.mean * candidate.factor
        interval = interval_for(job, hazard, share)
        drawn = rng.gamma(rate.current_shape, 1 / rate.current_rate_h, DRAWS) * candidate.factor
        totals = cost(job, candidate.price_usd_h, drawn, share, interval, remote=remote).total
        middle = cost(job, candidate.price_usd_h, hazard, share, interval, remote=remote)
        low, high = (float(value) for value in np.quantile(totals, (0.05, 0.95)))
        found.append((candidate, hazard, interval, middle, Range(float(middle.total), low, high)))
        costs.append(totals)
    wins = np.bincount(np.argmin(np.array(costs), axis=0), minlength=len(found)) / DRAWS
    every = [Ranked(*parts, float(won)) for parts, won in zip(found, wins, strict=True)]
    return tuple(sorted(every, key=lambda one: (one.range.mean, one.candidate.rate.pool)))


def tied(ranked: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """The fewest that hold the cheapest with confidence SURE; one alone is no tie."""
    total, found = 0.0, []
    for one in sorted(ranked, key=lambda one: -one.p_best):
        found.append(one)
        total += one.p_best
        if total >= SURE:
            break
    return tuple(found)
