"""Exposure, losses and counts summed up part by part: no more than one part of the spells is in memory.

Gives the same as ``rates.tabulate.tabulate`` does of all spells at once. Times are whole microseconds, so
that sums are exact in whatever order the parts come. A spell is cut at the bounds of the age bands; each end
of a piece in hour ``i``, ``r`` after the hour began, adds ``3600 s - r`` to ``i`` and ``r`` to ``i + 1`` of a
difference whose running sum is the exposure. Bursts are found at the end, from all losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outlast.daemon.history.counting import BURST_S
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import AGE_EDGES_H, BANDS, CAUSES, LOST, UNKNOWN_AGE, Origin, Table
from outlast.daemon.rates.tabulate import MOST_HOURS

HOUR_US = 3_600_000_000
BURST_US = round(BURST_S * 1e6)
EDGES_US = tuple(round(edge * HOUR_US) for edge in AGE_EDGES_H)
# From this many cells on exposure is kept in single precision: seven digits of an hour.
MANY_CELLS = 4_000_000
# So much of a node's number is looked at to tell the nodes of one pool apart; the pool is above it.
_NODE_BITS = 48
_BAND_BITS = 3

Whole = NDArray[np.int64]
_LOST = np.isin(np.arange(len(CAUSES)), [CAUSES.index(cause) for cause in LOST])
_LEFT = CAUSES.index("failover")


@dataclass(frozen=True, slots=True)
class Part:
    """Some spells, each there once in all parts together. Times are microseconds, UTC."""

    pool: Whole
    node: Whole
    began: Whole
    ended: Whole
    cause: Whole
    known: NDArray[np.bool_]
    hinted: NDArray[np.bool_]


@dataclass
class _Bursts:
    """What is known of the bursts of the pools that are done, in their order."""

    pool: list[NDArray[np.int32]] = field(default_factory=list)
    at: list[NDArray[np.float64]] = field(default_factory=list)
    size: list[NDArray[np.int32]] = field(default_factory=list)


def seen(part: Part, now: float) -> Part:
    """As of UTC ``now``: what began later is not there, what goes on is running."""
    now_us = round(now * 1e6)
    oldest = now_us - MOST_HOURS * HOUR_US
    kept = (part.began <= now_us) & (part.ended >= oldest)
    if not kept.all():
        part = Part(*(getattr(part, name)[kept] for name in Part.__slots__))
    ended = np.maximum(part.ended, part.began)
    over = ended > now_us
    return Part(
        part.pool,
        part.node,
        np.maximum(part.began, oldest),
        np.where(over, now_us, ended),
        np.where(over, 0, part.cause),
        part.known & (part.began >= oldest),
        part.hinted & ~over,
    )


@dataclass(frozen=True, slots=True)
class _Ends:
    """Ends of pieces by pool and hour, from hour ``first`` on: an hour for each, and what is past it."""

    first: int
    whole: Whole
    rests: Whole


class Summing:
    """``begin`` with some pools, ``add`` each of their parts once; go on with others; then ``table``."""

    def __init__(self, pools: Sequence[Pool], origins: Sequence[Origin], first_hour: int, hours: int) -> None:
        self._pools, self._origins = tuple(pools), tuple(origins)
        self._first, self._hours = first_hour, hours
        count = len(self._pools)
        cells = count * BANDS * hours
        kind = np.float32 if cells > MANY_CELLS else np.float64
        self._exposure = np.zeros((count, BANDS, hours), dtype=kind)
        self._spells = np.zeros(count, dtype=np.int64)
        self._causes = np.zeros((count, len(CAUSES)), dtype=np.int64)
        self._left = np.zeros(count, dtype=np.int64)
        self._losses: list[Whole] = []
        self._bursts = _Bursts()
        # A loss is one number, which sorts by pool, time and band: so many bits are its time's.
        self._time_bits = max(hours * HOUR_US, 1).bit_length()
        self._cubes = (_Cube((count, BANDS, hours)), _Cube((count, BANDS, hours)))
        self._nodes = np.zeros(count, dtype=np.int64)
        self._met: list[Whole] = []
        self._edges = [2**62, 2**62, -(2**62)]  # the first beginning, first end and last end
        self._open: tuple[int, NDArray[np.int64]] | None = None

    def begin(self, low: int, high: int) -> None:
        """What is added next is of pools ``low`` up to ``high`` only."""
        self.settle()
        self._open = (low, np.zeros((high - low, BANDS, self._hours + 1), dtype=np.int64))

    def add(self, part: Part) -> None:
        """Sum up some spells, of pools that were begun."""
        if not len(part.pool):
            return
        edges = (part.began.min(), part.ended.min(), part.ended.max())
        self._edges = [
            min(self._edges[0], edges[0]),
            min(self._edges[1], edges[1]),
            max(self._edges[2], edges[2]),
        ]
        self._met.append(np.unique(part.pool << _NODE_BITS | part.node & ((1 << _NODE_BITS) - 1)))
        count = len(self._pools)
        self._spells += np.bincount(part.pool[part.ended > part.began], minlength=count)
        cells = np.bincount(part.pool * len(CAUSES) + part.cause, minlength=count * len(CAUSES))
        self._causes += cells.reshape(count, -1)
        self._left += np.bincount(part.pool[part.hinted & (part.cause == _LEFT)], minlength=count)
        self._note_losses(part)
        self._cut(part)

    def table(self) -> Table:
        """All that was added."""
        self.settle()
        losses, bursts = self._cubes
        found = self._bursts
        return Table(
            pools=self._pools,
            origin=self._origins,
            first_hour=self._first,
            exposure=self._exposure,
            losses=losses.cells,
            bursts=bursts.cells,
            spells=self._spells,
            nodes=self._nodes,
            causes=self._causes,
            left_on_hint=self._left,
            burst_pool=np.concatenate([np.zeros(0, dtype=np.int32), *found.pool]),
            burst_at=np.concatenate([np.zeros(0), *found.at]),
            burst_size=np.concatenate([np.zeros(0, dtype=np.int32), *found.size]),
        )

    def span(self) -> tuple[int, int]:
        """The first hour, and that after the last, of what was added."""
        began, ended, last = self._edges
        if last < ended:
            return 0, 0
        return min(began // HOUR_US, -(-ended // HOUR_US) - 1), -(-last // HOUR_US)

    def _note_losses(self, part: Part) -> None:
        assert self._open is not None
        lost = np.flatnonzero(_LOST[part.cause])
        length = part.ended[lost] - part.began[lost]
        band = np.where(part.known[lost], _last_band(length), UNKNOWN_AGE)
        pool, at = part.pool[lost] - self._open[0], part.ended[lost] - self._first * HOUR_US
        self._losses.append(((pool << self._time_bits | at) << _BAND_BITS) | band)

    def _settle_losses(self, low: int, high: int) -> None:
        """Sort the losses of some pools and find their bursts."""
        assert (high - low).bit_length() + self._time_bits + _BAND_BITS < 63
        keys = np.concatenate([np.zeros(0, dtype=np.int64), *self._losses])
        self._losses.clear()
        keys.sort()
        band = (keys & ((1 << _BAND_BITS) - 1)).astype(np.int8)
        keys >>= _BAND_BITS
        pool = (keys >> self._time_bits).astype(np.int32)
        at = keys & ((1 << self._time_bits) - 1)
        head = np.ones(len(at), dtype=np.bool_)
        head[1:] = (np.diff(pool) != 0) | (np.diff(at) > BURST_US)
        cell = (pool * np.int64(BANDS) + band) * self._hours + (-(-at // HOUR_US) - 1)
        for cube, cells in zip(self._cubes, (cell, cell[head]), strict=True):
            cube.count(cells, low, high)
        self._bursts.pool.append(pool[head] + np.int32(low))
        self._bursts.at.append((at[head] + self._first * HOUR_US) / 1e6)
        self._bursts.size.append(np.diff(np.append(np.flatnonzero(head), len(at))).astype(np.int32))

    def _cut(self, part: Part) -> None:
        known = np.flatnonzero(part.known & (part.ended > part.began))
        last = _last_band(part.ended[known] - part.began[known])
        known = known[np.argsort(last, kind="stable")]  # so those that reach a band follow those that do not
        pool, began, ended = part.pool[known], part.began[known], part.ended[known]
        bounds = np.append(0, np.cumsum(np.bincount(last, minlength=len(EDGES_US)))).tolist()
        span, begins = _span(began), None
        for band in reversed(range(len(EDGES_US))):
            mine, reach = slice(bounds[band], bounds[band + 1]), slice(bounds[band], None)
            self._place(self._ends(pool[mine], ended[mine]), minus=band)
            begins = self._ends(pool[mine], began[mine], span, begins)
            hours, rest = divmod(EDGES_US[band], HOUR_US)
            # Edges of whole hours lie in theirs where the stays' beginnings do.
            edge = self._ends(pool[reach], began[reach] + rest) if rest else begins
            self._place(edge, plus=band, minus=band - 1 if band else None, later=hours)
        other = np.flatnonzero(~part.known & (part.ended > part.began))
        self._place(self._ends(part.pool[other], part.began[other]), plus=UNKNOWN_AGE)
        self._place(self._ends(part.pool[other], part.ended[other]), minus=UNKNOWN_AGE)

    def _ends(
        self, pool: Whole, at: Whole, span: tuple[int, int] | None = None, more: _Ends | None = None
    ) -> _Ends:
        """Ends of pieces by pool and hour, with ``more`` of the same ``span`` added."""
        assert self._open is not None
        first, width = span or _span(at)
        shape = (len(self._open[1]), width)
        hour = at // HOUR_US
        cell = (pool - self._open[0]) * width + (hour - first)
        counts = np.bincount(cell, minlength=shape[0] * width).reshape(shape)
        rests = np.bincount(cell, at - hour * HOUR_US, minlength=shape[0] * width).astype(np.int64)
        found = _Ends(first, counts * HOUR_US, rests.reshape(shape))
        return found if more is None else _Ends(first, found.whole + more.whole, found.rests + more.rests)

    def _place(self, ends: _Ends, plus: int | None = None, minus: int | None = None, later: int = 0) -> None:
        """Ends ``later`` by so many hours: they add to the band ``plus`` and take from the band ``minus``."""
        assert self._open is not None
        sums = self._open[1]
        first = ends.first + later - self._first
        here, there = ends.whole - ends.rests, ends.rests
        for band, sign in ((plus, 1), (minus, -1)):
            if band is None:
                continue
            for begin, cells in ((first, here), (first + 1, there)):
                room = max(min(cells.shape[1], sums.shape[2] - begin), 0)
                sums[:, band, begin : begin + room] += sign * cells[:, :room]

    def settle(self) -> None:
        """Make of the differences what they stand for."""
        if self._open is None:
            return
        low, sums = self._open
        if self._met:
            met = np.unique(np.concatenate(self._met))
            self._nodes += np.bincount(met >> _NODE_BITS, minlength=len(self._nodes))
            self._met.clear()
        self._settle_losses(low, low + len(sums))
        np.cumsum(sums, axis=2, out=sums)
        for number, cells in enumerate(sums[:, :, : self._hours]):
            self._exposure[low + number] = cells / HOUR_US
        self._open = None


def _span(at: Whole) -> tuple[int, int]:
    """The hour of the first, and how many hours there are up to the last."""
    if not len(at):
        return 0, 0
    first = int(at.min()) // HOUR_US
    return first, int(at.max()) // HOUR_US + 1 - first


def _last_band(length: Whole) -> NDArray[np.int8]:
    """The band of age in which stays of these lengths, microseconds, end."""
    band = np.zeros(len(length), dtype=np.int8)
    for edge in EDGES_US[1:]:
        band += length > edge
    return band


class _Cube:
    """Counts by cell, in the smallest type that holds them."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.cells: NDArray[np.integer] = np.zeros(shape, dtype=np.int16)

    def count(self, cell: Whole, low: int, high: int) -> None:
        """Count the cells of pools ``low`` up to ``high``, numbered from the first of them on.

        They are in the order of their pools, and none of these was counted before.
        """
        a_pool = int(np.prod(self.cells.shape[1:]))
        bounds = np.searchsorted(cell, np.arange(high - low + 1) * a_pool)
        for number in range(high - low):
            mine = cell[bounds[number] : bounds[number + 1]] - number * a_pool
            self._put(low + number, np.bincount(mine, minlength=a_pool))

    def _put(self, pool: int, counts: Whole) -> None:
        if counts.max(initial=0) >= 2**15 and self.cells.dtype == np.int16:
            self.cells = self.cells.astype(np.int32)
        self.cells[pool] = counts.reshape(self.cells.shape[1:])
