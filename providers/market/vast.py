"""Vast.ai: what an interruptible rental of each machine costs at least, and what an uninterrupted one costs.

A bid is placed on one machine, so the machine is the zone (``m<machine_id>``) and its country the region.
VAST_API_KEY is sent where it is set; offers have so far been readable without. Vast.ai throttles below two
seconds between requests and does not say for how long. Endpoint "vast" replaces the address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Access, Answer, Quote, QuoteKind, Want
from outlast.providers.market.client import PublicClient
from outlast.providers.market.gathering import Gathering, gather, regions_for, types_for
from outlast.providers.market.reading import decode_object, joined, micro_usd, number, rows

ADDRESS = "https://console.vast.ai/api/v0/bundles/"
APART_S = 2.1
MOST_OFFERS = 2000
# GPUs sold under one name with several sizes of memory: the instance type says which, in GB.
_SEVERAL = re.compile(r"A100_(SXM4|PCIE)|Tesla_V100", re.ASCII)
_SIZES_GB = (16, 32, 40, 80)
_COUNTRY = re.compile(r"(?:.*,)?\s*([A-Z]{2})\s*", re.ASCII)
_KINDS: tuple[tuple[str, str, QuoteKind], ...] = (
    ("bid", "min_bid", "min_bid"),
    ("on-demand", "dph_base", "on_demand"),
)


class Vast:
    """Lowest bids and on-demand prices of verified machines, one pool a machine."""

    name = "vast"

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._environ = access.environ
        self._client = PublicClient(access, apart_s=APART_S, pause_s=APART_S)
        self._address = access.endpoints.get("vast", ADDRESS)

    async def ask(self, want: Want, deadline: float) -> Answer:
        """The offers of the wanted types in the wanted countries now."""

        async def run(into: Gathering) -> None:
            types, regions = types_for("vast", want), regions_for("vast", want)
            if types and regions is not None:
                for asked, field, market in _KINDS:  # one after the other: the pace allows no more
                    found = await self._offers(asked, types, deadline)
                    quotes = offer_prices(found, field, market, into.at, self.name)
                    into.quotes += [q for q in quotes if _wanted(q, types, regions)]

        return await gather(self.name, self._clock, deadline, run)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    async def _offers(self, asked: str, types: Iterable[str], deadline: float) -> list[dict[str, Any]]:
        names = sorted({_sold_as(kind.partition("x")[2]) for kind in types})
        told = {
            "type": asked,
            "rentable": {"eq": True},
            "verified": {"eq": True},
            "gpu_name": {"in": names},
            "order": [["dph_base", "asc"]],
            "limit": MOST_OFFERS,
        }
        key = self._environ.get("VAST_API_KEY", "").strip()
        if key and not (key.isascii() and key.isprintable()):
            raise ProviderError("VAST_API_KEY is no key: it has characters that no key has")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        reply = await self._client.post(self._address, told, deadline=deadline, headers=headers)
        return rows(decode_object(reply.body, self.name), "offers", self.name)


def offer_prices(
    found: Iterable[dict[str, Any]], field: str, market: QuoteKind, at: float, source: str
) -> Iterator[Quote]:
    """Quotes of `offers`, for all GPUs of the offer together."""
    for row in found:
        kind, country = offer_type(row), _COUNTRY.fullmatch(str(row.get("geolocation") or ""))
        machine, price = row.get("machine_id"), micro_usd(row.get(field))
        if not kind or not country or price is None or isinstance(machine, bool):
            continue
        if isinstance(machine, int) and 0 <= machine < 10**12:
            yield Quote("vast", country[1], f"m{machine}", kind, market, price, at, source)


def offer_type(row: dict[str, Any]) -> str | None:
    """``<n>x<name of the GPU>``, with its memory where one name has several sizes; None if unreadable."""
    name, n, ram_mb = joined(row.get("gpu_name")), number(row.get("num_gpus")), number(row.get("gpu_ram"))
    if not name or n is None or n != int(n) or not 1 <= n <= 128:
        return None
    if _SEVERAL.fullmatch(name):
        if ram_mb is None or not 1000 <= ram_mb <= 200_000:
            return None
        size = min(_SIZES_GB, key=lambda gb: abs(gb - float(ram_mb) / 1024))
        name = f"{name}_{size}GB"
    return f"{int(n)}x{name}"


def _sold_as(name: str) -> str:
    return re.sub(r"_\d+GB$", "", name).replace("_", " ")


def _wanted(quote: Quote, types: Iterable[str], regions: tuple[str, ...]) -> bool:
    return quote.instance_type in types and (not regions or quote.region in regions)
