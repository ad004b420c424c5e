"""Azure Resource Graph: eviction bands, in percent an hour over the trailing 28 days, and 90 days of prices.

Needs a token (see azure_token). Endpoint "azure-manage" replaces the address.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market import catalogue
from outlast.providers.market.azure_token import AzureToken
from outlast.providers.market.base import Access, Answer, Quote, Risk, Want
from outlast.providers.market.client import PublicClient
from outlast.providers.market.gathering import Gathering, each, gather, regions_for, types_for
from outlast.providers.market.reading import decode_object, micro_usd, rows, when, word

ADDRESS = "https://management.azure.com"
PATH = "/providers/Microsoft.ResourceGraph/resources?api-version=2024-04-01"
PAGES = 100
# Band as published to percent an hour; the last is open, and a share cannot exceed 100.
BANDS = {
    "0-5": (0.0, 5.0),
    "5-10": (5.0, 10.0),
    "10-15": (10.0, 15.0),
    "15-20": (15.0, 20.0),
    "20+": (20.0, 100.0),
}
_EVICTIONS = (
    "spotresources | where type =~ 'microsoft.compute/skuspotevictionrate/location'{where}"
    " | project skuName = tostring(sku.name), location, evictionRate = tostring(properties.evictionRate)"
    " | order by skuName asc, location asc"
)
_PRICES = (
    "spotresources | where type =~ 'microsoft.compute/skuspotpricehistory/ostype/location'"
    " | where properties.osType =~ 'linux'{where}"
    " | project skuName = tostring(sku.name), location, spotPrices = properties.spotPrices"
    " | order by skuName asc, location asc"
)


class AzureGraph:
    """Eviction bands and the history of spot prices, by region."""

    name = "azure-evictions"

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._client = PublicClient(access)
        self._token = AzureToken(access)
        self._address = access.endpoints.get("azure-manage", ADDRESS).rstrip("/") + PATH

    async def ask(self, want: Want, deadline: float) -> Answer:
        """Bands of the wanted types and regions, and their prices of the last ``want.days``."""

        async def run(into: Gathering) -> None:
            types, regions = types_for("azure", want), regions_for("azure", want)
            if not types or regions is None:
                return
            headers = await self._token.headers(deadline)
            since = into.at - want.days * 86400

            async def one(query: str) -> None:
                async for found in self._pages(query.format(where=_where(types, regions)), headers, deadline):
                    into.risks += eviction_bands(found, into.at, self.name)
                    into.quotes += past_prices(found, since, self.name)

            await each((_EVICTIONS, _PRICES), 2, into, one)

        return await gather(self.name, self._clock, deadline, run)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()
        await self._token.close()

    async def _pages(
        self, query: str, headers: dict[str, str], deadline: float
    ) -> AsyncIterator[list[dict[str, Any]]]:
        token = ""
        for _ in range(PAGES):
            options = {"resultFormat": "objectArray", **({"$skipToken": token} if token else {})}
            told = {"query": query, "options": options}
            reply = await self._client.post(self._address, told, deadline=deadline, headers=headers)
            body = decode_object(reply.body, self.name)
            yield rows(body, "data", self.name)
            before, token = token, body.get("$skipToken") or ""
            if not token:
                return
            if token == before or not isinstance(token, str):
                raise ProviderError("the pages go in a circle")
        raise ProviderError(f"more than {PAGES} pages; name types and regions")


def eviction_bands(found: Iterable[dict[str, Any]], at: float, source: str) -> Iterator[Risk]:
    """The rows that have a known band."""
    for row in found:
        kind, region, band = word(row.get("skuName")), word(row.get("location")), row.get("evictionRate")
        if kind and region and isinstance(band, str) and band.strip() in BANDS:
            low, high = BANDS[band.strip()]
            place = ("azure", region, "", catalogue.spelled(kind))
            yield Risk(*place, "evicted-per-hour", low, high, band.strip(), at, source)


def past_prices(found: Iterable[dict[str, Any]], since: float, source: str) -> Iterator[Quote]:
    """The prices of `spotPrices` [{effectiveDate, priceUSD}] from ``since`` on, and the last one before."""
    for row in found:
        kind, region, prices = word(row.get("skuName")), word(row.get("location")), row.get("spotPrices")
        if not kind or not region or not isinstance(prices, list):
            continue
        pairs = [_price(entry) for entry in prices if isinstance(entry, dict)]
        known = sorted(pair for pair in pairs if pair is not None)
        first = max((at for at, _ in known if at <= since), default=since)
        for at, price in known:
            if at >= first:
                yield Quote("azure", region, "", catalogue.spelled(kind), "spot", price, at, source)


def _price(entry: dict[str, Any]) -> tuple[float, int] | None:
    at, price = when(entry.get("effectiveDate")), micro_usd(entry.get("priceUSD"))
    return None if at is None or price is None else (at, price)


def _where(types: Iterable[str], regions: Iterable[str]) -> str:
    """Conditions on checked names: no quote can be in them."""
    text = ""
    for field, names in (("sku.name", types), ("location", regions)):
        quoted = ", ".join(f"'{name.lower()}'" for name in names if word(name))
        text += f" | where {field} in~ ({quoted})" if quoted else ""
    return text
