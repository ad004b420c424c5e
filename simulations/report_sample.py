"""A made-up history to look at a report with: eight pools with a weekend, a daily cycle, ages and bursts.

Everything comes from one seed; nothing in it is a measurement of any provider.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import CAUSES, Columns, Observed, Price, Timing
from outlast.daemon.rates.tabulate import tabulate

BEGINS = 1_767_571_200.0  # Monday 2026-01-05 00:00 UTC
HOUR_S = 3600.0
_CHECK_S = 900.0
_INTERRUPTION, _JOB_DONE = CAUSES.index("interruption"), CAUSES.index("job-done")
_AGES_H, _AGE_FACTORS = (0.25, 1.0, 4.0, 12.0), (6.0, 3.0, 1.3, 0.8, 0.5)
_WEEKEND = 0.5
_WIDTH_OF_BURST_S = 100.0
_GAP_S = 600.0
_DONE_H = 30.0
_PRICE_EVERY_S = 6 * HOUR_S


@dataclass(frozen=True, slots=True)
class Kind:
    """How one pool behaves. ``cycle`` is the log amplitude of its day, which peaks at ``peak`` UTC."""

    pool: Pool
    nodes: int
    hazard: float
    price: float
    days: float = 56.0
    cycle: float = 0.0
    peak: float = 0.0
    together: float = 0.3


def _aws(region: str, zone: str, kind: str = "p4d.24xlarge") -> Pool:
    return Pool("aws", region, zone, kind)


KINDS = (
    Kind(_aws("us-west-2", "usw2-az2"), 4, 0.008, 9.80),
    Kind(_aws("us-west-2", "usw2-az3"), 4, 0.013, 9.95),
    Kind(_aws("us-east-2", "use2-az1"), 4, 0.03, 10.40),
    Kind(_aws("us-east-1", "use1-az4"), 6, 0.05, 13.10, cycle=0.75, peak=16.0, together=0.15),
    Kind(_aws("us-east-1", "use1-az6"), 6, 0.09, 14.90, cycle=0.75, peak=16.0, together=0.15),
    Kind(Pool("gcp", "us-central1", "us-central1-a", "a2-highgpu-8g"), 4, 0.025, 12.20),
    Kind(Pool("gcp", "europe-west4", "europe-west4-b", "a2-highgpu-8g"), 2, 0.05, 12.90, days=3.0),
    Kind(Pool("runpod", "EU-RO-1", "", "NVIDIA A100 80GB PCIe"), 1, 0.02, 8.30, days=0.4),
)


@dataclass(slots=True)
class _Spells:
    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    cause: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)

    def add(self, began: float, ended: float, cause: int, node: int) -> None:
        self.began.append(began)
        self.ended.append(ended)
        self.cause.append(cause)
        self.node.append(node)


def now() -> float:
    """The instant at which the made-up history ends, UTC epoch seconds."""
    return BEGINS + max(kind.days for kind in KINDS) * 24 * HOUR_S


def columns(seed: int = 1) -> Columns:
    """The spells of all pools."""
    random = np.random.default_rng(seed)
    spells = _Spells()
    counts = []
    for number, kind in enumerate(KINDS):
        before = len(spells.began)
        _simulate(kind, 100 * number, random, spells)
        counts.append(len(spells.began) - before)
    return Columns(
        pools=tuple(kind.pool for kind in KINDS),
        pool=np.repeat(np.arange(len(KINDS)), counts),
        node=np.array(spells.node),
        began=np.array(spells.began),
        ended=np.array(spells.ended),
        cause=np.array(spells.cause),
        known=np.ones(len(spells.began), dtype=bool),
        hinted=np.zeros(len(spells.began), dtype=bool),
    )


def observed(seed: int = 1) -> Observed:
    """The history with its prices, as reading it from files would give it."""
    timing = Timing(
        flush_s=21.0, restore_s=95.0, ship_bytes_s=4.1e8, checkpoint_bytes=98_000_000_000, step_s=4.2
    )
    return Observed(
        tabulate(columns(seed), now()),
        prices=tuple(_prices(np.random.default_rng(seed + 1))),
        timing=timing,
        sources=("a made-up history",),
    )


def _simulate(kind: Kind, first: int, random: np.random.Generator, spells: _Spells) -> None:
    """Looks every quarter of an hour; who is lost may take others of the pool along within minutes."""
    at = now() - kind.days * 24 * HOUR_S
    began = [at + _GAP_S * number for number in range(kind.nodes)]
    while at < now():
        moved = kind.hazard * _clock_factor(kind, at)
        lost = [_is_lost(at - start, moved, random) for start in began]
        together = any(lost)
        for number, start in enumerate(began):
            if start >= at:
                continue
            if lost[number] or (together and random.random() < kind.together):
                began[number] = _end(spells, start, at, random, _INTERRUPTION, first + number)
            elif random.random() < _CHECK_S / HOUR_S / _DONE_H:
                began[number] = _end(spells, start, at, random, _JOB_DONE, first + number)
        at += _CHECK_S
    for number, start in enumerate(began):
        if start < now():
            spells.add(start, now(), 0, first + number)


def _end(
    spells: _Spells, start: float, at: float, random: np.random.Generator, cause: int, node: int
) -> float:
    ended = at + random.random() * _WIDTH_OF_BURST_S
    spells.add(start, ended, cause, node)
    return ended + _GAP_S


def _is_lost(age_s: float, hazard: float, random: np.random.Generator) -> bool:
    if age_s <= 0:
        return False
    band = int(np.searchsorted(_AGES_H, age_s / HOUR_S, side="right"))
    return bool(random.random() < -math.expm1(-hazard * _AGE_FACTORS[band] * _CHECK_S / HOUR_S))


def _clock_factor(kind: Kind, at: float) -> float:
    hour = at / HOUR_S % 24
    weekend = _WEEKEND if (at - BEGINS) // (24 * HOUR_S) % 7 >= 5 else 1.0
    return weekend * math.exp(kind.cycle * math.cos(2 * math.pi * (hour - kind.peak) / 24))


def _prices(random: np.random.Generator) -> list[Price]:
    found = []
    for kind in KINDS:
        drift = 0.0
        at = now() - kind.days * 24 * HOUR_S
        while at < now():
            drift = 0.97 * drift + random.normal(0.0, 0.006)
            found.append(Price(kind.pool, at, round(1e6 * kind.price * (1 + drift))))
            at += _PRICE_EVERY_S
        if kind.pool.provider == "aws":
            found.append(Price(kind.pool, BEGINS, 32_770_000, "on_demand"))
    return found
