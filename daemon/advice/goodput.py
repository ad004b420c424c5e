"""The share of time that ends up in the model, with checkpoints, interruptions, flushes and restarts.

With ``lambda = 1 / mtbf`` and ``T = interval + stall``: an interruption whose flush succeeds costs the flush
and the restart; any other costs what was done since the last checkpoint as well. Without flushes and waits
this is Daly's model exactly. All functions take numbers or arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import lambertw

Real = float | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Life:
    """How a job lives; seconds. ``restart_s`` is billed, ``wait_s`` for a new instance is not.

    ``flush_share`` of the interruptions flush successfully, which takes ``flush_s``.
    """

    interval_s: Real
    stall_s: float
    mtbf_s: Real
    restart_s: float
    wait_s: float = 0.0
    flush_share: float = 0.0
    flush_s: float = 0.0


def billed(life: Life) -> Any:
    """Useful time by billed time, 0 to 1."""
    attempts, useful = _parts(life)
    return useful / (attempts * np.asarray(life.mtbf_s) + life.flush_share * life.flush_s)


def wall(life: Life) -> Any:
    """Useful time by time on the clock, waits for capacity included, 0 to 1."""
    attempts, useful = _parts(life)
    lived = attempts * (np.asarray(life.mtbf_s) + life.wait_s)
    return useful / (lived + life.flush_share * life.flush_s)


def _parts(life: Life) -> tuple[Any, Any]:
    """Attempts per interruption that outlive the restart, and useful seconds per interruption."""
    hazard = 1 / np.asarray(life.mtbf_s, dtype=np.float64)
    interval = np.asarray(life.interval_s, dtype=np.float64)
    # In this form an interval without end stays a number.
    decay = np.exp(-hazard * (interval + life.stall_s))
    flushed = -np.expm1(-hazard * interval) / hazard
    kept = np.where(decay > 0, np.where(np.isinf(interval), 0.0, interval) * decay, 0.0)
    share = life.flush_share
    useful = (share * flushed + (1 - share) * kept) / (1 - decay)
    return np.exp(hazard * life.restart_s), useful


def optimum(stall_s: float, mtbf_s: float) -> float:
    """The interval that is best in Daly's model: ``M (1 + W0(-exp(-1 - stall / M)))``, seconds."""
    return float(mtbf_s * (1 + lambertw(-np.exp(-1 - stall_s / mtbf_s)).real))


def break_even(ratio: float, stall_s: float, restart_s: float) -> float:
    """The mean seconds between interruptions below which spot at ``ratio`` of on-demand's price is dearer.

    Each at its own best interval, without flushes. Raises ValueError for a ratio outside 0 to 1.
    """
    from scipy.optimize import brentq

    if not 0 < ratio < 1:
        raise ValueError("the ratio of spot to on-demand must lie between 0 and 1")

    def gap(mtbf_s: float) -> float:
        life = Life(optimum(stall_s, mtbf_s), stall_s, mtbf_s, restart_s)
        return float(billed(life)) - ratio

    return float(brentq(gap, 1.0, 1e9))
