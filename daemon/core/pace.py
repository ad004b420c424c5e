"""How often to take a checkpoint: ``interval(stall, hazard, ship) -> Pace``. Pure; seconds.

Daly's interval for what one checkpoint holds training up and how often the pool is taken back, kept within
bounds: more often than a checkpoint takes to reach the peer only queues transfers up.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlast.daemon.advice.interval import daly

# Below a minute the transfers of small models would never rest; beyond two hours the rate, which comes from
# few events, would be trusted too much.
LEAST_S = 60.0
MOST_S = 7200.0
# The first checkpoint is taken after so long at most: it measures what the interval then follows from.
FIRST_S = 300.0
# A pool's rate before its own record counts: one interruption in ten hours, worth ten hours of record.
PRIOR_HOURS = 10.0
PRIOR_INTERRUPTIONS = 1.0
# Less than one in a million years of one instance.
NEVER = 1e-10


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between checkpoints, and why so many."""

    seconds: float
    sentence: str


def hazard(interruptions: int, exposure_hours: float) -> float:
    """Interruptions per instance-hour of a pool, by its record and, while that is short, by the prior."""
    return (PRIOR_INTERRUPTIONS + interruptions) / (PRIOR_HOURS + exposure_hours)


def interval(stall_s: float | None, hazard_per_hour: float | None, ship_s: float | None) -> Pace:
    """The pace for a checkpoint that stalls training for ``stall_s`` and takes ``ship_s`` to the peer.

    None is not known. Without a stall the first checkpoint comes soon, to measure it; without a hazard the
    prior stands for it; without ``ship_s`` there is no such bound.
    """
    if stall_s is None:
        soon = max(FIRST_S, ship_s or 0.0)
        return Pace(soon, f"every {span(soon)} until a checkpoint was measured")
    stall = max(0.0, stall_s)
    rate = hazard(0, 0.0) if hazard_per_hour is None else hazard_per_hour
    best = daly(stall, 3600.0 / rate) if rate > NEVER else MOST_S
    least = max(LEAST_S, ship_s or 0.0)
    seconds = max(least, min(best, MOST_S))
    held = f"a checkpoint holds training up for {span(stall)}"
    assumed = " (assumed)" if hazard_per_hour is None else ""
    lost = f"an interruption is expected {_each(rate)}{assumed}"
    bound = _bound(best, seconds, ship_s or 0.0)
    return Pace(seconds, f"every {span(seconds)}: {held}, {lost}{bound}")


def span(seconds: float) -> str:
    """A length of time for people: 45 s, 12.5 min, 2.0 h."""
    if seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _each(rate: float) -> str:
    return f"once in {span(3600.0 / rate)}" if rate > NEVER else "never"


def _bound(best: float, seconds: float, ship_s: float) -> str:
    if seconds == ship_s and best < seconds:
        return f"; Daly's {span(best)} would be less than one takes to ship"
    if best < seconds:
        return f"; never below {span(LEAST_S)}"
    return f"; never above {span(MOST_S)}" if best > seconds or best == MOST_S else ""
