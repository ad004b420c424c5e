"""Each pool week by week, so that a history too long for one rate shows how it drifted."""

from __future__ import annotations

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.gamma import posterior
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
    return tuple(
        _week(HOUR_S * (first + WEEK_H * number), float(hours), float(lost), rate)
        for number, (hours, lost) in enumerate(zip(exposure, losses, strict=True))
        if hours > NOTHING_H
    )


def _week(begins: float, hours: float, lost: float, rate: PoolRate) -> Week:
    spread = posterior(lost / rate.phi, hours / rate.phi, rate.hazard.mean)
    return Week(begins, hours, int(lost), spread.interval())
