"""Reading histories from wherever they lie, and one table of all of them, each spell once.

What reads Parquet is imported when there is some: without it nothing of the extra ``fleet`` is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import get_args

from outlast.daemon.fleet.database import read_imported
from outlast.daemon.fleet.faults import ImportFaultError, shown
from outlast.daemon.fleet.flat import Flat, flat_of, join, newest
from outlast.daemon.fleet.imports import read_spells
from outlast.daemon.fleet.place import Place, PlaceError, is_url, place_of
from outlast.daemon.fleet.sightings import sightings_of
from outlast.daemon.fleet.telling import Tell, nothing
from outlast.daemon.fleet.timing import timing_of
from outlast.daemon.history.merging import merge
from outlast.daemon.history.reading import UnreadableError, read_rows
from outlast.daemon.history.rows import Rows
from outlast.daemon.history.segments import read_folder
from outlast.daemon.rates.table import Launch, Observed, Price, PriceKind, Table
from outlast.daemon.rates.tabulate import tabulate


@dataclass
class Found:
    """What sources hold: rows of histories, spells of other origin, and fleets' Parquet, read when needed."""

    rows: Rows = field(default_factory=Rows)
    spells: list[Flat] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def flat(self, now: float) -> Flat:
        """All spells but those in Parquet, versions of one still among them."""
        return join([flat_of(self.rows, now), *self.spells])

    def stays(self, now: float) -> Flat:
        """The same without what peers saw, which ``sightings_of`` tells of the rows."""
        return join([flat_of(replace(self.rows, losses=()), now), *self.spells])


def observe(sources: Sequence[str], now: float, tell: Tell = nothing) -> Observed:
    """All that ``sources`` hold as of UTC ``now``, in whatever order and however often they are named.

    Each is a history file, a folder of segments, a CSV file of spells, or a folder or URL of Parquet. A
    segment that cannot be read is skipped, a torn one read as far as it goes, and the notes say so. Raises
    UnreadableError for a source that cannot be read at all.
    """
    found = read(sources)
    launches, prices = rows_ledgers(found.rows)
    table = _table(found, now, tell)
    for place in found.places:
        more = ledgers_of(place)
        launches += more[0]
        prices += more[1]
    return Observed(
        table=table,
        launches=tuple(sorted(set(launches), key=attrgetter("order"))),
        prices=tuple(sorted(set(prices), key=attrgetter("order"))),
        timing=timing_of(found.rows, now),
        sources=tuple(sources),
        notes=tuple(found.notes),
    )


def read(sources: Sequence[str]) -> Found:
    """What the sources hold. Raises UnreadableError."""
    found = Found()
    rows: list[Rows] = []
    for source in dict.fromkeys(sources):
        _reader(source)(source, found, rows)
    found.rows = merge(*rows)
    return found


def is_parquet(source: str) -> bool:
    """Whether a source is a folder or URL of a fleet's Parquet."""
    return is_url(source) or any(
        next((Path(source) / table).glob("provider=*/"), None)
        for table in ("spells", "launches", "prices", "losses")
    )


Reader = Callable[[str, Found, list[Rows]], None]


def _reader(source: str) -> Reader:
    if is_parquet(source):
        return _read_place
    path = Path(source)
    if path.is_dir():
        return _read_segments
    return _read_csv if path.suffix.lower() == ".csv" else _read_history


def _read_place(source: str, found: Found, _: list[Rows]) -> None:
    with _answering():
        place = place_of(source)
        names = place.names("")
    if not names:
        raise UnreadableError(f"{shown(source)} holds no Parquet. Fill it with 'outlast history merge'.")
    found.places.append(place)


def _read_segments(source: str, found: Found, rows: list[Rows]) -> None:
    folder = Path(source)
    if not any(folder.rglob("*.jsonl.gz")):
        raise UnreadableError(
            f"{source} holds no segments (*.jsonl.gz) and no Parquet. Name a history file, the folder that"
            " receives segments, or the one that 'outlast history merge' fills."
        )
    whole = read_folder(folder)
    found.notes.extend(whole.notes)
    rows.append(whole.rows)


def _read_csv(source: str, found: Found, _: list[Rows]) -> None:
    try:
        found.spells.append(read_spells(Path(source)).spells)
    except ImportFaultError as exc:
        raise UnreadableError(f"{exc}\nOther columns are read with 'outlast history import'.") from exc


def _read_history(source: str, found: Found, rows: list[Rows]) -> None:
    rows.append(read_rows(Path(source)))
    found.spells.append(read_imported(Path(source)))


def _table(found: Found, now: float, tell: Tell) -> Table:
    """Of one place a part at a time; what lies elsewhere is held in memory beside it."""
    if not found.places:
        return tabulate(newest(found.flat(now)).columns, now)
    from outlast.daemon.fleet.query import flat_of_place, table_of

    first, *others = found.places
    with _answering():
        more = [flat_of_place(place) for place in others]
        beside = join([found.stays(now), *(flat for flat, _ in more)])
        losses = sightings_of(found.rows) + tuple(loss for _, seen in more for loss in seen)
        return table_of(first, now, beside, tell, losses)


def ledgers_of(place: Place) -> tuple[tuple[Launch, ...], tuple[Price, ...]]:
    """The launches and prices of a fleet's Parquet. Raises UnreadableError."""
    from outlast.daemon.fleet.ledgers import read_launches, read_prices
    from outlast.daemon.fleet.parquet import connection

    with _answering(), connection(place) as db:
        return read_launches(db, place), read_prices(db, place)


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except PlaceError as exc:
        raise UnreadableError(str(exc)) from exc


def rows_ledgers(rows: Rows) -> tuple[list[Launch], list[Price]]:
    """A history's launches and prices. Kinds of price that a newer Outlast may have written are left out."""
    kinds: dict[str, PriceKind] = {kind: kind for kind in get_args(PriceKind)}
    launches = [Launch(row.pool, row.at, row.asked, row.got) for row in rows.launches]
    prices = [
        Price(row.pool, row.at, row.micro_usd, kinds[row.kind]) for row in rows.prices if row.kind in kinds
    ]
    return launches, prices
