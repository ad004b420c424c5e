"""Everything that can be found in what was observed, in one value."""

from __future__ import annotations

from outlast.daemon.rates.ages import curves
from outlast.daemon.rates.coverage import WEEKS, coverage
from outlast.daemon.rates.gamma import posterior
from outlast.daemon.rates.gate import patterns
from outlast.daemon.rates.pools import estimate
from outlast.daemon.rates.series import NOTHING_H, Series, series_of
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.tabulate import HOUR_S
from outlast.daemon.rates.values import PoolRate, Study, Trend, Week
from outlast.daemon.rates.weekend import weekends

WEEK_H = 168
# 1970-01-01 was a Thursday: weeks that begin on Monday begin this many hours after a multiple of 168.
_MONDAY_H = 96


def study(observed: Observed, now: float) -> Study:
    """Estimate all rates and judge all patterns as of UTC ``now``. An empty history gives an empty study."""
    table = observed.table
    pools = estimate(table, now)
    return Study(
        begins=table.begins,
        ends=min(table.ends, now),
        now=now,
        pools=pools,
        ages=curves(table),
        weekends=weekends(table),
        patterns=patterns(table),
        trends=_trends(series_of(table), pools),
        coverage=coverage(table, weeks=WEEKS),
        notes=observed.notes,
    )


def _trends(series: Series, rates: tuple[PoolRate, ...]) -> tuple[Trend, ...]:
    """Each pool's weeks from Monday to Monday, UTC; a week's range leans on the pool's own rate."""
    exposure = series.folded(series.exposure, WEEK_H, _MONDAY_H)
    losses = series.folded(series.losses, WEEK_H, _MONDAY_H)
    first = (series.first_hour - _MONDAY_H) // WEEK_H * WEEK_H + _MONDAY_H
    by_pool = {rate.pool: rate for rate in rates}
    found = []
    for index, pool in enumerate(series.pools):
        rate = by_pool.get(pool)
        if rate is None:
            continue
        weeks = tuple(
            _week(HOUR_S * (first + WEEK_H * number), float(hours), float(lost), rate)
            for number, (hours, lost) in enumerate(zip(exposure[index], losses[index], strict=True))
            if hours > NOTHING_H
        )
        found.append(Trend(pool, weeks))
    return tuple(found)


def _week(begins: float, hours: float, lost: float, rate: PoolRate) -> Week:
    spread = posterior(lost / rate.phi, hours / rate.phi, rate.hazard.mean)
    return Week(begins, hours, int(lost), spread.interval())
