"""What a pool with little of its own borrows: provider, then region, then pool, one pseudo-event each time.

Pools of one type in one country differ fifteenfold, so what lies above says little: it counts as one
event, no more. A level that holds nothing but the pool itself would only repeat it and is passed over.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.dispersion import Vector
from outlast.daemon.rates.gamma import JEFFREYS, Gamma, posterior

Key = tuple[str, ...]


def posteriors(pools: tuple[Pool, ...], events: Vector, hours: Vector) -> list[Gamma | None]:
    """Give each pool's rate from ``events`` in ``hours`` (already divided by phi) and what lies above it.

    None where neither the pool nor anything of its provider was ever at risk.
    """
    parents = parent_means(pools, events, hours)
    return [
        None if parent is None and not hour > 0 else posterior(float(count), float(hour), parent)
        for parent, count, hour in zip(parents, events, hours, strict=True)
    ]


def parent_means(pools: tuple[Pool, ...], events: Vector, hours: Vector) -> list[float | None]:
    """Give for each pool the mean rate of what lies above it; None where nothing else is there."""
    regions, providers = _totals(pools, events, hours, 2), _totals(pools, events, hours, 1)
    found: list[float | None] = []
    for pool, own in zip(pools, hours, strict=True):
        provider, region = (pool.provider,), (pool.provider, pool.region)
        root = _crude(providers[provider], float(own))
        found.append(_below(root, regions[region], float(own)))
    return found


def _totals(
    pools: tuple[Pool, ...], events: Vector, hours: Vector, depth: int
) -> dict[Key, tuple[float, float]]:
    sums: dict[Key, np.ndarray[tuple[int], np.dtype[np.float64]]] = defaultdict(lambda: np.zeros(2))
    for pool, count, hour in zip(pools, events, hours, strict=True):
        sums[(pool.provider, pool.region)[:depth]] += (count, hour)
    return {key: (float(pair[0]), float(pair[1])) for key, pair in sums.items()}


def _crude(total: tuple[float, float], own: float) -> float | None:
    """Give the provider's mean rate, unless all of its hours are the pool's own."""
    events, hours = total
    if not hours > own:
        return None
    return (events or JEFFREYS) / hours


def _below(root: float | None, total: tuple[float, float], own: float) -> float | None:
    """Give the region's mean under the provider's; the provider's where the region is the pool alone."""
    events, hours = total
    if root is None or not hours > own:
        return root
    return posterior(events, hours, root).mean
