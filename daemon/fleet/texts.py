"""Hostile text files, line by line or as JSON, within bounds of size; and the times written in them."""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outlast.daemon.fleet.faults import MOST_BYTES, ImportFaultError, fault, shown

MOST_JSON_BYTES = 1 << 30
MOST_FIELD = 4096
# UTC epoch seconds that a time must lie between: 1990 to 2100. What lies outside is another unit.
FIRST_TIME = 631_152_000.0
LAST_TIME = 4_102_444_800.0


def table(
    path: Path, columns: Mapping[str, str], optional: Mapping[str, str] | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """Rows of a CSV file with a header: line number, and the fields named by ``columns`` (name to heading).

    Those of ``optional`` are there if the file has them.

    Raises ImportFaultError for what is no such file, has not the headings, or is over the bounds.
    """
    _bounded(path, MOST_BYTES)
    csv.field_size_limit(MOST_FIELD)
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            places = _places(path, next(reader, []), columns, optional or {})
            width = max(places.values(), default=0)
            for row in reader:
                line = reader.line_num
                if not row:
                    continue
                if len(row) <= width:
                    raise fault(path, line, f"has {len(row)} fields, {width + 1} are needed; complete it.")
                yield line, {name: row[place].strip() for name, place in places.items()}
    except UnicodeDecodeError as exc:
        raise fault(path, f"after {line}", f"is not UTF-8 ({exc.reason}); convert the file.") from exc
    except csv.Error as exc:
        raise fault(path, f"after {line}", f"is no CSV ({exc}); quote the field as RFC 4180 says.") from exc
    except OSError as exc:
        raise ImportFaultError(f"{shown(str(path))}: cannot be read: {exc.strerror}.") from exc


def parsed(path: Path) -> Any:
    """The JSON value of a file. Raises ImportFaultError."""
    _bounded(path, MOST_JSON_BYTES)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as exc:
        line = getattr(exc, "lineno", 1)
        raise fault(path, line, f"is no JSON ({shown(str(exc))}); repair or leave it out.") from exc
    except OSError as exc:
        raise ImportFaultError(f"{shown(str(path))}: cannot be read: {exc.strerror}.") from exc


def instant(text: str, naive_utc: bool = False) -> float:
    """UTC epoch seconds of an ISO 8601 time or a number of seconds. Raises ValueError with what to do."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = _iso(text, naive_utc)
    if not (math.isfinite(seconds) and FIRST_TIME <= seconds <= LAST_TIME):
        raise ValueError(
            f"'{shown(text, 40)}' is no time between 1990 and 2100; give UTC seconds or ISO 8601"
        )
    return seconds


def _iso(text: str, naive_utc: bool) -> float:
    try:
        stamp = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"'{shown(text, 40)}' is no time; give ISO 8601 with an offset, or UTC seconds"
        ) from None
    if stamp.tzinfo is None:
        if not naive_utc:
            raise ValueError(f"'{shown(text, 40)}' has no offset; add one, or --utc if the clock was UTC")
        stamp = stamp.replace(tzinfo=dt.UTC)
    try:
        return stamp.timestamp()
    except (OverflowError, ValueError):
        raise ValueError(f"'{shown(text, 40)}' is no time between 1990 and 2100") from None


def _places(
    path: Path, header: list[str], columns: Mapping[str, str], optional: Mapping[str, str]
) -> dict[str, int]:
    names = [name.strip() for name in header]
    lacking = [heading for heading in columns.values() if heading not in names]
    if lacking:
        said = ", ".join(shown(name, 40) for name in names[:20]) or "nothing"
        raise fault(
            path,
            1,
            f"has no column {', '.join(lacking)}; it has {said}."
            " Name another with --map NAME=COLUMN, or give one value for all with --set NAME=VALUE.",
        )
    there = {name: heading for name, heading in optional.items() if heading in names}
    return {name: names.index(heading) for name, heading in {**there, **columns}.items()}


def _bounded(path: Path, most: int) -> None:
    try:
        size = path.stat().st_size
    except OSError as exc:
        raise ImportFaultError(f"{shown(str(path))}: cannot be read: {exc.strerror}.") from exc
    if not path.is_file():
        raise ImportFaultError(f"{shown(str(path))}: is no file; name a file.")
    if size > most:
        raise ImportFaultError(f"{shown(str(path))}: has {size} bytes, over {most}; split it.")
