"""One place for many histories: a SQLite file for up to a thousand nodes, or Parquet for any number."""

from __future__ import annotations

from pathlib import Path

from outlast.daemon.fleet.database import MergeError, merge_database, rows_of
from outlast.daemon.fleet.faults import shown
from outlast.daemon.fleet.flat import Imported, join
from outlast.daemon.fleet.load import Found, is_parquet, ledgers_of, rows_ledgers
from outlast.daemon.fleet.place import PlaceError, place_of
from outlast.daemon.fleet.sightings import joined, sightings_of
from outlast.daemon.fleet.telling import Tell, nothing
from outlast.daemon.history.merging import merge


def fill(into: str, found: Found, now: float, *, parquet: bool = False, tell: Tell = nothing) -> int:
    """Add to ``into`` what it lacks of ``found``. Returns how many rows were added or changed.

    A URL and a folder that holds Parquet already are filled with Parquet, others if ``parquet`` says so; what
    goes on then is kept as of UTC ``now``. Raises MergeError and UnreadableError with nothing half done: a
    merge that broke off is finished by running it again.
    """
    try:
        if parquet or is_parquet(into):
            return _fill_parquet(into, found, now, tell)
        if Path(into).is_dir():
            raise MergeError(
                f"{shown(into)} is a folder. Name a file, or fill the folder with Parquet: --parquet."
            )
        return _fill_file(Path(into), found, now, tell)
    except PlaceError as exc:
        raise MergeError(str(exc)) from exc


def _fill_parquet(into: str, found: Found, now: float, tell: Tell) -> int:
    from outlast.daemon.fleet.merge import copy_parquet, merge_parquet

    if not into or Path(into).is_file():
        raise MergeError(f"{shown(into)} is a file; Parquet goes into a folder. Name another place.")
    target = place_of(into)
    launches, prices = rows_ledgers(found.rows)
    losses = sightings_of(found.rows)
    whole = Imported(found.stays(now), tuple(launches), tuple(prices), losses=losses)
    added = merge_parquet(target, whole, tell)
    return added + sum(copy_parquet(place, target, tell) for place in found.places)


def _fill_file(into: Path, found: Found, now: float, tell: Tell) -> int:
    rows, spells = [found.rows], list(found.spells)
    for done, place in enumerate(found.places):
        from outlast.daemon.fleet.query import flat_of_place

        tell("reading", done, len(found.places))
        spells.append(joined(*flat_of_place(place), now))
        rows.append(rows_of(*ledgers_of(place)))
    tell("writing", 0, 1)
    return merge_database(into, merge(*rows), join(spells))
