"""Reading AWS's history of spot prices, whether it came from boto3 or from a saved file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from outlast.providers.market.base import Quote
from outlast.providers.market.reading import micro_usd, when, word

PRODUCTS = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+){1,3}-\d{1,2}", re.ASCII)


def zone_ids(page: Mapping[str, Any]) -> dict[str, str]:
    """Zone name to zone id, of DescribeAvailabilityZones."""
    found = {}
    listed = page.get("AvailabilityZones")
    for row in listed if isinstance(listed, list) else ():
        if not isinstance(row, Mapping):
            continue
        name, zone_id = word(row.get("ZoneName")), word(row.get("ZoneId"))
        if name and zone_id:
            found[name] = zone_id
    return found


def spot_prices(
    history: Iterable[Any], region: str, zones: Mapping[str, str], source: str
) -> tuple[list[Quote], list[str]]:
    """Quotes of a SpotPriceHistory, and the zone names of which no id is known.

    Where ``region`` is empty, it is read off the zone's name.
    """
    quotes: list[Quote] = []
    unknown: dict[str, None] = {}
    for row in history:
        if not isinstance(row, Mapping) or row.get("ProductDescription", PRODUCTS[0]) not in PRODUCTS:
            continue
        zone, kind = word(row.get("AvailabilityZone")), word(row.get("InstanceType"))
        price, at = micro_usd(row.get("SpotPrice")), _time(row.get("Timestamp"))
        if not kind or price is None or at is None:
            continue
        zone_id = word(row.get("AvailabilityZoneId")) or zones.get(zone or "", "")
        place = region or _region(zone)
        if not zone_id or not place:
            unknown[zone or "a zone without a name"] = None
            continue
        quotes.append(Quote("aws", place, zone_id, kind, "spot", price, at, source))
    return quotes, list(unknown)


def _region(zone: str | None) -> str:
    """The region that a zone's name begins with: us-east-1a and us-east-1-bos-1a are of us-east-1."""
    found = _REGION.match(zone or "")
    return found[0] if found else ""


def _time(value: Any) -> float | None:
    return value.timestamp() if isinstance(value, datetime) else when(value)
