"""The ratio of two rates, with errors that take a day for one observation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from outlast.daemon.rates.table import Floats
from outlast.daemon.rates.values import Range

LEVEL = 0.90
# A ratio without an upper bound (no event on one side) is stated as this.
UNBOUNDED = 1000.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """An estimated rate ratio with its equal-tailed interval and two-sided p against 1.

    ``se`` is the standard error of its logarithm.
    """

    ratio: float
    low: float
    high: float
    p: float
    se: float

    @property
    def range(self) -> Range:
        """The same as a range; its interval is what it was computed at, 90 % unless said otherwise."""
        return Range(self.ratio, self.low, self.high)


def exact(inside: float, outside: float, due_in: float, due_out: float, level: float = LEVEL) -> Ratio:
    """Compare two Poisson counts by the binomial of one given the sum: as if each event came alone.

    Clopper-Pearson limits; half an event is added to both sides where one has none, for the estimate only.
    """
    total = round(inside) + round(outside)
    if total == 0 or due_in <= 0 or due_out <= 0:
        return Ratio(1.0, 0.0, UNBOUNDED, 1.0, math.inf)
    test = stats.binomtest(round(inside), total, due_in / (due_in + due_out))
    interval = test.proportion_ci(level, method="exact")
    half = 0.0 if inside > 0 and outside > 0 else 0.5
    ratio = (inside + half) / (outside + half) * due_out / due_in
    se = math.sqrt(1 / (inside + half) + 1 / (outside + half))
    low, high = (_odds(share) * due_out / due_in for share in interval)
    return Ratio(ratio, low, min(high, UNBOUNDED), float(test.pvalue), se)


def clustered(inside: Floats, outside: Floats, due_in: Floats, due_out: Floats, df: int) -> Ratio:
    """Compare the rates of two kinds of hours; each array has one entry a day: counts, and expected counts.

    The variance of the log ratio is the sum over days of the squared influence (the sandwich of a Poisson
    regression with days as clusters), times (df + 1) / df; limits and p by Student's t with ``df``. They are
    never narrower than ``exact``'s: chance alone must not make days look alike.
    """
    sums = [float(part.sum()) for part in (inside, outside, due_in, due_out)]
    alone = exact(*sums)
    if sums[0] <= 0 or sums[1] <= 0 or min(sums[2:]) <= 0 or df < 1:
        return alone
    influence = inside / sums[0] - due_in / sums[2] - outside / sums[1] + due_out / sums[3]
    se = math.sqrt(float((influence**2).sum()) * (df + 1) / df)
    law = stats.t(df)
    reach = float(law.ppf((1 + LEVEL) / 2)) * se
    log = math.log(alone.ratio)
    p = float(2 * law.sf(abs(log) / se)) if se > 0 else 1.0
    low, high = min(alone.low, math.exp(log - reach)), max(alone.high, min(math.exp(log + reach), UNBOUNDED))
    return Ratio(alone.ratio, low, high, max(p, alone.p), max(se, alone.se))


def days_with(*sides: Floats) -> int:
    """Say on how many days anything was expected on every side."""
    both = np.all([side > 0 for side in sides], axis=0)
    return int(both.sum())


def _odds(share: float) -> float:
    return share / (1 - share) if share < 1 else math.inf
