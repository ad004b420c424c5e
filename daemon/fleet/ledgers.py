"""Launches, prices and sightings of a fleet as Parquet, partitioned as the spells are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, get_args

import duckdb
import numpy as np

from outlast.daemon.fleet.flat import Sighting
from outlast.daemon.fleet.parquet import (
    LAUNCHES,
    LOSSES,
    PRICES,
    Partition,
    copied,
    month_of,
    partitions,
    reading,
    registered,
    scan,
)
from outlast.daemon.fleet.place import Place
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Launch, Price, PriceKind

_LAUNCH = ("region", "zone", "instance_type", "at", "asked", "got")
_PRICE = ("region", "zone", "instance_type", "kind", "at", "micro_usd")
_LOSS = ("region", "zone", "instance_type", "at", "victim")
_KINDS = dict.fromkeys(("region", "zone", "instance_type", "kind"), object)
_SELECTS = {
    LAUNCHES: """SELECT region, zone, instance_type, make_timestamptz("at") AS "at", asked, got
FROM fresh ORDER BY ALL""",
    LOSSES: """SELECT region, zone, instance_type, make_timestamptz("at") AS "at", victim
FROM fresh ORDER BY ALL""",
    PRICES: """SELECT region, zone, instance_type, kind, make_timestamptz("at") AS "at", micro_usd
FROM fresh ORDER BY ALL""",
}


def write_launches(db: duckdb.DuckDBPyConnection, place: Place, launches: Iterable[Launch]) -> int:
    """Add the launches that are not there yet. Returns how many. Raises UnreadableError and PlaceError."""
    rows = [
        (one.pool, one.at, (*_names(one.pool), round(one.at * 1e6), one.asked, one.got)) for one in launches
    ]
    return _write(db, place, LAUNCHES, _LAUNCH, rows)


def write_prices(db: duckdb.DuckDBPyConnection, place: Place, prices: Iterable[Price]) -> int:
    """Add the prices that are not there yet. Returns how many. Raises UnreadableError and PlaceError."""
    rows = [
        (one.pool, one.at, (*_names(one.pool), one.kind, round(one.at * 1e6), one.micro_usd))
        for one in prices
    ]
    return _write(db, place, PRICES, _PRICE, rows)


def write_losses(db: duckdb.DuckDBPyConnection, place: Place, losses: Iterable[Sighting]) -> int:
    """Add the sightings that are not there yet. Returns how many. Raises UnreadableError and PlaceError."""
    rows = [(one.pool, one.at, (*_names(one.pool), round(one.at * 1e6), one.victim)) for one in losses]
    return _write(db, place, LOSSES, _LOSS, rows)


def read_losses(db: duckdb.DuckDBPyConnection, place: Place) -> tuple[Sighting, ...]:
    """All that peers saw, each once. Raises UnreadableError and PlaceError."""
    found = [
        Sighting(row[4], row[3] / 1e6, Pool(provider, *row[:3]))
        for provider, row in _read(db, place, LOSSES, _LOSS)
    ]
    return tuple(sorted(found))


def read_launches(db: duckdb.DuckDBPyConnection, place: Place) -> tuple[Launch, ...]:
    """All launches, each once, in order of time. Raises UnreadableError and PlaceError."""
    found = [
        Launch(Pool(provider, *row[:3]), row[3] / 1e6, row[4], row[5])
        for provider, row in _read(db, place, LAUNCHES, _LAUNCH)
    ]
    return tuple(sorted(found, key=attrgetter("order")))


def read_prices(db: duckdb.DuckDBPyConnection, place: Place) -> tuple[Price, ...]:
    """All prices, each once, in order of time; kinds that a newer Outlast wrote are left out."""
    kinds: dict[str, PriceKind] = {kind: kind for kind in get_args(PriceKind)}
    found = [
        Price(Pool(provider, *row[:3]), row[4] / 1e6, row[5], kinds[row[3]])
        for provider, row in _read(db, place, PRICES, _PRICE)
        if row[3] in kinds
    ]
    return tuple(sorted(found, key=attrgetter("order")))


def _names(pool: Pool) -> tuple[str, str, str]:
    return (pool.region, pool.zone, pool.instance_type)


def _write(
    db: duckdb.DuckDBPyConnection,
    place: Place,
    table: str,
    columns: Sequence[str],
    rows: Iterable[tuple[Pool, float, tuple[Any, ...]]],
) -> int:
    parts: dict[Partition, set[tuple[Any, ...]]] = defaultdict(set)
    for pool, at, row in rows:
        parts[Partition(pool.provider, month_of(at))].add(row)
    there = partitions(place, table) if parts else {}
    added = 0
    for partition, wanted in sorted(parts.items()):
        fresh = sorted(wanted - set(_rows(db, place, there.get(partition, []), columns)))
        if not fresh:
            continue
        with registered(db, fresh=_arrays(columns, fresh)):
            copied(db, place, partition.folder(table), _SELECTS[table])
        added += len(fresh)
    return added


def _arrays(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Rows as columns, of text and of whole numbers."""
    named = zip(columns, zip(*rows, strict=True), strict=True)
    return {name: np.array(values, dtype=_KINDS.get(name, np.int64)) for name, values in named}


def _read(
    db: duckdb.DuckDBPyConnection, place: Place, table: str, columns: Sequence[str]
) -> list[tuple[str, tuple[Any, ...]]]:
    return [
        (partition.provider, row)
        for partition, files in partitions(place, table).items()
        for row in _rows(db, place, files, columns)
    ]


def _rows(
    db: duckdb.DuckDBPyConnection, place: Place, files: Sequence[str], columns: Sequence[str]
) -> list[tuple[Any, ...]]:
    if not files:
        return []
    names = ", ".join('epoch_us("at")' if name == "at" else name for name in columns)
    with reading(place.path(files[0])):
        return db.execute(f"SELECT DISTINCT {names} FROM {scan(place, files)}").fetchall()  # noqa: S608 - quoted
