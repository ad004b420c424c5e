"""Each pool week by week, so that a history too long for one rate shows how it drifted."""

from __future__ import annotations

import numpy as np

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.gamma import intervals, posterior
from outlast.daemon.rates.series import NOTHING_H, Series, series_of
from outlast.daemon.rates.table import Origin, Table
from outlast.daemon.rates.tabulate import HOUR_S
from outlast.daemon.rates.values import PoolRate, Trend, Week

WEEK_H = 168
# 1970-01-01 was a Thursday: weeks that begin on Monday begin this many hours after a multiple of 168.
MONDAY_H = 96


def trends(table: Table, rates: tuple[PoolRate, ...]) -> tuple[Trend, ...]:
    """Give the weeks of each pool that has a rate, from Monday to Monday, UTC, in the table's order.

    Held nodes and probes of one pool are two trends. A week in which the pool was never at risk is left out;
    the first and the last may be cut off by the ends of the table. A week's range leans on the pool's own
    rate, one pseudo-event of it, and knows of bursts and bad days by its phi.
    """
    series = series_of(table)
    known: dict[tuple[Pool, Origin], PoolRate] = {(rate.pool, rate.origin): rate for rate in rates}
    found = []
    for index, key in enumerate(zip(table.pools, table.origin, strict=True)):
        rate = known.get(key)
        if rate is not None:
            found.append(Trend(rate.pool, _weeks(series, index, rate), rate.origin))
    return tuple(found)


def _weeks(series: Series, index: int, rate: PoolRate) -> tuple[Week, ...]:
    one = slice(index, index + 1)
    exposure = series.folded(series.exposure[one], WEEK_H, MONDAY_H)[0]
    losses = series.folded(series.losses[one], WEEK_H, MONDAY_H)[0]
    first = (series.first_hour - MONDAY_H) // WEEK_H * WEEK_H + MONDAY_H
    seen = np.flatnonzero(exposure > NOTHING_H)
    hours, lost = exposure[seen].tolist(), losses[seen].tolist()
    spread = [
        posterior(events / rate.phi, at_risk / rate.phi, rate.hazard.mean)
        for events, at_risk in zip(lost, hours, strict=True)
    ]
    return tuple(
        Week(HOUR_S * (first + WEEK_H * number), at_risk, int(events), span)
        for number, at_risk, events, span in zip(seen.tolist(), hours, lost, intervals(spread), strict=True)
    )
