"""From Parquet to the table of exposure and losses, a part at a time: DuckDB reads, ``exposure`` sums.

The same as ``rates.tabulate.tabulate`` of all spells, whatever their number, in bounded memory. A partition
of one file holds each spell once and is read as it is; one of several is freed of older versions first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from outlast.daemon.fleet.exposure import Part, Summing, seen
from outlast.daemon.fleet.flat import Flat, Sighting, join, newest, pick
from outlast.daemon.fleet.ledgers import read_losses
from outlast.daemon.fleet.parquet import (
    CAUSE_SQL,
    Partition,
    connection,
    latest_of,
    partitions,
    pool_key,
    pools_of,
    read_flat,
    reading,
    scan,
)
from outlast.daemon.fleet.place import Place
from outlast.daemon.fleet.sightings import joined
from outlast.daemon.fleet.telling import Tell, nothing
from outlast.daemon.history.counting import SKEW_S
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Origin, Table
from outlast.daemon.rates.tabulate import HOUR_S, MOST_HOURS

Files = dict[Partition, list[str]]
# Rows of one part: some 50 MB of columns, and as much again of what is made of them.
MOST_ROWS = 500_000

_SPELLS = f"""SELECT pool, node, epoch_us(began) AS began, epoch_us(ended) AS ended,
    {CAUSE_SQL}::UTINYINT AS cause, age_known, left_on_hint"""
# The newest version of each spell, by the order of ``flat.newest``.
_NEWEST = f"""QUALIFY row_number() OVER (PARTITION BY id ORDER BY
    round((epoch_us(ended) - epoch_us(began)) / 1000) DESC, (cause <> 'running') DESC,
    {CAUSE_SQL} DESC, left_on_hint DESC, began, age_known, pool DESC, node DESC) = 1"""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of all files before their spells are read. Pools are in order; so are each one's keys."""

    pools: tuple[Pool, ...]
    origins: tuple[Origin, ...]
    keys: NDArray[np.int64]
    rows: dict[Partition, int]
    first_hour: int
    hours: int

    def range(self, provider: str) -> tuple[int, int]:
        """The pools of one provider: from, and up to."""
        mine = [index for index, pool in enumerate(self.pools) if pool.provider == provider]
        return (mine[0], mine[-1] + 1) if mine else (0, 0)

    def indexes(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The pools of these keys. Rows of one pool mostly follow each other, so runs are looked up."""
        if not len(keys):
            return keys
        starts = np.concatenate([[0], np.flatnonzero(np.diff(keys)) + 1])
        order = np.argsort(self.keys)
        place = order[np.searchsorted(self.keys, keys[starts], sorter=order)]
        return np.repeat(place, np.diff(np.append(starts, len(keys))))


def table_of(
    place: Place,
    now: float,
    extra: Flat | None = None,
    tell: Tell = nothing,
    sightings: Sequence[Sighting] = (),
) -> Table:
    """Exposure and losses of a fleet's Parquet as of UTC ``now``, and of other spells with it.

    A spell that is in both counts once, in its newest version; ``sightings`` are what peers saw besides.
    Raises UnreadableError and PlaceError.
    """
    files = partitions(place)
    with connection(place) as db:
        losses = (*sightings, *read_losses(db, place))
        rest = joined(_rest(db, place, files, [extra] if extra else [], losses), losses, now)
        known = _known(db, place, files, rest, now)
        summing = Summing(known.pools, known.origins, known.first_hour, known.hours)
        done = 0
        for provider in sorted({pool.provider for pool in known.pools}):
            summing.begin(*known.range(provider))
            for partition in [one for one in files if one.provider == provider]:
                for part in _parts(db, place, files[partition], known, known.rows[partition], rest):
                    summing.add(seen(part, now))
                done += 1
                tell("reading", done, len(files))
            summing.add(seen(_part_of(rest, known, provider), now))
        return _met(_trimmed(summing.table(), *summing.span()))


def flat_of_place(place: Place) -> tuple[Flat, tuple[Sighting, ...]]:
    """All spells of a fleet's Parquet, each in its newest version, and what peers saw, not joined to them.

    Raises UnreadableError and PlaceError.
    """
    with connection(place) as db:
        parts = [read_flat(db, place, part, names) for part, names in partitions(place).items()]
        return newest(join(parts)), read_losses(db, place)


# ---- what the files hold


def _rest(
    db: duckdb.DuckDBPyConnection,
    place: Place,
    files: Files,
    others: Sequence[Flat],
    losses: Sequence[Sighting],
) -> Flat:
    """Spells that do not come from the files as they are: others, and those of both in the newest version.

    A stay whose provider was not known at first may be in two partitions, and is among them; so are those
    of nodes that were found gone.
    """
    unknown = [read_flat(db, place, one, names) for one, names in files.items() if not one.provider]
    extra = newest(join([*others, *unknown]))
    victims = np.array([one.victim for one in losses], dtype=np.int64)
    latest = np.array([one.at + SKEW_S for one in losses], dtype=np.float64)
    found = [latest_of(db, place, names, victims, latest) for names in files.values()] if losses else []
    ids = np.unique(np.concatenate([extra.id, *found]))
    if not len(ids):
        return extra
    both = [read_flat(db, place, partition, names, ids) for partition, names in files.items()]
    return newest(join([extra, *both]))


def _known(db: duckdb.DuckDBPyConnection, place: Place, files: Files, rest: Flat, now: float) -> _Known:
    pools: dict[tuple[Pool, Origin], int] = {
        pair: pool_key(*pair) for pair in zip(rest.columns.pools, rest.columns.origin, strict=True)
    }
    rows: dict[Partition, int] = {}
    begins = [float(rest.columns.began.min())] if len(rest) else []
    ends = [float(rest.columns.ended.max())] if len(rest) else []
    for partition, names in files.items():
        with reading(place.path(names[0])):
            found, origins, keys = pools_of(db, place, partition, names)
            pools.update(zip(zip(found, origins, strict=True), keys.tolist(), strict=True))
            count, began, ended = db.execute(
                f"SELECT count(*), epoch(min(began)), epoch(max(ended)) FROM {scan(place, names)}"  # noqa: S608 - quoted
            ).fetchall()[0]
        rows[partition] = count
        if count:
            begins.append(began)
            ends.append(ended)
    # One hour more on either side than can be needed; what was not is cut off in the end.
    begin = max(min(begins, default=now), now - MOST_HOURS * HOUR_S)
    end = min(max([now, *begins] if max(ends, default=now) > now else ends, default=now), now)
    first = math.floor(begin / HOUR_S) - 1
    hours = max(0, math.ceil(max(end, begin) / HOUR_S) + 1 - first)
    order = sorted(pools)
    keys_of = np.array([pools[pair] for pair in order], dtype=np.int64)
    named = tuple(pool for pool, _ in order)
    return _Known(named, tuple(origin for _, origin in order), keys_of, rows, first, hours)


# ---- the spells


def _parts(
    db: duckdb.DuckDBPyConnection, place: Place, files: Sequence[str], known: _Known, rows: int, rest: Flat
) -> Iterator[Part]:
    """The spells of a partition, each once, without those of ``rest``; not too many at a time."""
    pieces = math.ceil(rows / MOST_ROWS)
    for piece in range(pieces):
        where = ["true"]
        if pieces > 1:
            where.append(f"id % {pieces} = {piece}")
        if len(rest):
            where.append("id NOT IN (SELECT id FROM elsewhere)")
            db.register("elsewhere", {"id": rest.id})
        with reading(place.path(files[0])):
            newest_only = _NEWEST if len(files) > 1 else ""
            found = db.execute(
                f"{_SPELLS} FROM {scan(place, files)} WHERE {' AND '.join(where)} {newest_only}"
            ).fetchnumpy()
        yield _part(found, known)


def _part(found: dict[str, Any], known: _Known) -> Part:
    return Part(
        known.indexes(found["pool"]),
        found["node"],
        found["began"],
        found["ended"],
        found["cause"],
        found["age_known"],
        found["left_on_hint"],
    )


def _part_of(rest: Flat, known: _Known, provider: str) -> Part:
    """The rows of one provider's pools."""
    low, high = known.range(provider)
    keys = np.array(
        [pool_key(*pair) for pair in zip(rest.columns.pools, rest.columns.origin, strict=True)],
        dtype=np.int64,
    )
    pool = known.indexes(keys[rest.columns.pool])
    mine = np.flatnonzero((pool >= low) & (pool < high))
    columns = pick(rest, mine).columns
    return Part(
        pool[mine],
        columns.node.astype(np.int64),
        np.round(columns.began * 1e6).astype(np.int64),
        np.round(columns.ended * 1e6).astype(np.int64),
        columns.cause.astype(np.int64),
        columns.known,
        columns.hinted,
    )


def _trimmed(table: Table, first: int, last: int) -> Table:
    """The hours that there were, without those of no spell before and after."""
    cut = slice(first - table.first_hour, last - table.first_hour) if last > first else slice(0, 0)
    return replace(
        table,
        first_hour=first,
        exposure=table.exposure[:, :, cut],
        losses=table.losses[:, :, cut],
        bursts=table.bursts[:, :, cut],
    )


def _met(table: Table) -> Table:
    """The pools in which there is a spell: of one that a stay was thought to be in at first there is none."""
    met = table.causes.any(axis=1)
    if met.all():
        return table
    kept = np.flatnonzero(met)
    return replace(
        table,
        pools=tuple(table.pools[index] for index in kept),
        origin=tuple(table.origin[index] for index in kept),
        exposure=table.exposure[kept],
        losses=table.losses[kept],
        bursts=table.bursts[kept],
        spells=table.spells[kept],
        nodes=table.nodes[kept],
        causes=table.causes[kept],
        left_on_hint=table.left_on_hint[kept],
        burst_pool=(np.cumsum(met) - 1)[table.burst_pool].astype(table.burst_pool.dtype),
    )
