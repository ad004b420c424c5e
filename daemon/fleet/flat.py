"""Spells with ids, as columns: imported, merged and stored. One stay has one id wherever it is read."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from outlast.daemon.history.counting import settled, strays
from outlast.daemon.history.merging import merge
from outlast.daemon.history.rows import Pool, Rows
from outlast.daemon.rates.columns import columns_of
from outlast.daemon.rates.table import CAUSES, Columns, Counts, Floats, Launch, Origin, Price

CAUSE_NUMBER = {cause: number for number, cause in enumerate(CAUSES)}
# Ids of spells that no daemon recorded have this bit, which no daemon's has.
IMPORTED = 1 << 62


def _none() -> Floats:
    return np.zeros(0)


def _no_names() -> Counts:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Flat:
    """Columns, and the id of each row. Two rows of one id are versions of one spell.

    ``first`` is when the stay was first seen to begin, which no later setting of the clock moves: the month
    by which it is stored. Where it is not given it is ``began``. ``instance`` is the number of the instance's
    name, by which peers know it; 0 where it has none.
    """

    id: Counts
    columns: Columns
    first: Floats = field(default_factory=_none)
    instance: Counts = field(default_factory=_no_names)

    def __post_init__(self) -> None:
        """Fill in what was not given."""
        if len(self.first) != len(self.id):
            object.__setattr__(self, "first", self.columns.began)
        if len(self.instance) != len(self.id):
            object.__setattr__(self, "instance", np.zeros(len(self.id), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, slots=True, order=True)
class Sighting:
    """A node was found gone at UTC ``at``. ``victim`` is the number of its instance's name, or its own."""

    victim: int
    at: float
    pool: Pool


@dataclass(frozen=True, slots=True)
class Imported:
    """What one or several files held."""

    spells: Flat
    launches: tuple[Launch, ...] = ()
    prices: tuple[Price, ...] = ()
    notes: tuple[str, ...] = ()
    losses: tuple[Sighting, ...] = ()


class Gather:
    """Takes spells one by one and gives them as columns. A pool is kept apart by its origin."""

    def __init__(self) -> None:
        self._places: dict[tuple[Pool, Origin], int] = {}
        self._whole = {name: array("q") for name in ("id", "pool", "node", "cause", "known", "hinted")}
        self._times = {name: array("d") for name in ("began", "ended")}

    def add(
        self,
        pool: Pool,
        node: str,
        began: float,
        ended: float,
        cause: str,
        *,
        known: bool = True,
        hinted: bool = False,
        origin: Origin = "held",
    ) -> None:
        """One spell of ``node``. Its id comes from pool, node and beginning."""
        number = derived(pool, origin, node, str(round(began * 1e6)))
        self.put((pool, origin), number, number_of(node), (began, ended), (cause, known, hinted))

    def put(
        self,
        pool: tuple[Pool, Origin],
        number: int,
        node: int,
        times: tuple[float, float],
        end: tuple[str, bool, bool],
    ) -> None:
        """One spell as it was taken before: id, node's number, begin and end; cause, known, hinted."""
        place = self._places.setdefault(pool, len(self._places))
        cause, known, hinted = end
        values = (number, place, node, CAUSE_NUMBER[cause], known, hinted)
        for column, value in zip(self._whole.values(), values, strict=True):
            column.append(value)
        for instants, time in zip(self._times.values(), times, strict=True):
            instants.append(time)

    def flat(self) -> Flat:
        """All that was added."""
        whole = {name: np.array(values, dtype=np.int64) for name, values in self._whole.items()}
        times = {name: np.array(values, dtype=np.float64) for name, values in self._times.items()}
        columns = Columns(
            pools=tuple(pool for pool, _ in self._places),
            origin=tuple(origin for _, origin in self._places),
            pool=whole["pool"],
            node=whole["node"],
            began=times["began"],
            ended=times["ended"],
            cause=whole["cause"].astype(np.int8),
            known=whole["known"].astype(np.bool_),
            hinted=whole["hinted"].astype(np.bool_),
        )
        return Flat(whole["id"], columns)


