"""Is there a daily pattern? Three conditions, all of which must hold before any hour is spoken of.

1. Enough data: 30 bursts, on 14 distinct days, and each block of four hours of the clock seen on 7 days.
2. The day-rotation Rayleigh p below 0.01 after Holm's adjustment over the regions that have enough data.
3. One harmonic fitted without a block of days predicts the hours of that block's bursts better than none,
   over all blocks together.

Each region is judged by itself, never all together: their days peak at different hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

from outlast.daemon.rates.harmonic import Shape, held_out, shape, waves
from outlast.daemon.rates.rayleigh import FLOOR, day_sums, holm, p_value
from outlast.daemon.rates.residuals import Residuals, residuals
from outlast.daemon.rates.states import counted
from outlast.daemon.rates.table import Floats, Table
from outlast.daemon.rates.values import Pattern
from outlast.daemon.rates.weekend import factor

ALPHA = 0.01
POWER = 0.80
MIN_BURSTS = 30
MIN_DAYS = 14
MIN_DAYS_A_BLOCK = 7
BLOCK_H = 4


@dataclass(frozen=True, slots=True)
class _Tested:
    """One region with enough data: its adjusted p, and what a shape gains on blocks of days held out."""

    region: Residuals
    p_raw: float
    p: float
    gains: Floats
    detectable: float

    @property
    def passed(self) -> bool:
        return self.p < ALPHA and float(self.gains.sum()) > 0


def patterns(table: Table) -> tuple[Pattern, ...]:
    """Judge every region of the table, in order of provider and region. What is counted are bursts."""
    return judge(residuals(table, weekend=factor(table)))


def judge(regions: Iterable[Residuals]) -> tuple[Pattern, ...]:
    """Judge regions that are shown together: they are one family of tests."""
    regions = tuple(regions)
    lacks = [lack(region) for region in regions]
    family = [region for region, missing in zip(regions, lacks, strict=True) if not missing]
    raw = [p_value(day_sums(region.counts - region.expected)) for region in family]
    tested = map(_test, family, raw, holm(raw), [len(family)] * len(family))
    return tuple(
        _poor(region, missing) if missing else _verdict(next(tested))
        for region, missing in zip(regions, lacks, strict=True)
    )


def lack(region: Residuals) -> str:
    """Say in one sentence what a region lacks for a judgement; empty if nothing."""
    bursts, days = int(region.counts.sum()), int((region.counts.sum(axis=1) > 0).sum())
    if bursts < MIN_BURSTS or days < MIN_DAYS:
        had = f"{counted(bursts, 'burst')} on {counted(days, 'day')}"
        return f"not enough data: {had}; need {MIN_BURSTS} on {MIN_DAYS}"
    clock = region.exposure.reshape(len(region.exposure), 24 // BLOCK_H, BLOCK_H).sum(axis=2)
    times = (clock > 0).sum(axis=0)
    worst = int(times.argmin())
    if times[worst] < MIN_DAYS_A_BLOCK:
        hours = f"{worst * BLOCK_H:02d}-{(worst + 1) * BLOCK_H:02d} UTC"
        return (
            f"not enough data: {hours} seen on {counted(int(times[worst]), 'day')}; need {MIN_DAYS_A_BLOCK}"
        )
    return ""


def over_dispersion(region: Residuals) -> float:
    """Give phi of the daily burst counts, at least 1: their squared errors over what Poisson would have.

    The errors of all days are summed before dividing, so that a day with next to no exposure cannot decide.
    """
    counts, due = region.counts.sum(axis=1), region.expected.sum(axis=1)
    days = int((due > 0).sum())
    if days < 2:
        return 1.0
    return max(1.0, float(((counts - due) ** 2).sum() / due.sum()) * days / (days - 1))


def detectable(effective: float, tests: int = 1) -> float:
    """Give the smallest peak/mean that is found with power 0.8 at level 0.01 among ``tests`` regions.

    ``effective`` is the number of independent events: bursts over ``over_dispersion``. For one test
    exp(sqrt(27.8 / effective)): a score of two degrees of freedom with non-centrality N ln(A)^2 / 2.
    """
    return math.exp(min(math.sqrt(2 * _non_centrality(tests) / effective), math.log(1000.0)))


@lru_cache(maxsize=256)
def _non_centrality(tests: int) -> float:
    """Give the non-centrality at which chi-squared (2) passes level ALPHA / tests with probability POWER."""
    limit = -2 * math.log(ALPHA / tests)
    root: float = optimize.brentq(lambda away: float(stats.ncx2.sf(limit, 2, away)) - POWER, 1e-3, 500.0)
    return root


def _test(region: Residuals, p_raw: float, p: float, tests: int) -> _Tested:
    gains = held_out(*_seen(region), waves(1))
    effective = float(region.counts.sum()) / over_dispersion(region)
    return _Tested(region, p_raw, p, gains, detectable(effective, tests))


def _seen(region: Residuals) -> tuple[Floats, Floats]:
    days = region.exposure.sum(axis=1) > 0
    return region.counts[days], region.expected[days]


def _profile(region: Residuals, one: Shape) -> tuple[float, ...]:
    """Give the 24 factors of one harmonic, or of two where the second too predicts days held out better."""
    second = held_out(*_seen(region), waves(2), waves(1))
    if float(second.sum()) <= 0 or int((second > 0).sum()) * 2 <= len(second):
        return one.profile
    return shape(region.counts.sum(axis=0), region.expected.sum(axis=0), harmonics=2).profile


def _verdict(tested: _Tested) -> Pattern:
    region, gains = tested.region, tested.gains
    fitted = shape(region.counts.sum(axis=0), region.expected.sum(axis=0))
    won = int((gains > 0).sum())
    p = max(tested.p, FLOOR)
    # Rounded up: the next tenth below would not have shown as reliably.
    least = math.ceil(10 * tested.detectable) / 10
    sentence = f"no daily pattern found; one stronger than {least:.1f}x would have shown"
    if tested.passed:
        sentence = (
            f"daily pattern: peaks at {round(fitted.peak_hour) % 24:02d} UTC,"
            f" {fitted.peak_to_mean:.1f}x the mean"
            f" (p {p:.2g}, held out-of-sample in {won} of {len(gains)} blocks)"
        )
    return Pattern(
        provider=region.provider,
        region=region.region,
        state="pattern" if tested.passed else "no pattern",
        losses=region.losses,
        bursts=int(region.counts.sum()),
        days=int((region.counts.sum(axis=1) > 0).sum()),
        p_raw=max(tested.p_raw, FLOOR),
        p=p,
        peak_hour=fitted.peak_hour,
        peak_to_mean=fitted.peak_to_mean,
        gain=float(gains.sum()),
        folds_won=won,
        folds=len(gains),
        detectable=tested.detectable,
        profile=_profile(region, fitted) if tested.passed else (),
        sentence=sentence,
    )


def _poor(region: Residuals, because: str) -> Pattern:
    return Pattern(
        provider=region.provider,
        region=region.region,
        state="not enough",
        losses=region.losses,
        bursts=int(region.counts.sum()),
        days=int((region.counts.sum(axis=1) > 0).sum()),
        p_raw=None,
        p=None,
        peak_hour=None,
        peak_to_mean=None,
        gain=None,
        folds_won=0,
        folds=0,
        detectable=None,
        profile=(),
        sentence=because,
    )


def rotated(region: Residuals, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Residuals:
    """Turn each day's clock by its own number of hours; what happened within the day stays together."""
    hours = (np.arange(24) - offsets[:, None]) % 24
    counts, expected, exposure = (
        np.take_along_axis(part, hours, axis=1) for part in (region.counts, region.expected, region.exposure)
    )
    return Residuals(
        region.provider, region.region, region.first_day, counts, expected, exposure, region.losses
    )


def false_positives(table: Table, copies: int, seed: int = 0) -> float:
    """Give the share of ``copies`` of the table in which the gate finds a pattern in any region.

    In a copy each UTC day of a region is turned by a random number of hours, all its pools together: no daily
    pattern is left, while bad days stay as bad and as clumped as they were.
    """
    regions = residuals(table, weekend=factor(table))
    draw = np.random.default_rng(seed)
    found = 0
    for _ in range(copies):
        copy = [rotated(region, draw.integers(0, 24, len(region.counts))) for region in regions]
        found += any(pattern.state == "pattern" for pattern in judge(copy))
    return found / copies
