"""The Gamma-Poisson pair: what so many events in so many hours say of a rate, and of the time to come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv
from scipy.stats import nbinom

from outlast.daemon.rates.values import Range

# Without anything to borrow from: Jeffreys' prior.
JEFFREYS = 0.5


@dataclass(frozen=True, slots=True)
class Gamma:
    """A rate per hour as a Gamma distribution of ``shape`` and ``rate_h``, hours; both above 0."""

    shape: float
    rate_h: float

    @property
    def mean(self) -> float:
        """Events per hour."""
        return self.shape / self.rate_h

    def seen(self, events: float, hours: float) -> Gamma:
        """Learn from ``events`` in ``hours`` at risk."""
        return Gamma(self.shape + events, self.rate_h + hours)

    def quantile(self, p: float) -> float:
        """Return the rate per hour that is not exceeded with probability ``p``."""
        return float(gammaincinv(self.shape, p)) / self.rate_h

    def interval(self, mass: float = 0.9) -> Range:
        """Return the mean with the equal-tailed interval that holds ``mass``."""
        tail = (1 - mass) / 2
        return Range(self.mean, self.quantile(tail), self.quantile(1 - tail))

    def none_in(self, hours: float) -> float:
        """Return the probability of no event in the next ``hours``."""
        return math.exp(-self.shape * math.log1p(hours / self.rate_h))

    def count_in(self, hours: float, mass: float = 0.9) -> tuple[int, int]:
        """Return the equal-tailed interval of how many events the next ``hours`` bring: negative binomial."""
        tail = (1 - mass) / 2
        chance = self.rate_h / (self.rate_h + hours)
        low, high = (int(nbinom.ppf(p, self.shape, chance)) for p in (tail, 1 - tail))
        return low, high


def intervals(rates: Sequence[Gamma], mass: float = 0.9) -> list[Range]:
    """Return ``interval`` of each of many rates, in one go."""
    tail = (1 - mass) / 2
    shape, hours = np.array([(one.shape, one.rate_h) for one in rates]).reshape(-1, 2).T
    low, high = (gammaincinv(shape, p) / hours for p in (tail, 1 - tail))
    return [Range(*ends) for ends in zip((shape / hours).tolist(), low.tolist(), high.tolist(), strict=True)]


def posterior(events: float, hours: float, parent: float | None = None, weight: float = 1.0) -> Gamma:
    """Return what ``events`` in ``hours`` say of the rate; a parent's mean rate counts ``weight`` events.

    Without a parent, Jeffreys' prior. Raises ValueError where neither tells anything: no hours, no parent.
    """
    if parent is not None and parent > 0:
        return Gamma(weight + events, weight / parent + hours)
    if hours <= 0:
        raise ValueError("a rate needs hours at risk, or the rate of something like it")
    return Gamma(JEFFREYS + events, hours)
