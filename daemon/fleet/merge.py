"""Merging histories into one place: idempotent, in any order, by any number of mergers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np

from outlast.daemon.fleet.flat import Flat, Imported, join, newest, pick
from outlast.daemon.fleet.ledgers import (
    read_launches,
    read_losses,
    read_prices,
    write_launches,
    write_losses,
    write_prices,
)
from outlast.daemon.fleet.parquet import (
    Partition,
    connection,
    partitions,
    read_flat,
    split,
    write_spells,
)
from outlast.daemon.fleet.place import Place
from outlast.daemon.fleet.telling import Tell, nothing


def merge_parquet(place: Place, found: Imported, tell: Tell = nothing) -> int:
    """Add what is new to a fleet's Parquet, a file for each partition that changes. Returns the rows added.

    Files are never changed: a newer version of a spell is added beside the older. Two mergers at once may
    both add the same version, which counts once. Raises UnreadableError and PlaceError.
    """
    parts = split(newest(_rounded(found.spells)))
    there = partitions(place)
    added = 0
    with connection(place) as db:
        for done, (partition, flat) in enumerate(parts.items()):
            tell("merging", done, len(parts))
            added += merge_partition(db, place, partition, flat, there.get(partition, []))
        added += write_launches(db, place, found.launches)
        added += write_prices(db, place, found.prices)
        added += write_losses(db, place, found.losses)
    tell("merging", len(parts), len(parts))
    return added


def merge_partition(
    db: duckdb.DuckDBPyConnection, place: Place, partition: Partition, flat: Flat, files: Sequence[str]
) -> int:
    """Add those versions that are newer than what the partition's files have. Returns how many."""
    if files:
        flat = _newer(flat, newest(read_flat(db, place, partition, files, flat.id)))
    if len(flat):
        write_spells(db, place, partition, flat)
    return len(flat)


def copy_parquet(source: Place, target: Place, tell: Tell = nothing) -> int:
    """Merge one fleet's Parquet into another's, a partition at a time. Returns the rows added."""
    mine, theirs = partitions(source), partitions(target)
    added = 0
    with connection(source) as db:
        target.attach(db)
        for done, (partition, files) in enumerate(mine.items()):
            tell("merging", done, len(mine))
            flat = newest(read_flat(db, source, partition, files))
            added += merge_partition(db, target, partition, flat, theirs.get(partition, []))
        added += write_launches(db, target, read_launches(db, source))
        added += write_prices(db, target, read_prices(db, source))
        added += write_losses(db, target, read_losses(db, source))
    tell("merging", len(mine), len(mine))
    return added


def _newer(fresh: Flat, old: Flat) -> Flat:
    """The rows of ``fresh`` that are newer than, or not in, ``old``; neither has an id twice."""
    if not len(old):
        return fresh
    best = newest(join([old, fresh]))
    before = join([old, _empty(fresh)])
    order = np.argsort(before.id, kind="stable")
    where = order[np.minimum(np.searchsorted(before.id[order], best.id), len(before) - 1)]
    same = before.id[where] == best.id
    for name in ("pool", "node", "began", "ended", "cause", "known", "hinted"):
        same &= getattr(before.columns, name)[where] == getattr(best.columns, name)
    return pick(best, np.flatnonzero(~same))


def _empty(flat: Flat) -> Flat:
    return pick(flat, np.zeros(0, dtype=np.int64))


def _rounded(flat: Flat) -> Flat:
    """Times as files keep them, in whole microseconds, so that what is there already is known again."""
    c = flat.columns
    columns = replace(c, began=np.round(c.began * 1e6) / 1e6, ended=np.round(c.ended * 1e6) / 1e6)
    return replace(flat, columns=columns)
