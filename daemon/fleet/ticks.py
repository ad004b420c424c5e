"""Prices written once a tick, kept where they change. See docs/fleet.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from outlast.daemon.fleet.faults import Faults, fault, shown
from outlast.daemon.fleet.texts import LAST_TIME, parsed
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Price, PriceKind

MOST_USD_H = 100_000.0


def read_ticks(
    path: Path,
    pools: Mapping[str, Pool],
    clock: Sequence[float] | Mapping[str, Sequence[float]],
    kind: PriceKind = "spot",
) -> tuple[Price, ...]:
    """Prices from JSON ``{name: [dollars an hour, …]}``, the named pools only, on change.

    ``clock`` has the UTC seconds of the ticks, of all pools or of each by its name; tick ``i`` is at
    ``clock[i]``, and ticks beyond its end are left out. Raises ImportFaultError.
    """
    body = parsed(path)
    if not isinstance(body, dict):
        raise fault(path, 1, 'is no JSON object of the form {"pool": [dollars, …]}; write it so.')
    faults = Faults(path)
    prices: list[Price] = []
    for name, pool in sorted(pools.items()):
        values = body.get(name)
        if not isinstance(values, list):
            faults.add(1, f"has no list for '{shown(name)}'; it has {_names(body)}.")
            continue
        ticks = clock[name] if isinstance(clock, Mapping) else clock
        try:
            prices.extend(_changes(pool, values, ticks, kind))
        except ValueError as exc:
            faults.add(1, f"{shown(name)}{exc}.")
    faults.settle()
    return tuple(prices)


def even_clock(begins: float, gap_s: float, path: Path) -> Sequence[float]:
    """The instants of as many ticks as the file's longest list has. Raises ImportFaultError."""
    body = parsed(path)
    lists = [value for value in body.values() if isinstance(value, list)] if isinstance(body, dict) else []
    count = max(map(len, lists), default=0)
    if gap_s <= 0 or begins + gap_s * count > LAST_TIME:
        raise fault(path, 1, "its last tick would be after 2100; correct --begins or --gap.")
    return [begins + gap_s * number for number in range(count)]


def _changes(pool: Pool, values: list[object], clock: Sequence[float], kind: PriceKind) -> list[Price]:
    found: list[Price] = []
    last: int | None = None
    for number, (value, at) in enumerate(zip(values, clock, strict=False)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not _plausible(value):
            raise ValueError(f"[{number}] is no price from 0 to {MOST_USD_H:g} dollars an hour; correct it")
        micro = round(value * 1e6)
        if micro != last:
            found.append(Price(pool, at, micro, kind))
            last = micro
    return found


def _plausible(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= MOST_USD_H


def _names(body: Mapping[str, object]) -> str:
    return ", ".join(shown(name, 40) for name in list(body)[:10]) or "nothing"
