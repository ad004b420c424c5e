"""How much more a pool's losses vary from day to day than independent ones would.

Losses are clumped twice: several nodes go in one burst, and bursts come in bad days. An interval that
knows of neither holds next week's count in less than half of all cases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outlast.daemon.rates.series import DAY_H, NOTHING_H, Series
from outlast.daemon.rates.table import Table

# Until a pool has this many days of its own, its provider's pools together say how clumped bursts are; from
# then on what they say counts as much as so many days.
OWN_DAYS = 10

Vector = NDArray[np.float64]


def days_seen(series: Series) -> NDArray[np.int64]:
    """Count for each pool the UTC days on which it was at risk."""
    seen: NDArray[np.int64] = (series.folded(series.exposure, DAY_H) > NOTHING_H).sum(axis=1)
    return seen


def burst_dispersion(series: Series) -> Vector:
    """Give phi of the daily burst counts of each pool: Pearson's chi-square by its degrees of freedom, >= 1.

    1 where even the provider's pools together have no two days.
    """
    square, freedom = _pearson(series)
    providers = np.array([pool.provider for pool in series.pools])
    phi = np.ones(len(series.pools))
    for provider in np.unique(providers):
        ours = providers == provider
        if not freedom[ours].sum():
            continue
        pooled = square[ours].sum() / freedom[ours].sum()
        own = (square[ours] + OWN_DAYS * pooled) / (freedom[ours] + OWN_DAYS)
        phi[ours] = np.where(freedom[ours] + 1 < OWN_DAYS, pooled, own)
    return np.maximum(phi, 1.0)


def node_dispersion(burst_phi: Vector, mean: Vector, variance: Vector) -> Vector:
    """Give phi of daily node counts from that of bursts and the mean and variance of burst sizes.

    The variance of a sum of a random number of sizes: var(size) / mean + phi x mean. With bursts of one node
    each it is the bursts' own.
    """
    return variance / mean + burst_phi * mean


def burst_sizes(table: Table) -> tuple[Vector, Vector, NDArray[np.int64]]:
    """Give mean, variance and largest of each pool's burst sizes; 1, 0 and 0 where there was no burst."""
    pools = len(table.pools)
    number = np.bincount(table.burst_pool, minlength=pools)
    # Most bursts are of one node: only the others are looked at one by one.
    several = np.flatnonzero(table.burst_size != 1)
    pool, size = table.burst_pool[several], table.burst_size[several].astype(np.int64)
    total = number + np.bincount(pool, size - 1.0, minlength=pools)
    square = number + np.bincount(pool, size**2 - 1.0, minlength=pools)
    mean = np.divide(total, number, out=np.ones(pools), where=number > 0)
    variance = np.maximum(square / np.maximum(number, 1) - mean**2, 0.0) * (number > 0)
    largest = (number > 0).astype(np.int64)
    np.maximum.at(largest, pool, size)
    return mean, variance, largest


def _pearson(series: Series) -> tuple[Vector, NDArray[np.int64]]:
    exposure, bursts = series.folded(series.exposure, DAY_H), series.folded(series.bursts, DAY_H)
    seen = exposure > NOTHING_H
    hours = np.where(seen, exposure, 0.0).sum(axis=1)
    count = np.where(seen, bursts, 0.0).sum(axis=1)
    rate = np.divide(count, hours, out=np.zeros(len(hours)), where=hours > 0)
    expected = rate[:, None] * exposure
    told = seen & (expected > 0)
    square = np.divide((bursts - expected) ** 2, expected, out=np.zeros(expected.shape), where=told)
    freedom = np.where(rate > 0, np.maximum(seen.sum(axis=1) - 1, 0), 0)
    return square.sum(axis=1), freedom
