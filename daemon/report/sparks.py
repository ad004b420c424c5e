"""The 24 hours of a day as a row of block characters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from outlast.daemon.rates.table import Floats, Table
from outlast.daemon.report.words import DASH, TIMES

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.:-=+*#"
UNSEEN = "·"
# Half to twice the mean in eight steps. The scale is fixed, so that noise does not fill the row.
_OCTAVES = 1.0
_LEAST_H = 1.0


def of_region(table: Table, provider: str, region: str) -> tuple[Floats, Floats]:
    """Instance-hours and losses of one region by UTC hour of the day, 24 each."""
    where = [i for i, p in enumerate(table.pools) if (p.provider, p.region) == (provider, region)]
    return by_hour(table, where)


def by_hour(table: Table, pools: Sequence[int]) -> tuple[Floats, Floats]:
    """Instance-hours and losses of ``pools`` by UTC hour of the day, 24 each."""
    slots = (table.first_hour + np.arange(table.exposure.shape[2])) % 24
    sums = []
    for cube in (table.exposure, table.losses):
        series = sum((cube[i].sum(axis=0, dtype=np.float64) for i in pools), np.zeros(slots.size))
        sums.append(np.bincount(slots, weights=series, minlength=24).astype(np.float64))
    return sums[0], sums[1]


def sparkline(exposure: Floats, losses: Floats) -> str:
    """One character an hour: its rate against the mean of all, half to twice; a dot where little was seen.

    Empty where nothing was lost.
    """
    whole = float(losses.sum())
    if whole <= 0:
        return ""
    mean = whole / float(exposure.sum())
    return "".join(_block(float(e), float(d), mean) for e, d in zip(exposure, losses, strict=True))


def _block(exposure: float, losses: float, mean: float) -> str:
    if exposure < _LEAST_H:
        return UNSEEN
    octaves = math.log2(max(losses / exposure / mean, 1e-9))
    share = (octaves + _OCTAVES) / (2 * _OCTAVES)
    return BLOCKS[min(max(int(share * len(BLOCKS)), 0), len(BLOCKS) - 1)]


def in_ascii(text: str) -> str:
    """``text`` for a terminal that knows ASCII alone; other letters become question marks."""
    plain = text.translate(str.maketrans(BLOCKS + UNSEEN + f"…{DASH}{TIMES}", ASCII_BLOCKS + " ~-x"))
    return plain.encode("ascii", "replace").decode("ascii")
