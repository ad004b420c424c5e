"""The values that the estimators work on: spells as columns, and exposure in cells of pool, age and hour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outlast.daemon.history.rows import Pool

# Bounds of the age bands in hours (the last is open), and the band for stays whose beginning is not known.
AGE_EDGES_H = (0.0, 0.25, 1.0, 4.0, 12.0)
UNKNOWN_AGE = len(AGE_EDGES_H)
BANDS = len(AGE_EDGES_H) + 1

# How a stay ended; a column holds the index. The first is "still going on".
CAUSES = (
    "running",
    "interruption",
    "silent-loss",
    "outbid",
    "user-stop",
    "job-done",
    "failover",
    "max-life",
    "host",
)
# The causes that say the provider took the node.
LOST = ("interruption", "silent-loss", "outbid")

Origin = Literal["held", "probe"]
PriceKind = Literal["spot", "min_bid", "on_demand"]

Floats = NDArray[np.floating[Any]]
Counts = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Columns:
    """Spells, one a row, in no order. Drills are not among them; withdrawn notices end no spell.

    ``began`` and ``ended`` are UTC epoch seconds and bound the exposure; an ``ended`` of a running spell is
    its last heartbeat. ``known`` is False where the stay began before it was observed, so that its age is
    not known. ``hinted`` marks a spell that was left (failover) after a hint. A node found gone of which no
    spell is known is a row of no length. ``node`` is any number that tells nodes apart.
    """

    pools: tuple[Pool, ...]
    pool: Counts
    node: Counts
    began: Floats
    ended: Floats
    cause: Counts
    known: NDArray[np.bool_]
    hinted: NDArray[np.bool_]
    origin: tuple[Origin, ...] = ()  # one a pool; empty means that all were held nodes


@dataclass(frozen=True, slots=True)
class Table:
    """Exposure and losses of every pool, age band and UTC hour. Axes of the cubes: pool, band, hour.

    Hour ``i`` begins at epoch second ``3600 * (first_hour + i)``. ``exposure`` is in instance-hours,
    ``losses`` counts nodes, ``bursts`` the bursts by their first node; a loss at an instant belongs to the
    hour before it (``ended`` less epsilon). Cubes may be of any real type: sum them as float64.
    """

    pools: tuple[Pool, ...]
    origin: tuple[Origin, ...]
    first_hour: int
    exposure: Floats
    losses: Counts
    bursts: Counts
    spells: Counts  # a pool
    nodes: Counts  # a pool, distinct
    causes: Counts  # pool, cause
    left_on_hint: Counts  # a pool: spells left after a hint, losses that were avoided or not
    burst_pool: Counts  # one entry a burst, in order of pool and time
    burst_at: Floats  # UTC epoch seconds of its first loss
    burst_size: Counts  # nodes

    @property
    def begins(self) -> float:
        """UTC epoch seconds at which the first hour begins."""
        return 3600.0 * self.first_hour

    @property
    def ends(self) -> float:
        """UTC epoch seconds at which the last hour ends."""
        return 3600.0 * (self.first_hour + int(self.exposure.shape[2]))


@dataclass(frozen=True, slots=True)
class Launch:
    """One attempt to get ``asked`` instances of a pool at UTC ``at``; ``got`` of them came."""

    pool: Pool
    at: float
    asked: int
    got: int

    @property
    def order(self) -> tuple[float, str, str, str, str, int, int]:
        """What launches are sorted by: time first."""
        pool = self.pool
        return (self.at, pool.provider, pool.region, pool.zone, pool.instance_type, self.asked, self.got)


@dataclass(frozen=True, slots=True)
class Price:
    """What an instance-hour of a pool cost from UTC ``at`` on, in millionths of a US dollar."""

    pool: Pool
    at: float
    micro_usd: int
    kind: PriceKind = "spot"

    @property
    def order(self) -> tuple[float, str, str, str, str, str, int]:
        """What prices are sorted by: time first."""
        pool = self.pool
        return (self.at, pool.provider, pool.region, pool.zone, pool.instance_type, self.kind, self.micro_usd)


@dataclass(frozen=True, slots=True)
class Timing:
    """What this job's own flushes, ships and restores took, seconds; None where none was measured.

    ``flushes`` of ``losses`` ended with a committed checkpoint: the share of losses that a notice covered.
    """

    flush_s: float | None = None
    restore_s: float | None = None
    ship_bytes_s: float | None = None
    checkpoint_bytes: int | None = None
    step_s: float | None = None
    flushes: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """All that was observed, from wherever it was read. ``notes`` say what could not be read, a line each."""

    table: Table
    launches: tuple[Launch, ...] = ()
    prices: tuple[Price, ...] = ()
    timing: Timing = field(default_factory=Timing)
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
