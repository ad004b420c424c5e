"""Azure's public price list: spot and on-demand prices of Linux machines, by region. Needs no credentials.

Endpoint "azure-retail" replaces the address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market import catalogue
from outlast.providers.market.base import Access, Answer, Quote, QuoteKind, Want
from outlast.providers.market.client import PublicClient, same_origin
from outlast.providers.market.gathering import Gathering, each, gather, regions_for, types_for
from outlast.providers.market.reading import decode_object, micro_usd, number, rows, when, word

ADDRESS = "https://prices.azure.com/api/retail/prices"
PAGES = 200
AT_ONCE = 2
TYPES_A_QUESTION = 10
# What marks a row as another product: Windows, and the older kind of spot that is being withdrawn.
_OTHER = re.compile(r"windows|low priority|cloud ?services|dedicated host", re.IGNORECASE)


class AzurePrices:
    """What the list says now, paged by its own NextPageLink."""

    name = "azure-prices"

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._client = PublicClient(access)
        self._address = access.endpoints.get("azure-retail", ADDRESS)

    async def ask(self, want: Want, deadline: float) -> Answer:
        """Spot and on-demand prices of the wanted types and regions."""

        async def run(into: Gathering) -> None:
            types, regions = types_for("azure", want), regions_for("azure", want)
            if types and regions is not None:
                asked = [types[i : i + TYPES_A_QUESTION] for i in range(0, len(types), TYPES_A_QUESTION)]

                async def one(some: tuple[str, ...]) -> None:
                    await self._pages(question(some, regions), deadline, into)

                await each(asked, AT_ONCE, into, one)

        return await gather(self.name, self._clock, deadline, run)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    async def _pages(self, asked: str, deadline: float, into: Gathering) -> None:
        url, query = self._address, {"$filter": asked}
        seen = set()
        for _ in range(PAGES):
            reply = await self._client.get(url, deadline=deadline, query=query)
            body = decode_object(reply.body, self.name)
            into.quotes += retail_prices(rows(body, "Items", self.name), into.at, self.name)
            link = body.get("NextPageLink")
            if not link:
                return
            if not isinstance(link, str) or not same_origin(link, self._address) or link in seen:
                raise ProviderError(
                    "the list's next page lies elsewhere or was read before; it is not asked for"
                )
            seen.add(link)
            url, query = link, {}
        raise ProviderError(f"more than {PAGES} pages; name types and regions")


def question(types: Iterable[str], regions: Iterable[str]) -> str:
    """The list's filter. ``types`` and ``regions`` are checked names: no quote can be in them."""
    parts = ["serviceName eq 'Virtual Machines'", "priceType eq 'Consumption'"]
    for field, names in (("armSkuName", types), ("armRegionName", regions)):
        if terms := [f"{field} eq '{name}'" for name in names if word(name)]:
            parts.append(f"({' or '.join(terms)})")
    return " and ".join(parts)


def retail_prices(found: Iterable[dict[str, Any]], now: float, source: str) -> Iterator[Quote]:
    """Quotes of `Items`. A row counts from its effectiveStartDate, or from ``now`` where it has none."""
    for row in found:
        kind, region = word(row.get("armSkuName")), word(row.get("armRegionName"))
        price = micro_usd(row.get("retailPrice"))
        if not kind or not region or price is None or not _ordinary(row):
            continue
        market: QuoteKind = "spot" if "Spot" in str(row.get("meterName", "")) else "on_demand"
        at = when(row.get("effectiveStartDate"))
        at = now if at is None else min(at, now)
        yield Quote("azure", region, "", catalogue.spelled(kind), market, price, at, source)


def _ordinary(row: dict[str, Any]) -> bool:
    """A price in dollars, by the hour, of a whole Linux machine, from the first unit on."""
    names = " ".join(str(row.get(key, "")) for key in ("productName", "meterName", "skuName"))
    return (
        not _OTHER.search(names)
        and row.get("currencyCode", "USD") == "USD"
        and row.get("unitOfMeasure", "1 Hour") == "1 Hour"
        and row.get("type", "Consumption") == "Consumption"
        and row.get("isPrimaryMeterRegion", True) is True
        and not number(row.get("tierMinimumUnits", 0))
    )
