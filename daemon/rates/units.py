"""Providers state chances over a span; inside, everything is a hazard per instance-hour."""

from __future__ import annotations

import math

MONTH_H = 720.0


def hazard_of(probability: float, hours: float) -> float:
    """Return the hazard per hour under which something happens within ``hours`` with this probability.

    Infinite for a probability of 1. Raises ValueError outside 0 to 1 or for no hours.
    """
    if not 0 <= probability <= 1 or not hours > 0:
        raise ValueError("a probability lies from 0 to 1 and is of a span above 0 hours")
    return math.inf if probability == 1 else -math.log1p(-probability) / hours


def probability_of(hazard: float, hours: float, nodes: int = 1) -> float:
    """Return the probability that at least one of ``nodes`` independent nodes is lost within ``hours``.

    Nodes of one pool are not independent: for them this is an upper bound; ask for the pool's gang rate.
    """
    return -math.expm1(-hazard * hours * nodes)


def mtbf_h(hazard: float) -> float:
    """Return the mean time between interruptions in hours; infinite where there is none."""
    return math.inf if hazard == 0 else 1 / hazard
