"""The day-rotation Rayleigh test for a cycle of a day or of a part of it, and Holm's adjustment.

Losses come clumped: a bad afternoon loses many nodes. Tests that take each loss for itself find a daily
pattern in half of all cases without one. Here a day is one observation: if the days were rotated by random
clock offsets, each day's sum would keep its length and point anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlast.daemon.rates.table import Floats

Complexes = NDArray[np.complexfloating[Any, Any]]

# With fewer days than this the formula's exponential law is not yet reached and random phases are drawn.
FORMULA_DAYS = 10
DRAWS = 10_000
# Ten thousand draws cannot tell less than this from nothing; no p is stated below it.
FLOOR = 1.0 / (DRAWS + 1)


def day_sums(residual: Floats, harmonic: int = 1) -> Complexes:
    """Give s_j = sum over hours of the residual times exp(2 pi i k (h + 1/2) / 24), one a day.

    ``residual`` is counts less expected counts, its last two axes the day and the hour; others are kept.
    """
    hours = (np.arange(residual.shape[-1]) + 0.5) / residual.shape[-1]
    sums: Complexes = residual @ np.exp(2j * np.pi * harmonic * hours)
    return sums


def formula(sums: Complexes) -> Floats:
    """Give p = exp(-|sum s_j|^2 / sum |s_j|^2) over the last axis; 1 where every sum is nought.

    The chance, for many days, that days rotated at random agree as well as these do. It is the Rao score
    test of one harmonic with errors clustered by day.
    """
    length = (np.abs(sums) ** 2).sum(axis=-1)
    agreement = np.abs(sums.sum(axis=-1)) ** 2
    p: Floats = np.exp(-np.divide(agreement, length, out=np.zeros_like(length), where=length > 0))
    return p


def p_value(sums: Complexes, seed: int = 0) -> float:
    """Give the p of one region's day sums: the formula, or random phases where days are few.

    Days without any residual say nothing and are not counted. Random phases give (1 + as many draws as agree
    at least as well) / (1 + draws); the formula is not cut off (see ``FLOOR``), so that Holm's factor over
    many regions does not hide what is certain.
    """
    sums = sums[np.abs(sums) > 0]
    if len(sums) >= FORMULA_DAYS:
        return float(formula(sums))
    lengths = np.abs(sums)
    turns = np.exp(2j * np.pi * np.random.default_rng(seed).random((DRAWS, len(sums))))
    # A hair's breadth of slack: rotations that leave all as it was must count as agreeing as well.
    as_well = np.abs(turns @ lengths) >= np.abs(sums.sum()) * (1 - 1e-12)
    return float((1 + as_well.sum()) / (1 + DRAWS))


def holm(p: Sequence[float]) -> tuple[float, ...]:
    """Adjust p-values of one family (Holm 1979), in the order given."""
    order = sorted(range(len(p)), key=lambda index: p[index])
    adjusted = [0.0] * len(p)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = highest
    return tuple(adjusted)
