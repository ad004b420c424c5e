"""Reading what price sources send: every function takes hostile input and gives None for what is no good."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from outlast.providers import parse
from outlast.providers.base import ProviderError

# No instance-hour costs this much: what is above it is not a price.
MOST_USD = Decimal(100_000)
YEAR_10000 = 253_402_300_800
_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,18})?([eE][+-]?\d{1,2})?", re.ASCII)
_WORD = re.compile(r"[\w./:+@()-]{1,128}", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d{1,9})?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def decode(body: bytes | str, what: str) -> Any:
    """The JSON in ``body``, fractions as Decimal so that money stays exact. Raises ProviderError."""
    try:
        return json.loads(body, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError, ArithmeticError) as exc:
        raise ProviderError(f"{what}: the answer is not JSON ({parse.printable(body[:40])})") from exc


def decode_object(body: bytes | str, what: str) -> dict[str, Any]:
    """The JSON object in ``body``. Raises ProviderError."""
    value = decode(body, what)
    if not isinstance(value, dict):
        raise ProviderError(f"{what}: the answer is not a JSON object")
    return value


def rows(body: Any, key: str, what: str) -> list[dict[str, Any]]:
    """The objects of the list at ``key``; what in it is no object is left out. Raises ProviderError."""
    found = body.get(key) if isinstance(body, dict) else None
    if not isinstance(found, list):
        raise ProviderError(f"{what}: the answer has no list {key!r}")
    return [row for row in found if isinstance(row, dict)]


def inner(body: Any, *keys: str) -> Any:
    """The value under nested object keys; None where there is none."""
    for key in keys:
        body = body.get(key) if isinstance(body, dict) else None
    return body


def items(body: Any) -> Iterator[tuple[str, Any]]:
    """The pairs of an object, none of anything else."""
    if isinstance(body, dict):
        yield from body.items()


def word(value: Any) -> str | None:
    """A name of a region, zone or type: one word of ordinary characters."""
    text = value.strip() if isinstance(value, str) else ""
    return text if _WORD.fullmatch(text) else None


def joined(value: Any) -> str | None:
    """A name that may have spaces, with ``_`` for each."""
    return word("_".join(value.split(" "))) if isinstance(value, str) else None


def number(value: Any) -> Decimal | None:
    """A finite decimal number, given as a number or as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | Decimal):
        value = str(value) if not isinstance(value, int) or abs(value) < 10**15 else ""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value.strip()):
        return None
    return Decimal(value.strip())


def micro_usd(value: Any) -> int | None:
    """Dollars, as a number or a decimal string, in whole millionths; None for what is not a price.

    Exact to the millionth, half to even beyond it; zero, negative and absurd amounts are not prices.
    """
    dollars = number(value)
    if dollars is None or not 0 < dollars <= MOST_USD:
        return None
    return int((dollars * 1_000_000).to_integral_value(ROUND_HALF_EVEN)) or None


def seconds_of(value: Any) -> float | None:
    """UTC epoch seconds given as a number or as text; None for what lies before 1970 or after year 9999."""
    found = number(value)
    return float(found) if found is not None and 0 <= found < YEAR_10000 else None


def money(value: Any) -> Decimal | None:
    """Dollars of a Google ``Money`` {currencyCode, units, nanos}; None for another currency or none."""
    if not isinstance(value, dict) or value.get("currencyCode", "USD") != "USD":
        return None
    units, nanos = number(value.get("units", "0")), number(value.get("nanos", 0))
    return None if units is None or nanos is None else units + nanos / 10**9


def when(value: Any) -> float | None:
    """UTC epoch seconds of an ISO 8601 time; one without a zone is read as UTC."""
    found = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        return None
    day, clock, zone = found.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock}{'' if zone in {None, 'Z'} else zone}")
        seconds = (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < YEAR_10000 else None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no number")
