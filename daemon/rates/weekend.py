"""Saturdays and Sundays against weekdays, region by region."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outlast.daemon.rates.ratio import Ratio, clustered
from outlast.daemon.rates.rayleigh import FLOOR, holm
from outlast.daemon.rates.residuals import Place, Residuals, residuals
from outlast.daemon.rates.states import counted
from outlast.daemon.rates.table import Table
from outlast.daemon.rates.values import Weekend

ALPHA = 0.01
MIN_BURSTS = 30
MIN_WEEKENDS = 4
# How many standard errors an effect must have to be found with 80 % power at ALPHA: z(0.995) + z(0.8).
_SEEN_AT = 3.4175


@dataclass(frozen=True, slots=True)
class _Found:
    region: Residuals
    ratio: Ratio
    lack: str


def weekends(table: Table) -> tuple[Weekend, ...]:
    """Compare weekend and weekday hazard of each region, age and pool held alike, in UTC days.

    "not enough" with fewer than 30 bursts or four weekends; "pattern" if the day-clustered p, Holm-adjusted
    over the regions that could be judged, is below 0.01.
    """
    found = [_compare(region) for region in residuals(table)]
    judged = iter(holm([row.ratio.p for row in found if not row.lack]))
    return tuple(_verdict(row, 1.0 if row.lack else next(judged)) for row in found)


def factor(table: Table) -> dict[Place, float]:
    """Give the factor by which a weekend's rate differs from a weekday's: (provider, region) -> factor.

    1.0 where none is established. Otherwise the log ratio shrunk by 1 - (se / log ratio)^2 (the positive part
    of James and Stein's rule), since those that pass a test are on average those that chance made larger.
    """
    found = [_compare(region) for region in residuals(table)]
    judged = iter(holm([row.ratio.p for row in found if not row.lack]))
    return {
        (row.region.provider, row.region.region): _shrunk(row.ratio, 1.0 if row.lack else next(judged))
        for row in found
    }


def _shrunk(ratio: Ratio, p: float) -> float:
    if p >= ALPHA:
        return 1.0
    log = math.log(ratio.ratio)
    return math.exp(log * max(0.0, 1 - (ratio.se / log) ** 2))


def _compare(region: Residuals) -> _Found:
    weekend = region.weekend
    counts, due, hours = (x.sum(axis=1) for x in (region.counts, region.expected, region.exposure))
    seen = hours > 0
    # The degrees of freedom are those of the smaller side: seven weekends are not made more by weekdays.
    df = min(int((seen & weekend).sum()), int((seen & ~weekend).sum())) - 1
    ratio = clustered(counts * weekend, counts * ~weekend, due * weekend, due * ~weekend, df)
    return _Found(region, ratio, _lack(region, seen & weekend))


def _lack(region: Residuals, seen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> str:
    """Say what is missing for a judgement; empty if nothing is."""
    bursts = int(region.counts.sum())
    # A Saturday and the Sunday after it share a week of Monday to Sunday.
    days = np.flatnonzero(seen) + region.first_day
    weeks = len(np.unique((days + 3) // 7))
    if bursts >= MIN_BURSTS and weeks >= MIN_WEEKENDS:
        return ""
    had = f"{counted(bursts, 'burst')}, {counted(weeks, 'weekend')}"
    return f"not enough data: {had}; need {MIN_BURSTS} and {MIN_WEEKENDS}"


def _verdict(row: _Found, p: float) -> Weekend:
    place = row.region.provider, row.region.region
    p = max(p, FLOOR)
    if row.lack:
        return Weekend(*place, row.ratio.range, p, "not enough", row.lack)
    if p < ALPHA:
        return Weekend(
            *place, row.ratio.range, p, "pattern", f"weekends {row.ratio.ratio:.2g}x weekdays (p {p:.2g})"
        )
    limit = math.exp(_SEEN_AT * row.ratio.se)
    sentence = (
        f"no weekend effect found; one below {1 / limit:.2g}x or above {limit:.2g}x weekdays would have shown"
    )
    return Weekend(*place, row.ratio.range, p, "no pattern", sentence)
