"""How much a pool's history is good for, in fixed words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from outlast.daemon.rates.values import PoolState, Range

LEAST_HOURS = 24.0
LEAST_BURSTS = 5
LEAST_DAYS = 5
FAR = 10.0
STALE_HALF_LIVES = 2.0
# Said of a pool whose bad days stand out this much.
CLUMPED = 1.5


@dataclass(frozen=True, slots=True)
class Seen:
    """What a state goes by. ``newest`` and ``now`` are UTC epoch seconds."""

    exposure_h: float
    bursts: int
    days: int
    hazard: Range
    burst_phi: float
    newest: float
    now: float
    half_life_h: float


def lower_pools(every: Sequence[Seen]) -> float | None:
    """Return the lowest hazard of a pool that was seen long enough and lost something; None without one."""
    return min(
        (one.hazard.mean for one in every if one.exposure_h >= LEAST_HOURS and one.bursts > 0), default=None
    )


def state_of(seen: Seen, lowest: float | None) -> tuple[PoolState, str]:
    """Return the state and the sentence that says why.

    not enough: under 24 h at risk, or no loss and an upper bound beyond ten times the lowest pool's rate.
    stale: the newest data are more than two half-lives old. thin: an interval and no ranking, with under five
    bursts or days; no losses and enough days to bound the rate well is no thin history.
    """
    unbounded = seen.bursts == 0 and lowest is not None and seen.hazard.high > FAR * lowest
    if seen.exposure_h < LEAST_HOURS or unbounded:
        return "not enough", f"{_hours(seen.exposure_h)} seen, need about {_needed(seen)}"
    age_h = (seen.now - seen.newest) / 3600
    if age_h > STALE_HALF_LIVES * seen.half_life_h:
        return "stale", f"the newest data are {age_h / 24:.0f} days old"
    if seen.days < LEAST_DAYS:
        return "thin", f"{counted(seen.days, 'day')} seen, {LEAST_DAYS} needed to rank"
    if 0 < seen.bursts < LEAST_BURSTS or (seen.bursts == 0 and lowest is None):
        return "thin", f"{counted(seen.bursts, 'burst')} seen, {LEAST_BURSTS} needed to rank"
    clumped = f", clumped x{seen.burst_phi:.0f}" if seen.burst_phi >= CLUMPED else ""
    return "ok", f"{counted(seen.bursts, 'burst')} on {counted(seen.days, 'day')}{clumped}"


def _needed(seen: Seen) -> str:
    """As many hours as would bring the bursts that a ranking needs, at the rate that is likely by now."""
    hours = max(LEAST_HOURS, LEAST_BURSTS / seen.hazard.mean)
    step = 10.0 ** math.floor(math.log10(hours))
    return _hours(math.ceil(hours / step) * step)


def _hours(hours: float) -> str:
    return f"{hours:,.0f} h" if hours >= 1 or hours == 0 else "less than 1 h"


def counted(number: int, word: str) -> str:
    """Return so many of a thing, in the singular where there is one: "1 burst", "1,200 bursts"."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
