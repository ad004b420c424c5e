"""Spells to exposure and losses per pool, age band and UTC hour, at a cost that knows no lengths.

A stay is cut where it passes from one age band into the next; of each piece only its two ends are looked at.
In the hour in which it begins it adds one less the part before it, in the hour in which it ends the part up
to there, and one in each hour between: a running sum of beginnings less ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outlast.daemon.history.counting import BURST_S
from outlast.daemon.rates.table import (
    AGE_EDGES_H,
    BANDS,
    CAUSES,
    LOST,
    UNKNOWN_AGE,
    Columns,
    Counts,
    Floats,
    Origin,
    Table,
)

HOUR_S = 3600.0
# What is said to lie further back comes of a clock that was never set.
MOST_HOURS = 10 * 366 * 24
_CHUNK = 1 << 20
_HELD: Origin = "held"
_LOST = tuple(CAUSES.index(cause) for cause in LOST)
_LEFT = CAUSES.index("failover")


@dataclass(frozen=True, slots=True)
class _Stays:
    """Where the rows lie: ``began`` and ``ended`` in hours from the first one, ``length`` in hours."""

    pool: NDArray[np.int64]
    began: NDArray[np.float64]
    ended: NDArray[np.float64]
    length: NDArray[np.float64]
    known: NDArray[np.bool_]


def tabulate(columns: Columns, now: float) -> Table:
    """Give exposure, losses and bursts of the columns as of UTC ``now``.

    Exposure ends at ``now``; losses after it, stays after it and stays that ended more than ten years before
    it are not counted. The sum of the exposure is the sum of the lengths. Losses of one pool no further apart
    than 180 s, each from the one before it, are one burst.
    """
    columns = _seen(columns, now)
    first, hours = _span(columns)
    stays = _Stays(
        columns.pool.astype(np.int64),
        columns.began.astype(np.float64) / HOUR_S - first,
        columns.ended.astype(np.float64) / HOUR_S - first,
        (columns.ended - columns.began).astype(np.float64) / HOUR_S,
        columns.known,
    )
    shape = (len(columns.pools), BANDS, hours)
    lost = np.flatnonzero(np.isin(columns.cause, _LOST))
    # Of nodes lost at one instant the youngest is a burst's first, so that no order of the rows says who is.
    lost = lost[np.lexsort((_band(stays, lost), columns.ended[lost], columns.pool[lost]))]
    heads = _heads(columns.pool[lost], columns.ended[lost])
    pools = len(columns.pools)
    left = columns.hinted & (columns.cause == _LEFT)
    return Table(
        pools=columns.pools,
        origin=columns.origin or tuple(_HELD for _ in range(pools)),
        first_hour=first,
        exposure=_exposure(stays, shape),
        losses=_placed(stays, lost, shape),
        bursts=_placed(stays, lost[heads], shape),
        spells=np.bincount(columns.pool[columns.ended > columns.began], minlength=pools),
        nodes=_distinct(columns, pools),
        causes=_causes(columns, pools),
        left_on_hint=np.bincount(columns.pool[left], minlength=pools),
        burst_pool=columns.pool[lost[heads]].astype(np.int64),
        burst_at=columns.ended[lost[heads]],
        burst_size=np.diff(np.append(np.flatnonzero(heads), len(lost))),
    )


def window(table: Table, begins: float, ends: float) -> Table:
    """Cut a table to the whole hours within UTC ``begins`` to ``ends``; all pools stay, empty ones too.

    A burst belongs whole to the hour of its first node. What is not known by the hour (spells, nodes, causes,
    stays left on a hint) is the whole table's if nothing is cut off, else 0.
    """
    last = table.first_hour + table.exposure.shape[2]
    low = min(max(math.ceil(begins / HOUR_S), table.first_hour), last)
    high = max(min(math.floor(ends / HOUR_S), last), low)
    cut = slice(low - table.first_hour, high - table.first_hour)
    hour = np.ceil(table.burst_at / HOUR_S).astype(np.int64) - 1
    inside = (hour >= low) & (hour < high)
    whole = 1 if (low, high) == (table.first_hour, last) else 0
    return replace(
        table,
        first_hour=low,
        exposure=table.exposure[:, :, cut],
        losses=table.losses[:, :, cut],
        bursts=table.bursts[:, :, cut],
        spells=table.spells * whole,
        nodes=table.nodes * whole,
        causes=table.causes * whole,
        left_on_hint=table.left_on_hint * whole,
        burst_pool=table.burst_pool[inside],
        burst_at=table.burst_at[inside],
        burst_size=table.burst_size[inside],
    )


# ---- what is looked at


def _seen(columns: Columns, now: float) -> Columns:
    """Leave out what lies too far off, and end at ``now`` what goes on beyond it: it is running then."""
    kept = (columns.began <= now) & (columns.ended >= now - MOST_HOURS * HOUR_S)
    ended = np.maximum(columns.ended[kept], columns.began[kept])
    over = ended > now
    return replace(
        columns,
        pool=columns.pool[kept],
        node=columns.node[kept],
        began=np.maximum(columns.began[kept], now - MOST_HOURS * HOUR_S),
        ended=np.where(over, now, ended),
        cause=np.where(over, 0, columns.cause[kept]),
        known=columns.known[kept] & (columns.began[kept] >= now - MOST_HOURS * HOUR_S),
        hinted=columns.hinted[kept] & ~over,
    )


def _span(columns: Columns) -> tuple[int, int]:
    """Say which hour is the first and how many there are; the hour before a loss is among them."""
    if not len(columns.began):
        return 0, 0
    first = min(math.floor(columns.began.min() / HOUR_S), math.ceil(columns.ended.min() / HOUR_S) - 1)
    return first, math.ceil(columns.ended.max() / HOUR_S) - first


# ---- exposure


def _exposure(stays: _Stays, shape: tuple[int, int, int]) -> Floats:
    cube = np.zeros(shape)
    pools, bands, hours = shape
    for band in range(bands):
        ends = np.zeros(pools * (hours + 1), dtype=np.int64)
        parts = np.zeros(pools * (hours + 1))
        for pool, begin, end in _pieces(stays, band):
            for at, sign in ((begin, 1), (end, -1)):
                hour = np.floor(at)
                cell = pool * (hours + 1) + hour.astype(np.int64)
                ends += sign * np.bincount(cell, minlength=len(ends))
                parts -= sign * np.bincount(cell, at - hour, minlength=len(parts))
        whole = np.cumsum(ends.reshape(pools, hours + 1), axis=1) + parts.reshape(pools, hours + 1)
        cube[:, band, :] = whole[:, :hours]
    return np.maximum(cube, 0.0, out=cube)


def _pieces(
    stays: _Stays, band: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]]:
    """Pool, beginning and end of each stay's time in one band of age, some rows at a time."""
    edges = (*AGE_EDGES_H, math.inf)
    for row in range(0, len(stays.pool), _CHUNK):
        part = slice(row, row + _CHUNK)
        begin, end = stays.began[part], stays.ended[part]
        if band == UNKNOWN_AGE:
            kept = ~stays.known[part] & (end > begin)
        else:
            begin, end = begin + edges[band], np.minimum(end, begin + edges[band + 1])
            kept = stays.known[part] & (end > begin)
        if kept.any():
            yield stays.pool[part][kept], begin[kept], end[kept]


