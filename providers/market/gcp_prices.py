"""Google's list prices: cores, memory and GPUs of a machine type summed up, spot and on-demand, by region.

Only types whose parts the list names without doubt are here; bundled local SSDs are billed beside and are
not in the sum. Needs credentials or GOOGLE_API_KEY. Endpoint "gcp-billing" replaces the address.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Access, Answer, Quote, QuoteKind, Want
from outlast.providers.market.client import PublicClient, Reply
from outlast.providers.market.gathering import Gathering, gather, regions_for, types_for
from outlast.providers.market.gcp_token import GcpToken
from outlast.providers.market.reading import decode_object, inner, micro_usd, money, number, rows, word

ADDRESS = "https://cloudbilling.googleapis.com"
PATH = "/v1/services/6F81-5844-456A/skus"
PAGES = 100
NO_SSD = "prices are of cores, memory and GPUs; local SSDs of A2 Ultra and A3 machines are billed beside"

# Machine type to cores, GB of memory, GPUs, and the list's names of the family and of the GPU.
Machine = tuple[int, int, int, str, str]
_A2, _ULTRA, _L4 = "Nvidia Tesla A100", "Nvidia Tesla A100 80GB", "Nvidia L4"
MACHINES: dict[str, Machine] = {
    **{f"a2-highgpu-{n}g": (12 * n, 85 * n, n, "A2", _A2) for n in (1, 2, 4, 8)},
    "a2-megagpu-16g": (96, 1360, 16, "A2", _A2),
    **{f"a2-ultragpu-{n}g": (12 * n, 170 * n, n, "A2", _ULTRA) for n in (1, 2, 4)},
    "a2-ultragpu-8g": (96, 1360, 8, "A2", _ULTRA),
    **{f"a3-highgpu-{n}g": (26 * n, 234 * n, n, "A3", "Nvidia H100 80GB") for n in (1, 2, 4, 8)},
    **{f"g2-standard-{cores}": (cores, 4 * cores, 1, "G2", _L4) for cores in (4, 8, 12, 16, 32)},
    "g2-standard-24": (24, 96, 2, "G2", _L4),
    "g2-standard-48": (48, 192, 4, "G2", _L4),
    "g2-standard-96": (96, 384, 8, "G2", _L4),
}
_SKU = re.compile(
    r"(?:Spot Preemptible )?(?P<name>[A-Za-z0-9 ]{1,40}?) (?:(?:Instance )?(?P<part>Core|Ram)|(?P<gpu>GPU))"
    r"(?: attached to Spot Preemptible VMs)? running in .{1,60}",
    re.ASCII,
)
# No set: what an answer holds in their place may have no hash.
_UNITS = ("h", "GiBy.h")
_USAGE: dict[str, QuoteKind] = {"OnDemand": "on_demand", "Preemptible": "spot"}
# (part, name, region, market): dollars an hour of one core, GB or GPU.
Parts = dict[tuple[str, str, str, QuoteKind], Decimal]


class GcpPrices:
    """List prices by region; Google's spot prices change at most once a day."""

    name = "gcp-prices"

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._environ = access.environ
        self._client = PublicClient(access)
        self._token = GcpToken(access)
        self._address = access.endpoints.get("gcp-billing", ADDRESS).rstrip("/") + PATH

    async def ask(self, want: Want, deadline: float) -> Answer:
        """What the wanted machine types cost in the wanted regions."""

        async def run(into: Gathering) -> None:
            types, regions = types_for("gcp", want), regions_for("gcp", want)
            if types and regions is not None:
                await self._gather(types, regions, deadline, into)

        return await gather(self.name, self._clock, deadline, run)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    async def _gather(
        self, types: tuple[str, ...], regions: tuple[str, ...], deadline: float, into: Gathering
    ) -> None:
        if unknown := [kind for kind in types if kind not in MACHINES]:
            into.say(f"no list price is put together for {', '.join(unknown[:8])}")
        if len(unknown) == len(types):
            return
        into.say(NO_SSD)
        headers = await self._headers(deadline)
        parts: Parts = {}
        token = ""
        for _ in range(PAGES):
            query = {"pageSize": "5000", "currencyCode": "USD", **({"pageToken": token} if token else {})}
            reply = await self._client.get(self._address, deadline=deadline, query=query, headers=headers)
            found, before = await asyncio.to_thread(_page, reply), token
            parts |= found[0]
            token = found[1]
            if not token:
                into.quotes += machine_prices(parts, types, regions, into.at, self.name)
                return
            if token == before:
                raise ProviderError("the pages go in a circle")
        raise ProviderError(f"more than {PAGES} pages")

    async def _headers(self, deadline: float) -> dict[str, str]:
        key = self._environ.get("GOOGLE_API_KEY", "").strip()
        if key and key.isascii() and key.isprintable():
            return {"X-Goog-Api-Key": key}
        return await self._token.headers(deadline)


def _page(reply: Reply) -> tuple[Parts, str]:
    body = decode_object(reply.body, GcpPrices.name)
    token = body.get("nextPageToken")
    return part_prices(rows(body, "skus", GcpPrices.name)), token if isinstance(token, str) else ""


def part_prices(skus: Iterable[dict[str, Any]]) -> Parts:
    """What one core, GB and GPU of each family costs, of the SKUs of plain spot and on-demand use."""
    parts: Parts = {}
    for sku in skus:
        market = _USAGE.get(str(inner(sku, "category", "usageType")))
        match = _SKU.fullmatch(str(sku.get("description", "")))
        price = _unit_price(sku)
        if market is None or match is None or price is None:
            continue
        regions = sku.get("serviceRegions")
        for region in regions if isinstance(regions, list) else ():
            if name := word(region):
                parts[match["part"] or "GPU", match["name"], name, market] = price
    return parts


def machine_prices(
    parts: Parts, types: Iterable[str], regions: Collection[str], at: float, source: str
) -> Iterator[Quote]:
    """Quotes of the machine types all of whose parts have a price. Empty ``regions``: all."""
    places: dict[tuple[str, QuoteKind], None] = {}
    for _part, _name, region, market in parts:
        if not regions or region in regions:
            places[region, market] = None
    for kind in types:
        for region, market in places if kind in MACHINES else ():
            price = _sum(MACHINES[kind], parts, region, market)
            if price is not None:
                yield Quote("gcp", region, "", kind, market, price, at, source)


def _sum(machine: Machine, parts: Parts, region: str, market: QuoteKind) -> int | None:
    cores, memory, gpus, family, gpu = machine
    wanted = ((cores, "Core", family), (memory, "Ram", family), (gpus, "GPU", gpu))
    prices = [(n, parts.get((part, name, region, market))) for n, part, name in wanted]
    if any(price is None for _n, price in prices):
        return None
    return micro_usd(sum((n * price for n, price in prices if price is not None), Decimal(0)))


def _unit_price(sku: dict[str, Any]) -> Decimal | None:
    """Dollars an hour of the first tier in force, where the unit is an hour or a GB-hour."""
    info = sku.get("pricingInfo")
    expression = inner(info[0], "pricingExpression") if isinstance(info, list) and info else None
    tiers = inner(expression, "tieredRates")
    if inner(expression, "usageUnit") not in _UNITS or not isinstance(tiers, list) or not tiers:
        return None
    if number(inner(tiers[0], "startUsageAmount") or 0) != 0:
        return None
    price = money(inner(tiers[0], "unitPrice"))
    return price if price is not None and price > 0 else None
