"""What may be shown to others: sums of a pool by day, hour and age band, and no word of a node.

A pool of fewer than ``FLOOR`` nodes is left out, since its sums would tell what one of them did.
"""

from __future__ import annotations

import csv
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from outlast.daemon.fleet.faults import shown
from outlast.daemon.fleet.telling import Tell, nothing
from outlast.daemon.rates.table import AGE_EDGES_H, UNKNOWN_AGE, Table
from outlast.daemon.rates.tabulate import HOUR_S

FLOOR = 3
COLUMNS = (
    "provider",
    "region",
    "zone",
    "instance_type",
    "origin",
    "day",
    "hour",
    "age_from_h",
    "age_to_h",
    "exposure_h",
    "losses",
    "bursts",
)
_AGES = (*zip(AGE_EDGES_H, (*AGE_EDGES_H[1:], ""), strict=True), ("", ""))
_FORMULA = ("=", "+", "-", "@")


class Writable(Protocol):
    """A text file."""

    def write(self, text: str, /) -> object:
        """Add some text."""
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """How much was written, and of how many pools nothing because they have too few nodes."""

    pools: int
    rows: int
    left_out: int


def write_rollup(table: Table, file: Writable, tell: Tell = nothing) -> Shared:
    """CSV with ``COLUMNS``: a row where there was exposure or a loss, in order of pool and time.

    Exposure is in instance-hours to 0.001; ``day`` and ``hour`` are UTC; the bounds of an age band are empty
    where the age is not known or has no bound.
    """
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    shown_pools = np.flatnonzero(table.nodes >= FLOOR)
    when = [_when(table.first_hour + hour) for hour in range(table.exposure.shape[2])]
    rows = 0
    for done, pool in enumerate(shown_pools.tolist()):
        tell("writing", done, len(shown_pools))
        rows += _write_pool(writer, table, pool, when)
    seen = int(np.count_nonzero(table.nodes))
    return Shared(len(shown_pools), rows, seen - len(shown_pools))


def _write_pool(writer: Any, table: Table, pool: int, when: Sequence[tuple[str, int]]) -> int:
    exposure = np.round(np.asarray(table.exposure[pool], dtype=np.float64), 3).T
    losses, bursts = table.losses[pool].T, table.bursts[pool].T
    hours, bands = np.nonzero((exposure > 0) | (losses > 0))
    at = table.pools[pool]
    names = [_cell(name) for name in (at.provider, at.region, at.zone, at.instance_type)]
    names.append(table.origin[pool])
    writer.writerows(
        (*names, *when[hour], *_AGES[band], f"{spent:.3f}", lost, burst)
        for hour, band, spent, lost, burst in zip(
            hours.tolist(),
            bands.tolist(),
            exposure[hours, bands].tolist(),
            losses[hours, bands].tolist(),
            bursts[hours, bands].tolist(),
            strict=True,
        )
    )
    return len(hours)


def _when(hour: int) -> tuple[str, int]:
    at = dt.datetime.fromtimestamp(hour * HOUR_S, dt.UTC)
    return at.strftime("%Y-%m-%d"), at.hour


def _cell(name: str) -> str:
    """A name that drives neither a terminal nor a spreadsheet."""
    name = shown(name, 128)
    return f"'{name}" if name.startswith(_FORMULA) else name


assert len(_AGES) == UNKNOWN_AGE + 1
