"""When to start: a span of UTC hours only where a daily pattern passed its gate, else any hour."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.values import Pattern, Study, Weekend

Found = TypeVar("Found", Pattern, Weekend)

SPAN_H = 6
ANY = "any hour"
# A job of this many hours lives through the whole day wherever it starts.
DAY_H = 24.0


def window(study: Study, pool: Pool, hours: float) -> tuple[str, str]:
    """The window, and the reason for it."""
    found = _in(study.patterns, pool)
    if found is None or found.state != "pattern" or not found.profile:
        told = found.sentence if found else "The hours of the day were not judged for this region."
        return ANY, _named(pool, told)
    if hours >= DAY_H:
        return ANY, f"{pool.region} has a daily pattern, but a job of {hours:.0f} h lives through all of it."
    first = _calmest(found.profile)
    return f"{first:02d}:00 to {(first + SPAN_H) % 24:02d}:00 UTC", _named(pool, found.sentence)


def weekend(study: Study, pool: Pool) -> str:
    """What the region's weekends are worth, if that was established; else nothing."""
    found = _in(study.weekends, pool)
    return _named(pool, found.sentence) if found is not None and found.state == "pattern" else ""


def _calmest(profile: tuple[float, ...]) -> int:
    twice = np.array([*profile, *profile])
    sums = [twice[hour : hour + SPAN_H].sum() for hour in range(24)]
    return int(np.argmin(sums))


def _in(verdicts: tuple[Found, ...], pool: Pool) -> Found | None:
    return next((v for v in verdicts if (v.provider, v.region) == (pool.provider, pool.region)), None)


def _named(pool: Pool, sentence: str) -> str:
    return sentence if sentence.startswith(pool.region) else f"{pool.region}: {sentence}"
