"""Nodes that a peer found gone: kept beside the stays, and joined to them where all of them are at hand.

A peer's file may be merged long before the victim's, or never beside it. So a sighting is kept as it was
told, and what it says of a stay is found anew at each reading, by the rules of ``history.counting``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from outlast.daemon.fleet.flat import CAUSE_NUMBER, Flat, Gather, Sighting, join, number_of, stray_id
from outlast.daemon.history.counting import BURST_S, SILENT_S, SKEW_S
from outlast.daemon.history.rows import Rows
from outlast.daemon.rates.table import Counts

_RUNNING, _SILENT = CAUSE_NUMBER["running"], CAUSE_NUMBER["silent-loss"]


def sightings_of(rows: Rows) -> tuple[Sighting, ...]:
    """What the rows' peers saw, drills left out."""
    seen = {Sighting(number_of(loss.victim), loss.at, loss.pool) for loss in rows.losses if not loss.drill}
    return tuple(sorted(seen))


def joined(flat: Flat, sightings: Iterable[Sighting], now: float) -> Flat:
    """Spells, each there once, with what was seen of their nodes as of UTC ``now``.

    A stay that was silent by then was lost; a node of which no stay is known is a row of no length, each
    death once.
    """
    seen = sorted(set(sightings))
    stays = _stays(flat, np.array([one.victim for one in seen], dtype=np.int64))
    lost: dict[int, float] = {}
    strays = []
    for one in seen:
        row = _latest(flat, stays.get(one.victim, []), one.at)
        if row is None:
            strays.append(one)
        else:
            lost[row] = max(one.at, lost.get(row, one.at))
    return join([_settled(flat, lost, now), _rows(strays)]) if seen else flat


def _stays(flat: Flat, victims: Counts) -> dict[int, list[int]]:
    """The rows of each victim: it may be known by its node's name or by its instance's."""
    stays: dict[int, list[int]] = defaultdict(list)
    for names in (flat.columns.node, flat.instance):
        for row in np.flatnonzero(np.isin(names, victims)).tolist():
            stays[int(names[row])].append(row)
    return stays


def _latest(flat: Flat, rows: list[int], at: float) -> int | None:
    """The last of these stays that had begun by then, as far as clocks agree."""
    begun = [row for row in rows if flat.first[row] <= at + SKEW_S]
    return max(begun, key=lambda row: (flat.first[row], flat.id[row]), default=None)


def _settled(flat: Flat, lost: dict[int, float], now: float) -> Flat:
    cause = flat.columns.cause.copy()
    for row, at in lost.items():
        ended = float(flat.columns.ended[row])
        if cause[row] == _RUNNING and now - ended > SILENT_S and ended <= at + SILENT_S:
            cause[row] = _SILENT
    return replace(flat, columns=replace(flat.columns, cause=cause))


def _rows(strays: list[Sighting]) -> Flat:
    """One row a death: sightings of one victim no further apart than a burst are one."""
    gather = Gather()
    before: dict[int, float] = {}
    for one in strays:
        if one.at - before.get(one.victim, -np.inf) > BURST_S:
            number = stray_id(one)
            gather.put(
                (one.pool, "held"), number, one.victim, (one.at, one.at), ("silent-loss", False, False)
            )
        before[one.victim] = one.at
    return gather.flat()
