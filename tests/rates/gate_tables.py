"""Tables made by hand for the gate: known rates, known shapes of the day, known bad days."""

from __future__ import annotations

import numpy as np

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.residuals import Residuals
from outlast.daemon.rates.table import BANDS, CAUSES, Counts, Floats, Origin, Table

MONDAY = 19_996  # 2024-09-30, days since the epoch
OLD = 4  # the band of nodes that have lived for long


def pool(zone: str = "r1a", region: str = "r1", provider: str = "aws") -> Pool:
    """Name a pool of the example provider."""
    return Pool(provider, region, zone, "gpu")


def table(
    pools: tuple[Pool, ...], exposure: Floats, bursts: Counts, first_hour: int = MONDAY * 24, size: int = 1
) -> Table:
    """Build a table of cubes (pool, band, hour); every burst takes ``size`` nodes."""
    held: Origin = "held"
    none = np.zeros(len(pools), dtype=np.int64)
    where = np.argwhere(bursts > 0)
    return Table(
        pools=pools,
        origin=(held,) * len(pools),
        first_hour=first_hour,
        exposure=exposure,
        losses=bursts * size,
        bursts=bursts,
        spells=none,
        nodes=none,
        causes=np.zeros((len(pools), len(CAUSES)), dtype=np.int64),
        left_on_hint=none,
        burst_pool=where[:, 0],
        burst_at=3600.0 * (first_hour + where[:, 2]),
        burst_size=np.full(len(where), size),
    )


def by_hour(counts: Counts, exposure_h: float = 10.0, first_hour: int = MONDAY * 24) -> Table:
    """Build a table of one pool of old nodes from bursts of each hour."""
    cube = np.zeros((1, BANDS, counts.size))
    events = np.zeros(cube.shape, dtype=np.int64)
    cube[0, OLD], events[0, OLD] = exposure_h, counts.ravel()
    return table((pool(),), cube, events, first_hour)


def stormy(seed: int, days: int = 60, bursts_a_day: float = 6.0, profile: Floats | None = None) -> Counts:
    """Draw bursts (day, hour): half of a day's fall into a storm of three hours at any time of that day.

    ``profile`` multiplies the rate of each hour, storms included; without one there is no daily pattern.
    """
    draw = np.random.default_rng(seed)
    hours = (np.arange(24) - draw.integers(0, 24, days)[:, None]) % 24
    weather = draw.gamma(2.0, 0.5, (days, 1))
    rate = weather * bursts_a_day * (0.5 / 24 + (hours < 3) * 0.5 / 3)
    return draw.poisson(rate * (1.0 if profile is None else profile))


def wave(peak_to_mean: float, peak_hour: float) -> Floats:
    """Give 24 factors of one harmonic whose peak is that many times its geometric mean."""
    shape: Floats = np.exp(np.log(peak_to_mean) * np.cos(2 * np.pi * (np.arange(24) + 0.5 - peak_hour) / 24))
    mean: Floats = shape / shape.mean()
    return mean


def region(counts: Counts, first_day: int = MONDAY) -> Residuals:
    """Wrap counts of (day, hour) at even exposure as one region's residuals."""
    even = np.full(counts.shape, counts.mean())
    return Residuals("aws", "r1", first_day, counts.astype(float), even, np.ones(counts.shape), counts.sum())
