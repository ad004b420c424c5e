"""Spells from a CSV file of any origin. ``docs/fleet.md`` has the format."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from outlast.daemon.fleet.faults import Faults, shown
from outlast.daemon.fleet.flat import CAUSE_NUMBER, Gather, Imported
from outlast.daemon.fleet.places import pool_of
from outlast.daemon.fleet.texts import instant, table

NAMES = (
    "provider",
    "region",
    "zone",
    "instance_type",
    "node",
    "began",
    "ended",
    "cause",
    "hinted",
    "known",
)
# What stands for a column that a file lacks. A region is told by most zones' names.
_OPTIONAL = {"hinted": "0", "known": "1", "region": "", "zone": ""}

# Other people's words for how a stay ended.
_ALIASES = {
    "1": "interruption",
    "capacity": "interruption",
    "preempted": "interruption",
    "evicted": "interruption",
    "reclaimed": "interruption",
    "price": "outbid",
    "vanished": "silent-loss",
    "0": "user-stop",
    "user": "user-stop",
    "stopped": "user-stop",
    "done": "job-done",
    "cap": "max-life",
    "hardware": "host",
    "maintenance": "host",
    "": "running",
}
_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}


def read_spells(
    path: Path,
    mapping: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
    *,
    naive_utc: bool = False,
    max_life_h: float | None = None,
) -> Imported:
    """Spells of a CSV file with a header. ``mapping`` renames columns, ``constants`` stand for all lines.

    A spell taken by the provider that lived longer than ``max_life_h`` hours met its cap: cause "max-life".
    Raises ImportFaultError with every fault, up to a bound.
    """
    faults = Faults(path)
    gather = Gather()
    reader = _Line(naive_utc, max_life_h)
    mapping, fixed = mapping or {}, {**_OPTIONAL, **(constants or {})}
    own = {name: name for name in NAMES if name not in (constants or {})}
    needed = {name: mapping.get(name, name) for name in own if name in mapping or name not in _OPTIONAL}
    for line, fields in table(path, needed, own):
        try:
            reader.take({**fixed, **fields}, gather)
        except ValueError as exc:
            faults.add(line, f"{exc}.")
    faults.settle()
    return Imported(gather.flat())


def cause_of(word: str) -> str:
    """The cause that a word means. Raises ValueError."""
    word = word.lower()
    cause = _ALIASES.get(word, word)
    if cause not in CAUSE_NUMBER:
        known = ", ".join(sorted({*CAUSE_NUMBER, *_ALIASES} - {""}))
        raise ValueError(f"'{shown(word, 40)}' is no cause; use one of {known}")
    return cause


class _Line:
    def __init__(self, naive_utc: bool, max_life_h: float | None) -> None:
        self._naive_utc = naive_utc
        self._max_life_s = None if max_life_h is None else 3600 * max_life_h
        self._pool = lru_cache(maxsize=65536)(pool_of)

    def take(self, fields: dict[str, str], gather: Gather) -> None:
        """One line. Raises ValueError."""
        pool = self._pool(*(fields[name] for name in ("provider", "region", "zone", "instance_type")))
        began = instant(fields["began"], self._naive_utc)
        ended = instant(fields["ended"], self._naive_utc)
        if ended < began:
            raise ValueError("it ended before it began; exchange the two or correct one")
        cause = cause_of(fields["cause"])
        if self._max_life_s is not None and cause == "interruption" and ended - began > self._max_life_s:
            cause = "max-life"
        known, hinted = (_truth(name, fields[name]) for name in ("known", "hinted"))
        gather.add(pool, fields["node"], began, ended, cause, known=known, hinted=hinted)


def _truth(name: str, text: str) -> bool:
    value = _TRUTH.get(text.lower())
    if value is None:
        raise ValueError(f"{name} is '{shown(text, 40)}'; write 1 or 0")
    return value