# ---- losses


def _heads(pool: Counts, at: Floats) -> NDArray[np.bool_]:
    """Mark the first loss of each burst; losses are in order of pool and time."""
    heads = np.ones(len(at), dtype=np.bool_)
    heads[1:] = (np.diff(pool) != 0) | (np.diff(at) > BURST_S)
    return heads


def _placed(stays: _Stays, rows: NDArray[np.int64], shape: tuple[int, int, int]) -> Counts:
    """Count rows by pool, band and hour of their end; an end at a bound belongs to what was before it."""
    hour = np.ceil(stays.ended[rows]).astype(np.int64) - 1
    cube = np.zeros(shape, dtype=np.int32)
    np.add.at(cube, (stays.pool[rows], _band(stays, rows), hour), 1)
    return cube


def _band(stays: _Stays, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The band of age in which each of these rows ended."""
    band = np.searchsorted(AGE_EDGES_H, stays.length[rows], side="left") - 1
    return np.where(stays.known[rows], np.maximum(band, 0), UNKNOWN_AGE)


# ---- counts a pool


def _distinct(columns: Columns, pools: int) -> Counts:
    order = np.lexsort((columns.node, columns.pool))
    pool, node = columns.pool[order], columns.node[order]
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (np.diff(pool) != 0) | (node[1:] != node[:-1])
    return np.bincount(pool[fresh], minlength=pools)


def _causes(columns: Columns, pools: int) -> Counts:
    cell = columns.pool.astype(np.int64) * len(CAUSES) + columns.cause
    return np.bincount(cell, minlength=pools * len(CAUSES)).reshape(pools, len(CAUSES))
