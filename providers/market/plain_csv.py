"""A CSV of prices: ``provider,region,zone,instance_type,kind,usd_per_hour,at``, columns in any order.

``zone`` may be empty; ``kind`` is spot, min_bid or on_demand; ``at`` is an ISO 8601 time or UTC epoch
seconds, and where it is empty or the column is missing, the time at which the file was written.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import get_args

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Answer, Quote, QuoteKind
from outlast.providers.market.reading import micro_usd, number, seconds_of, when, word

NEEDED = ("provider", "region", "instance_type", "kind", "usd_per_hour")
COLUMNS = ("provider", "region", "zone", "instance_type", "kind", "usd_per_hour", "at")
_KINDS: dict[str, QuoteKind] = {kind: kind for kind in get_args(QuoteKind)}


def read(content: bytes, at: float, source: str) -> Answer:
    """The prices of a file. Raises ProviderError with the first line that is wrong."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ProviderError(
            "it is neither JSON nor a CSV file in UTF-8; take what `outlast prices --json` prints, a CSV of "
            "prices, or a source's own answer"
        ) from exc
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            raise ProviderError(
                f"it is no JSON, and as a CSV its first line lacks {', '.join(missing)}; it must name "
                f"{','.join(COLUMNS)}"
            )
        quotes = tuple(_quote(row, reader.line_num, at, source) for row in reader)
    except csv.Error as exc:
        # A line is counted once it has been read.
        raise ProviderError(f"line {reader.line_num + 1}: it is no CSV") from exc
    return Answer(source, at, quotes)


def write(quotes: Iterable[Quote]) -> str:
    """The same format, from ``quotes``; prices with six decimals, times as UTC epoch seconds."""
    out = io.StringIO(newline="")
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(COLUMNS)
    for q in quotes:
        usd = f"{q.micro_usd // 1_000_000}.{q.micro_usd % 1_000_000:06d}"
        lines.writerow((q.provider, q.region, q.zone, q.instance_type, q.kind, usd, f"{q.at:.3f}"))
    return out.getvalue()


def _quote(row: dict[str, str | None], line: int, now: float, source: str) -> Quote:
    names = [word(row.get(key)) for key in ("provider", "region", "instance_type")]
    zone = "" if not row.get("zone") else word(row.get("zone"))
    kind, price = _KINDS.get(row.get("kind") or ""), micro_usd(row.get("usd_per_hour"))
    at = _time(row.get("at"), now)
    provider, region, instance_type = names
    if provider is None or region is None or instance_type is None or zone is None:
        raise ProviderError(f"line {line}: provider, region, zone and instance_type must be plain names")
    if kind is None:
        raise ProviderError(f"line {line}: kind must be one of {', '.join(_KINDS)}")
    if price is None:
        raise ProviderError(f"line {line}: usd_per_hour must be dollars an hour above zero, such as 9.832")
    if at is None:
        raise ProviderError(f"line {line}: at must be a time such as 2025-07-01T00:00:00Z")
    return Quote(provider, region, zone, instance_type, kind, price, at, source)


def _time(text: str | None, now: float) -> float | None:
    if not text:
        return now
    return when(text) if number(text) is None else seconds_of(text)
