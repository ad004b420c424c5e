"""The AWS Spot Advisor's public file: a band of reclaimed capacity over the trailing month, by region.

What the percentage is of, AWS does not say; it is no hazard. Endpoint "advisor" replaces the address.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from email.utils import parsedate_to_datetime
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Access, Answer, Risk, Want
from outlast.providers.market.client import PublicClient, Reply
from outlast.providers.market.gathering import Gathering, gather, regions_for, types_for
from outlast.providers.market.reading import decode_object, inner, items, number, rows, word
from outlast.providers.parse import printable

ADDRESS = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
MAX_BODY = 16 * 1024 * 1024
_LABEL = re.compile(
    r"(?:<(?P<below>\d{1,3})|(?P<low>\d{1,3})-(?P<high>\d{1,3})|>(?P<above>\d{1,3}))%", re.ASCII
)

Band = tuple[str, float, float]


class AwsAdvisor:
    """Bands and savings of Linux spot instances, by region. Needs no credentials."""

    name = "aws-advisor"

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._client = PublicClient(access, max_body=MAX_BODY)
        self._address = access.endpoints.get("advisor", ADDRESS)

    async def ask(self, want: Want, deadline: float) -> Answer:
        """The bands of the wanted types and regions."""

        async def run(into: Gathering) -> None:
            types, regions = types_for("aws", want), regions_for("aws", want)
            if not types or regions is None:
                return
            reply = await self._client.get(self._address, deadline=deadline)
            at = _published(reply) or into.at
            into.risks += await asyncio.to_thread(_risks, reply.body, types, regions, at)

        return await gather(self.name, self._clock, deadline, run)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()


def _risks(body: bytes, types: Collection[str], regions: Collection[str], at: float) -> list[Risk]:
    return advisor_risks(decode_object(body, AwsAdvisor.name), types, regions, at, AwsAdvisor.name)


def advisor_risks(
    body: dict[str, Any], types: Collection[str], regions: Collection[str], at: float, source: str
) -> list[Risk]:
    """Bands and savings of the file. Empty ``types`` or ``regions``: all. Raises ProviderError."""
    bands = _bands(rows(body, "ranges", source))
    risks: list[Risk] = []
    for region, systems in items(body.get("spot_advisor")):
        if not word(region) or (regions and region not in regions):
            continue
        for kind, entry in items(inner(systems, "Linux")):
            if word(kind) and (not types or kind in types):
                risks += _entry((region, kind), entry, bands, at, source)
    if not risks and not isinstance(body.get("spot_advisor"), dict):
        raise ProviderError(f"{source}: the file has no 'spot_advisor'")
    return risks


def _entry(place: tuple[str, str], entry: Any, bands: dict[int, Band], at: float, source: str) -> list[Risk]:
    region, kind = place
    index, saved = number(inner(entry, "r")), number(inner(entry, "s"))
    found = []
    if index is not None and index == int(index) and int(index) in bands:
        text, low, high = bands[int(index)]
        found.append(Risk("aws", region, "", kind, "reclaimed-per-month", low, high, text, at, source))
    if saved is not None and -1000 <= saved <= 100:
        figure = float(saved)
        found.append(Risk("aws", region, "", kind, "savings", figure, figure, f"{saved}%", at, source))
    return found


def _bands(ranges: list[dict[str, Any]]) -> dict[int, Band]:
    """Index to (label, from, to). The label's own bounds count; the file's `max` differs from them."""
    found: dict[int, Band] = {}
    below = 0.0
    for row in ranges:
        index, most, label = number(row.get("index")), number(row.get("max")), row.get("label")
        if index is None or most is None or not isinstance(label, str) or not 0 <= most <= 100:
            continue
        low, high = _bounds(label, below, float(most))
        found[int(index)] = (printable(label, 20), low, high)
        below = high
    return found


def _bounds(label: str, below: float, most: float) -> tuple[float, float]:
    match = _LABEL.fullmatch(label.strip())
    if match is None:
        return min(below, most), most
    if match["below"]:
        return 0.0, float(match["below"])
    if match["above"]:
        return float(match["above"]), max(most, float(match["above"]))
    return float(match["low"]), float(match["high"])


def _published(reply: Reply) -> float | None:
    try:
        return parsedate_to_datetime(reply.headers.get("last-modified", "")).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
