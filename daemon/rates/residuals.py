"""What happened against what age and place expect, by UTC day and hour: what every test looks at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from outlast.daemon.rates.ages import factors
from outlast.daemon.rates.table import Floats, Table

Unit = Literal["bursts", "nodes"]
Place = tuple[str, str]  # provider, region; the region "" means all of the provider's

DAY_H = 24
# 1970-01-01 was a Thursday, day 3 of a week that begins on Monday.
EPOCH_WEEKDAY = 3
SATURDAY = 5


@dataclass(frozen=True, slots=True)
class Residuals:
    """One region, or one provider (region ""). Axes of the arrays: UTC day, hour of that day.

    ``counts`` are bursts (or nodes); ``expected`` is what exposure, the pools' own rates, age and, where it
    was asked for, the weekend make of it: its sum is that of ``counts``. ``exposure`` is in instance-hours.
    ``losses`` is always the number of nodes.
    """

    provider: str
    region: str
    first_day: int
    counts: Floats
    expected: Floats
    exposure: Floats
    losses: int

    @property
    def weekend(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of the days are a Saturday or a Sunday of the UTC calendar."""
        return weekend_days(self.first_day, len(self.counts))


def weekend_days(first_day: int, days: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Say of ``days`` days from epoch day ``first_day`` on which are a Saturday or a Sunday."""
    return (np.arange(first_day, first_day + days) + EPOCH_WEEKDAY) % 7 >= SATURDAY


def residuals(
    table: Table, unit: Unit = "bursts", weekend: Mapping[Place, float] | None = None
) -> tuple[Residuals, ...]:
    """Give the residuals of each region of the table, in order of provider and region.

    ``expected`` = exposure x the pool's rate x the age factor (x ``weekend``'s factor of the region on
    Saturdays and Sundays). The pool's rate is its events over its exposure weighted by those factors, so that
    a pool is compared with itself only: pools that differ are no pattern. Events in an hour without any
    exposure (a node found gone of which nothing else is known) cannot be standardised and are left out.
    """
    age = factors(table)
    members: dict[Place, list[int]] = defaultdict(list)
    for index, pool in enumerate(table.pools):
        members[pool.provider, pool.region].append(index)
    return tuple(
        _region(table, place, members[place], age[place[0]], unit, (weekend or {}).get(place, 1.0))
        for place in sorted(members)
    )


def by_provider(regions: tuple[Residuals, ...]) -> tuple[Residuals, ...]:
    """Add up regions that share their days into one row a provider, with the region ""."""
    rows: dict[str, list[Residuals]] = defaultdict(list)
    for region in regions:
        rows[region.provider].append(region)
    return tuple(_sum(provider, parts) for provider, parts in sorted(rows.items()))


def _sum(provider: str, parts: list[Residuals]) -> Residuals:
    return Residuals(
        provider,
        "",
        parts[0].first_day,
        np.sum([part.counts for part in parts], axis=0),
        np.sum([part.expected for part in parts], axis=0),
        np.sum([part.exposure for part in parts], axis=0),
        sum(part.losses for part in parts),
    )


def _region(
    table: Table, place: Place, pools: list[int], age: Floats, unit: Unit, weekend: float
) -> Residuals:
    first_day, days = _days(table)
    hour = np.zeros((3, days * DAY_H))
    begin = table.first_hour - first_day * DAY_H
    for index in pools:
        hour[:, begin : begin + table.exposure.shape[2]] += _pool(table, index, age, unit, weekend)
    counts, expected, exposure = hour.reshape(3, days, DAY_H)
    losses = int(sum(table.losses[index].sum(dtype=np.int64) for index in pools))
    return Residuals(*place, first_day, counts, expected, exposure, losses)


def _pool(table: Table, index: int, age: Floats, unit: Unit, weekend: float) -> Floats:
    """Give counts, expected counts and exposure of one pool by hour of the table."""
    events = (table.bursts if unit == "bursts" else table.losses)[index].sum(axis=0, dtype=np.float64)
    exposure = table.exposure[index].sum(axis=0, dtype=np.float64)
    counts = np.where(exposure > 0, events, 0.0)
    weight = np.asarray(age, np.float64) @ table.exposure[index]
    if weekend != 1.0:
        weight = weight * np.where(_weekend_hours(table), weekend, 1.0)
    total = weight.sum()
    rate = counts.sum() / total if total > 0 else 0.0
    return np.stack([counts, rate * weight, exposure])


def _days(table: Table) -> tuple[int, int]:
    """Give the epoch day on which the table begins and how many UTC days it touches."""
    first = table.first_hour // DAY_H
    end = -(-(table.first_hour + table.exposure.shape[2]) // DAY_H)
    return first, end - first


def _weekend_hours(table: Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    hours = np.arange(table.first_hour, table.first_hour + table.exposure.shape[2])
    weekend: np.ndarray[tuple[int], np.dtype[np.bool_]] = (hours // DAY_H + EPOCH_WEEKDAY) % 7 >= SATURDAY
    return weekend