def join(parts: Sequence[Flat]) -> Flat:
    """All rows of all parts, versions and repetitions of a spell still among them. Pools are in order."""
    own = [tuple(zip(part.columns.pools, _origins(part.columns), strict=True)) for part in parts]
    keys = sorted({key for keys in own for key in keys})
    place = {key: index for index, key in enumerate(keys)}
    every = [Gather().flat(), *parts]
    pools = [every[0].columns.pool]
    for part, names in zip(parts, own, strict=True):
        index = np.array([place[key] for key in names], dtype=np.int64)
        pools.append(index[part.columns.pool] if len(part) else pools[0])
    columns = Columns(
        pools=tuple(pool for pool, _ in keys),
        origin=tuple(origin for _, origin in keys),
        pool=np.concatenate(pools),
        node=np.concatenate([part.columns.node for part in every]),
        began=np.concatenate([part.columns.began for part in every]),
        ended=np.concatenate([part.columns.ended for part in every]),
        cause=np.concatenate([part.columns.cause for part in every]),
        known=np.concatenate([part.columns.known for part in every]),
        hinted=np.concatenate([part.columns.hinted for part in every]),
    )
    return Flat(
        np.concatenate([part.id for part in every]),
        columns,
        np.concatenate([part.first for part in every]),
        np.concatenate([part.instance for part in every]),
    )


def _origins(columns: Columns) -> tuple[Origin, ...]:
    held: Origin = "held"
    return columns.origin or (held,) * len(columns.pools)


def newest(flat: Flat) -> Flat:
    """One row an id, the version that knows most, whatever order the rows are in.

    A version is newer that is longer, to the millisecond: a stay never shrinks, while a clock that is set
    back moves its ends. Of two of one length the one with a cause counts, then the one that left on a hint.
    The order is total where the pools are in order, so that merging gives the same in any order. A spell was
    first seen when any of its versions was, and has the instance that any of them knows.
    """
    if not len(flat):
        return flat
    c = flat.columns
    long_ms = np.round((c.ended - c.began) * 1e3).astype(np.int64)
    order = np.lexsort(
        (c.node, c.pool, ~c.known, -c.began, c.hinted, c.cause, c.cause != 0, long_ms, flat.id)
    )
    last = np.append(flat.id[order][1:] != flat.id[order][:-1], True)
    begins = np.append(0, np.flatnonzero(last)[:-1] + 1)
    return replace(
        pick(flat, order[last]),
        first=np.minimum.reduceat(flat.first[order], begins),
        instance=np.maximum.reduceat(flat.instance[order], begins),
    )


def pick(flat: Flat, rows: Counts) -> Flat:
    """These rows only, in this order."""
    c = flat.columns
    columns = replace(
        c,
        pool=c.pool[rows],
        node=c.node[rows],
        began=c.began[rows],
        ended=c.ended[rows],
        cause=c.cause[rows],
        known=c.known[rows],
        hinted=c.hinted[rows],
    )
    return Flat(flat.id[rows], columns, flat.first[rows], flat.instance[rows])


def derived(pool: Pool, *words: str) -> int:
    """An id for what no daemon gave one: the same from the same words."""
    key = "\0".join((pool.provider, pool.region, pool.zone, pool.instance_type, *words))
    return int.from_bytes(hashlib.sha256(key.encode("utf-8", "replace")).digest()[:8], "big") >> 2 | IMPORTED


@lru_cache(maxsize=65536)
def number_of(node: str) -> int:
    """A number that tells nodes apart, which is not their name."""
    return int.from_bytes(hashlib.sha256(node.encode("utf-8", "replace")).digest()[:7], "big")


def flat_of(rows: Rows, now: float) -> Flat:
    """The history's rows as of UTC ``now``, with the ids that daemons gave them."""
    whole = settled(merge(rows), now)
    spells, gone = [spell for spell in whole.spells if not spell.drill], strays(whole)
    ids = [spell.id for spell in spells]
    ids += [stray_id(Sighting(number_of(loss.victim), loss.at, loss.pool)) for loss in gone]
    first = [spell.began for spell in spells] + [loss.at for loss in gone]
    names = [number_of(spell.instance_id) if spell.instance_id else 0 for spell in spells]
    return Flat(
        np.array(ids, dtype=np.int64),
        columns_of(rows, now),
        np.array(first, dtype=np.float64),
        np.array(names + [0] * len(gone), dtype=np.int64),
    )


def stray_id(seen: Sighting) -> int:
    """The id of a row that stands for a node of which nothing else is known."""
    return derived(seen.pool, "loss", str(seen.victim), str(round(seen.at * 1e6)))
