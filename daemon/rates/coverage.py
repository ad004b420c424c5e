"""The stated ranges asked of the past: how often the next days' losses fell into what was told before."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.daemon.rates.dispersion import Vector, burst_sizes
from outlast.daemon.rates.pools import rates_of
from outlast.daemon.rates.series import Series, series_of
from outlast.daemon.rates.table import Table
from outlast.daemon.rates.values import Coverage

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
    answers: list[list[bool]] = []
    origin = series.begins + train_days * DAY_S
    while origin + test_days * DAY_S <= series.ends + 1.0:
        before = series.cut(series.begins, origin)
        after = series.cut(origin, origin + test_days * DAY_S)
        answers.append(list(_asked(before, after, mean, variance, origin)))
        origin += test_days * DAY_S
    kept = [answer for each in answers[-(weeks or len(answers)) :] for answer in each]
    if not kept:
        return None
    return Coverage(sum(kept), len(kept), train_days, test_days, _sentence(sum(kept), len(kept), test_days))


def _asked(before: Series, after: Series, mean: Vector, variance: Vector, origin: float) -> Iterator[bool]:
    rates = rates_of(before, mean, variance, origin)
    seen, coming = before.exposure.sum(axis=1), after.exposure.sum(axis=1)
    losses = after.losses.sum(axis=1)
    for index, gamma in enumerate(rates.long):
        if gamma is not None and min(seen[index], coming[index]) >= LEAST_HOURS:
            phi = float(rates.phi[index])
            low, high = gamma.count_in(float(coming[index]) / phi)
            # The posterior counts in groups of phi losses, and so does its range.
            yield low <= round(losses[index] / phi) <= high


def _sentence(held: int, asked: int, test_days: float) -> str:
    span = "weeks" if test_days == TEST_DAYS else f"spans of {test_days:.0f} days"
    due = 0.9 * asked
    due_text = f"{due:.0f}" if asked >= 20 or due == int(due) else f"{int(due)}-{int(due) + 1}"
    return f"These ranges held in {held} of the last {asked} {span} of a pool (should be {due_text})."
