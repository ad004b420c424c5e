"""How often a job on several nodes of one pool is hit: bursts that take at least one of them.

Losses come together, so the job's rate is not the node's rate times its nodes: a burst that takes five nodes
of a job stops it once. Each burst counts with the chance that it takes any of the job's nodes, those being
any of the nodes that were up (hypergeometric).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from outlast.daemon.rates.dispersion import Vector
from outlast.daemon.rates.table import Table
from outlast.daemon.rates.tabulate import HOUR_S

# Hours with enough nodes up that are needed to go by them alone.
LEAST_HOURS = 24.0


def gang(table: Table, pool: int, nodes: int) -> float | None:
    """Give the hits per hour of a job on ``nodes`` nodes of the pool with that index.

    Only hours in which so many were up are looked at where there are enough of them, else all. None where
    the pool was never at risk. How many were up at a burst is taken from the exposure of its hour and of the
    one before, and is never less than what it took.
    """
    exposure = table.exposure[pool].sum(axis=0, dtype=np.float64)
    able = exposure >= nodes - 0.5
    if able.sum() < LEAST_HOURS:
        able = exposure > 0
    hours = float(np.minimum(exposure, 1.0)[able].sum())
    if hours <= 0:
        return None
    mine = table.burst_pool == pool
    hour = np.ceil(table.burst_at[mine] / HOUR_S).astype(np.int64) - 1 - table.first_hour
    size = table.burst_size[mine].astype(np.int64)
    before = np.where(hour > 0, exposure[np.maximum(hour - 1, 0)], 0.0)
    up = np.maximum(np.rint(np.maximum(before, exposure[hour])).astype(np.int64), np.maximum(size, nodes))
    counted = able[hour] | (able[np.maximum(hour - 1, 0)] & (hour > 0))
    return float(hit(up[counted], size[counted], nodes).sum()) / hours


def hit(up: NDArray[np.int64], size: NDArray[np.int64], nodes: int) -> Vector:
    """The chance that ``size`` losses among ``up`` nodes take any of ``nodes``.

    1 - C(up - size, nodes) / C(up, nodes), by which none of them is drawn.
    """
    left = up - size
    none = np.exp(_log_choose(np.maximum(left, nodes), nodes) - _log_choose(up, nodes))
    chance: Vector = np.where(left < nodes, 1.0, 1.0 - none)
    return chance


def _log_choose(of: NDArray[np.int64], count: int) -> Vector:
    chosen: Vector = gammaln(of + 1) - gammaln(count + 1) - gammaln(of - count + 1)
    return chosen
