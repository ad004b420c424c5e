"""Reading histories from wherever they lie: one node's file, or segments of many, merged by id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from outlast.daemon.history.counting import merge
from outlast.daemon.history.reading import UnreadableError, read_rows
from outlast.daemon.history.rows import PriceRow, Rows
from outlast.daemon.history.segments import read_folder
from outlast.daemon.rates.columns import columns_of
from outlast.daemon.rates.table import Launch, Observed, Price, PriceKind
from outlast.daemon.rates.tabulate import tabulate


def observe(sources: Sequence[str], now: float) -> Observed:
    """All that ``sources`` hold as of UTC ``now``, in whatever order and however often they are named.

    Each is a history file or a folder of segments. A torn segment is read as far as it goes and noted.
    Raises UnreadableError for a source that cannot be read.
    """
    notes: list[str] = []
    rows = merge(*(_read(Path(source), notes) for source in sources))
    return Observed(
        table=tabulate(columns_of(rows, now), now),
        launches=tuple(Launch(row.pool, row.at, row.asked, row.got) for row in rows.launches),
        prices=_prices(rows.prices),
        sources=tuple(sources),
        notes=tuple(notes),
    )


def _read(source: Path, notes: list[str]) -> Rows:
    if not source.is_dir():
        return read_rows(source)
    if not any(source.rglob("*.jsonl.gz")):
        raise UnreadableError(
            f"{source} holds no segments (*.jsonl.gz). Name a history file or the folder that receives them."
        )
    found = read_folder(source)
    notes.extend(found.notes)
    return found.rows


def _prices(rows: Sequence[PriceRow]) -> tuple[Price, ...]:
    """Kinds of price that a newer Outlast may have written are left out."""
    kinds: dict[str, PriceKind] = {kind: kind for kind in get_args(PriceKind)}
    return tuple(Price(row.pool, row.at, row.micro_usd, kinds[row.kind]) for row in rows if row.kind in kinds)
