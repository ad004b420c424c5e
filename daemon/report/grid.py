"""A pool's rate over the week, in cells as fine as its data allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from outlast.daemon.rates.table import Floats, Table
from outlast.daemon.rates.values import PoolRate, Range
from outlast.daemon.report.words import DASH

# Parts of the day and of the week, the finest first.
RESOLUTIONS = ((24, 7), (24, 2), (6, 7), (6, 2), (1, 2))
# A cell is shown from these instance-hours on, if its interval spans less than this ratio.
LEAST_H = 5.0
WIDEST = 8.0
# The finest resolution is taken of whose cells this share can be shown.
SHARE = 0.8
DAYS = {7: ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"), 2: (f"Mon{DASH}Fri", f"Sat{DASH}Sun")}
# 1970-01-01 was a Thursday; weeks begin on Monday.
_EPOCH_HOUR_OF_WEEK = 72
_STEPS_AN_OCTAVE = 2
MOST_LEVEL = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """One part of the week: what was seen in it, and its rate an instance-hour, None if it cannot be told.

    ``level`` is the rate against the pool's own mean in half octaves, -4 (a quarter) to 4 (four times).
    """

    exposure_h: float
    losses: int
    hazard: Range | None
    level: int


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One pool's week: ``cells[part of the day][part of the week]`` with both margins, and its own mean."""

    pool: PoolRate
    mean: float
    parts: int
    days: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    by_part: tuple[Cell, ...]
    by_day: tuple[Cell, ...]

    @property
    def shown(self) -> int:
        """How many cells have a rate."""
        return sum(cell.hazard is not None for row in self.cells for cell in row)


def heat_map(table: Table, pool: PoolRate) -> HeatMap | None:
    """The week of ``pool`` at the finest resolution that its data allow; None where nothing was lost.

    A cell's interval is a Gamma posterior with one pseudo-event at the pool's own mean, over-dispersion as
    the pool's.
    """
    number = position(table, pool)
    if pool.losses == 0 or pool.exposure_h <= 0 or number is None:
        return None
    exposure, losses = (_week(cube[number], table.first_hour) for cube in (table.exposure, table.losses))
    mean = pool.losses / pool.exposure_h
    found = (_at(pool, mean, exposure, losses, *resolution) for resolution in RESOLUTIONS)
    coarsest = None
    for heat in found:
        coarsest = heat
        if heat.shown >= SHARE * heat.parts * len(heat.days):
            break
    return coarsest


def position(table: Table, pool: PoolRate) -> int | None:
    """Where ``table`` has a pool; held nodes and probes of one pool have places of their own."""
    for number, found in enumerate(table.pools):
        if found == pool.pool and (not table.origin or table.origin[number] == pool.origin):
            return number
    return None


def part_label(part: int, parts: int) -> str:
    """The UTC hours of one part of the day: ``16``, ``16-20`` with a dash, ``all``."""
    if parts == 1:
        return "all"
    step = 24 // parts
    return f"{part * step:02d}" if step == 1 else f"{part * step:02d}{DASH}{(part + 1) * step:02d}"


def _week(cube: Floats, first_hour: int) -> Floats:
    """Sums by hour of the day and day of the week, 24 by 7."""
    series = cube.sum(axis=0, dtype=np.float64)
    slots = (first_hour + np.arange(series.size) + _EPOCH_HOUR_OF_WEEK) % 168
    week: Floats = np.bincount(slots, weights=series, minlength=168).astype(np.float64).reshape(7, 24).T
    return week


def _at(pool: PoolRate, mean: float, exposure: Floats, losses: Floats, parts: int, days: int) -> HeatMap:
    seen, lost = (_coarse(week, parts, days) for week in (exposure, losses))
    rows = tuple(
        tuple(_cell(e, d, mean, pool.phi) for e, d in zip(*row, strict=True))
        for row in zip(seen, lost, strict=True)
    )
    by_part, by_day = (
        tuple(
            _cell(e, d, mean, pool.phi) for e, d in zip(seen.sum(axis=axis), lost.sum(axis=axis), strict=True)
        )
        for axis in (1, 0)
    )
    return HeatMap(pool, mean, parts, DAYS[days], rows, by_part, by_day)


def _coarse(week: Floats, parts: int, days: int) -> Floats:
    by_part: Floats = week.reshape(parts, 24 // parts, 7).sum(axis=1)
    if days == 7:
        return by_part
    return np.column_stack((by_part[:, :5].sum(axis=1), by_part[:, 5:].sum(axis=1)))


def _cell(exposure: float, losses: float, mean: float, phi: float) -> Cell:
    shape, rate = 1.0 + losses / phi, 1.0 / mean + exposure / phi
    low, high = (float(gammaincinv(shape, p)) / rate for p in (0.05, 0.95))
    hazard = Range(shape / rate, low, high)
    if exposure < LEAST_H or high >= WIDEST * low:
        return Cell(float(exposure), round(losses), None, 0)
    octaves = np.log2(hazard.mean / mean)
    level = int(np.clip(round(_STEPS_AN_OCTAVE * octaves), -MOST_LEVEL, MOST_LEVEL))
    return Cell(float(exposure), round(losses), hazard, level)
