"""A table without its ages: what each pool saw hour by hour, day by day, and with a memory that fades."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Table
from outlast.daemon.rates.tabulate import HOUR_S

DAY_H = 24
# Less than this is what rounding leaves where nothing was at risk: a third of a microsecond.
NOTHING_H = 1e-10

Grid = NDArray[np.float64]  # pool, time


@dataclass(frozen=True, slots=True)
class Series:
    """Per pool and UTC hour: instance-hours at risk, nodes lost, bursts. Times as in a Table."""

    pools: tuple[Pool, ...]
    first_hour: int
    exposure: Grid
    losses: Grid
    bursts: Grid

    @property
    def hours(self) -> int:
        """How many hours there are."""
        return int(self.exposure.shape[1])

    @property
    def begins(self) -> float:
        """UTC epoch seconds of the first hour's beginning."""
        return HOUR_S * self.first_hour

    @property
    def ends(self) -> float:
        """UTC epoch seconds of the last hour's end."""
        return HOUR_S * (self.first_hour + self.hours)

    def cut(self, begins: float, ends: float) -> Series:
        """Keep the whole hours within UTC ``begins`` to ``ends``."""
        low = min(max(math.ceil(begins / HOUR_S) - self.first_hour, 0), self.hours)
        high = max(min(math.floor(ends / HOUR_S) - self.first_hour, self.hours), low)
        return replace(
            self,
            first_hour=self.first_hour + low,
            exposure=self.exposure[:, low:high],
            losses=self.losses[:, low:high],
            bursts=self.bursts[:, low:high],
        )

    def folded(self, grid: Grid, span: int, phase: int = 0) -> Grid:
        """Sum ``grid`` over spans of hours that begin at multiples of ``span`` since the epoch, plus
        ``phase``.

        The first and the last span may be cut off by the ends of the series.
        """
        before = (self.first_hour - phase) % span
        after = -(before + self.hours) % span
        whole = np.pad(grid, ((0, 0), (before, after)))
        folded: Grid = whole.reshape(len(grid), whole.shape[1] // span, span).sum(axis=2)
        return folded

    def faded(self, grid: Grid, now: float, half_life_h: float) -> NDArray[np.float64]:
        """Sum over time, each hour by half as much for every half-life that its middle is before ``now``."""
        middle = self.first_hour + np.arange(self.hours) + 0.5
        faded: NDArray[np.float64] = grid @ np.exp2(-np.maximum(now / HOUR_S - middle, 0.0) / half_life_h)
        return faded

    def newest(self) -> NDArray[np.float64]:
        """Say for each pool when the last hour with anything in it ends, UTC seconds; 0 if none does."""
        if not self.hours:
            return np.zeros(len(self.pools))
        seen = (self.exposure > NOTHING_H) | (self.losses > 0)
        back = np.argmax(seen[:, ::-1], axis=1)
        return np.where(seen.any(axis=1), self.ends - HOUR_S * back, 0.0)


def series_of(table: Table) -> Series:
    """Sum a table over its age bands."""
    return Series(
        table.pools,
        table.first_hour,
        *(cube.sum(axis=1, dtype=np.float64) for cube in (table.exposure, table.losses, table.bursts)),
    )
