"""How the hazard falls with age: the strongest effect there is, so that all else is standardised by it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from outlast.daemon.rates.gamma import posterior
from outlast.daemon.rates.table import AGE_EDGES_H, BANDS, UNKNOWN_AGE, Floats, Table
from outlast.daemon.rates.values import AgeBand, AgeCurve, Range

# Both what was seen and what was expected in a band have this added: a band with little in it stays near 1.
PSEUDO_EVENTS = 2.0
_ROUNDS = 50
_SETTLED = 1e-9

Cells = NDArray[np.float64]  # pool, band


def factors(table: Table) -> dict[str, Floats]:
    """Give the factor of each age band, by provider: (bursts + 2) / (expected + 2), 1 where age is unknown.

    Indirect standardisation: what is expected comes from each pool's own rate, so that pools of different
    quality make no age effect. A pool's own rate is itself freed of the ages at which it was observed, which
    takes some rounds; with one pool it is just bursts over exposure.
    """
    exposure, events = cells(table)
    return {
        provider: _factors(exposure[members], events[members])
        for provider, members in providers(table).items()
    }


def providers(table: Table) -> dict[str, list[int]]:
    """Give the indices of each provider's pools."""
    members: dict[str, list[int]] = defaultdict(list)
    for index, pool in enumerate(table.pools):
        members[pool.provider].append(index)
    return dict(sorted(members.items()))


def cells(table: Table) -> tuple[Cells, Cells]:
    """Sum exposure and bursts over the hours: pool, band."""
    return table.exposure.sum(axis=2, dtype=np.float64), table.bursts.sum(axis=2, dtype=np.float64)


def curves(table: Table) -> tuple[AgeCurve, ...]:
    """Give hazard by age, pooled over each provider's pools: nodes lost per instance-hour of that age.

    The interval counts bursts, not nodes: losses that come together are one piece of evidence. Stays whose
    age is not known are in no band; a band without exposure is left out.
    """
    exposure, events = cells(table)
    losses = table.losses.sum(axis=2, dtype=np.float64)
    found = []
    for provider, members in providers(table).items():
        factor = _factors(exposure[members], events[members])
        hours, bursts, nodes = (cube[members].sum(axis=0) for cube in (exposure, events, losses))
        bands = tuple(
            AgeBand(
                from_h=AGE_EDGES_H[band],
                to_h=AGE_EDGES_H[band + 1] if band + 1 < len(AGE_EDGES_H) else None,
                exposure_h=float(hours[band]),
                losses=int(nodes[band]),
                hazard=_hazard(float(bursts[band]), float(nodes[band]), float(hours[band])),
                factor=float(factor[band]),
            )
            for band in range(UNKNOWN_AGE)
            if hours[band] > 0
        )
        if bands:
            found.append(AgeCurve(provider, bands))
    return tuple(found)


def _hazard(bursts: float, nodes: float, hours: float) -> Range:
    size = max(1.0, nodes / bursts) if bursts else 1.0
    return posterior(nodes / size, hours / size).interval()


def _factors(exposure: Cells, events: Cells) -> Floats:
    factor = np.ones(BANDS)
    hours, counts = exposure.sum(axis=1), events.sum(axis=1)
    crude = np.divide(counts, hours, out=np.zeros(len(hours)), where=hours > 0)
    for _ in range(_ROUNDS):
        before = factor
        expected = (_own_rates(exposure, counts, crude, factor)[:, None] * exposure).sum(axis=0)
        factor = (events.sum(axis=0) + PSEUDO_EVENTS) / (expected + PSEUDO_EVENTS)
        factor[UNKNOWN_AGE] = 1.0
        if np.abs(factor - before).max() < _SETTLED:
            break
    return factor


def _own_rates(exposure: Cells, counts: Cells, crude: Cells, factor: Floats) -> Cells:
    """Give each pool's rate at the provider's mean age; the factors' own level is taken out of them first."""
    weighted = exposure @ factor
    level = float(crude @ weighted) / max(float(counts.sum()), 1.0)
    return np.divide(counts * max(level, 1e-12), weighted, out=np.zeros(len(counts)), where=weighted > 0)
