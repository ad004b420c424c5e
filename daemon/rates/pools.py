"""Every pool's interruption rate: how sure it is, what it is now, and what it is good for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outlast.daemon.rates.dispersion import (
    Vector,
    burst_dispersion,
    burst_sizes,
    days_seen,
    node_dispersion,
)
from outlast.daemon.rates.gamma import Gamma, posterior
from outlast.daemon.rates.hierarchy import posteriors
from outlast.daemon.rates.series import Series, series_of
from outlast.daemon.rates.states import Seen, lower_pools, state_of
from outlast.daemon.rates.table import CAUSES, Table
from outlast.daemon.rates.values import PoolRate

HALF_LIFE_H = 72.0


@dataclass(frozen=True, slots=True)
class Rates:
    """Per pool of a series: phi of bursts and of nodes, the long-run rate, and the rate for what starts now.

    A rate is None where neither the pool nor its provider was ever at risk.
    """

    burst_phi: Vector
    phi: Vector
    long: list[Gamma | None]
    now: list[Gamma | None]


def estimate(table: Table, now: float, half_life_h: float = HALF_LIFE_H) -> tuple[PoolRate, ...]:
    """Estimate each pool's rate as of UTC ``now``, the calmest first.

    Nodes lost per instance-hour, with one pseudo-event of what lies above the pool; events and hours are
    divided by phi, so that the intervals know of bursts and of bad days. The current rate halves the weight
    of what was seen every ``half_life_h`` hours and falls back on the long-run rate, one pseudo-event of it.
    A pool of whose provider nothing was ever at risk has no rate and is left out.
    """
    series = series_of(table)
    mean, variance, largest = burst_sizes(table)
    rates = rates_of(series, mean, variance, now, half_life_h)
    kept = [index for index, gamma in enumerate(rates.long) if gamma is not None]
    seen = {index: _seen(series, rates, index, now, half_life_h) for index in kept}
    lowest = lower_pools(list(seen.values()))
    found = [
        _pool(table, rates, index, seen[index], lowest, float(mean[index]), int(largest[index]))
        for index in kept
    ]
    return tuple(sorted(found, key=lambda rate: (rate.hazard.mean, rate.pool, rate.origin)))


def rates_of(
    series: Series, mean: Vector, variance: Vector, now: float, half_life_h: float = HALF_LIFE_H
) -> Rates:
    """Estimate from an hourly series and each pool's mean and variance of burst sizes."""
    burst_phi = burst_dispersion(series)
    phi = node_dispersion(burst_phi, mean, variance)
    hours, losses = series.exposure.sum(axis=1), series.losses.sum(axis=1)
    long = posteriors(series.pools, losses / phi, hours / phi)
    recent_hours = series.faded(series.exposure, now, half_life_h) / phi
    recent_losses = series.faded(series.losses, now, half_life_h) / phi
    current = [
        None if gamma is None else posterior(float(count), float(hour), gamma.mean)
        for gamma, count, hour in zip(long, recent_losses, recent_hours, strict=True)
    ]
    return Rates(burst_phi, phi, long, current)


def _seen(series: Series, rates: Rates, index: int, now: float, half_life_h: float) -> Seen:
    gamma = rates.long[index]
    assert gamma is not None
    one = slice(index, index + 1)
    alone = Series(
        series.pools[one], series.first_hour, series.exposure[one], series.losses[one], series.bursts[one]
    )
    return Seen(
        exposure_h=float(alone.exposure.sum()),
        bursts=int(alone.bursts.sum()),
        days=int(days_seen(alone)[0]),
        hazard=gamma.interval(),
        burst_phi=float(rates.burst_phi[index]),
        newest=min(float(alone.newest()[0]), now),
        now=now,
        half_life_h=half_life_h,
    )


def _pool(
    table: Table, rates: Rates, index: int, seen: Seen, lowest: float | None, mean_burst: float, largest: int
) -> PoolRate:
    long, now = rates.long[index], rates.now[index]
    assert long is not None
    assert now is not None
    phi = float(rates.phi[index])
    state, because = state_of(seen, lowest)
    return PoolRate(
        pool=table.pools[index],
        origin=table.origin[index],
        exposure_h=seen.exposure_h,
        spells=int(table.spells[index]),
        losses=int(table.losses[index].sum()),
        bursts=seen.bursts,
        days=seen.days,
        shape=long.shape,
        rate_h=long.rate_h,
        phi=phi,
        hazard=seen.hazard,
        as_left=(long.shape + float(table.left_on_hint[index]) / phi) / long.rate_h,
        current=now.interval(),
        current_shape=now.shape,
        current_rate_h=now.rate_h,
        typical_stay_h=None if state == "not enough" else 1 / long.mean,
        state=state,
        because=because,
        newest=seen.newest,
        causes=_causes(table, index),
        mean_burst=mean_burst,
        largest_burst=largest,
    )


def _causes(table: Table, index: int) -> dict[str, int]:
    counts = np.asarray(table.causes[index])
    return {cause: int(count) for cause, count in zip(CAUSES, counts, strict=True) if count}
