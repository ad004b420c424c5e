"""The stated ranges asked of the past: how often the next days' losses fell into what was told before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import nbinom

from outlast.daemon.rates.dispersion import Vector, burst_sizes
from outlast.daemon.rates.pools import rates_of
from outlast.daemon.rates.series import Series, series_of
from outlast.daemon.rates.table import Table
from outlast.daemon.rates.values import Coverage

Answers = NDArray[np.bool_]

# The ranges hold 90 %, as much being left out below as above.
TAIL = 0.05
TRAIN_DAYS = 10.0
TEST_DAYS = 7.0
DAY_S = 86400.0
# A pool seen less than this before or after an origin is not asked there.
LEAST_HOURS = 24.0
# Told are the latest so many origins.
WEEKS = 12


def coverage(
    table: Table, train_days: float = TRAIN_DAYS, test_days: float = TEST_DAYS, weeks: int | None = None
) -> Coverage | None:
    """How many of the 90 % ranges held; None where the history is too short for a single question.

    From ``train_days`` after the beginning on, ``test_days`` apart, all that was before an origin gives each
    pool's rate and phi, and the negative binomial the range of the losses in the ``test_days`` after it, at
    the exposure that was then seen. ``weeks`` keeps the latest so many origins, None all.
    """
    series = series_of(table)
    mean, variance, _ = burst_sizes(table)
    origins = []
    origin = series.begins + train_days * DAY_S
    while origin + test_days * DAY_S <= series.ends + 1.0:
        origins.append(origin)
        origin += test_days * DAY_S
    held = asked = 0
    for origin in origins[-weeks:] if weeks else origins:
        before, after = series.cut(series.begins, origin), series.cut(origin, origin + test_days * DAY_S)
        answers = _asked(before, after, mean, variance, origin)
        held += int(answers.sum())
        asked += len(answers)
    if not asked:
        return None
    return Coverage(held, asked, train_days, test_days, _sentence(held, asked, test_days))


def _asked(before: Series, after: Series, mean: Vector, variance: Vector, origin: float) -> Answers:
    """For each pool that was seen enough on either side of the origin, whether its range held."""
    rates = rates_of(before, mean, variance, origin)
    seen, coming = before.exposure.sum(axis=1), after.exposure.sum(axis=1)
    known = np.array([gamma is not None for gamma in rates.long], dtype=np.bool_)
    pools = np.flatnonzero(known & (np.minimum(seen, coming) >= LEAST_HOURS))
    every = [gamma for gamma in (rates.long[index] for index in pools.tolist()) if gamma is not None]
    phi = rates.phi[pools]
    shape = np.array([gamma.shape for gamma in every])
    rate_h = np.array([gamma.rate_h for gamma in every])
    chance = rate_h / (rate_h + coming[pools] / phi)
    low, high = nbinom.ppf(TAIL, shape, chance), nbinom.ppf(1 - TAIL, shape, chance)
    # The posterior counts in groups of phi losses, and so does its range.
    groups = np.round(after.losses.sum(axis=1)[pools] / phi)
    held: Answers = (low <= groups) & (groups <= high)
    return held


def _sentence(held: int, asked: int, test_days: float) -> str:
    span = "weeks" if test_days == TEST_DAYS else f"spans of {test_days:.0f} days"
    due = 0.9 * asked
    due_text = f"{due:.0f}" if asked >= 20 or due == int(due) else f"{int(due)}-{int(due) + 1}"
    return f"These ranges held in {held} of the last {asked} {span} of a pool (should be {due_text})."
