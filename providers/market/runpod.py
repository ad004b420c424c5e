"""RunPod: the lowest bid, the on-demand price and the stock of each GPU type in each data centre.

Prices there are for one GPU; a quote is for the whole pod. RUNPOD_API_KEY is sent where it is set; the
price list has so far been readable without. Endpoint "runpod" replaces the address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Access, Answer, Quote, QuoteKind, Risk, Want
from outlast.providers.market.client import PublicClient
from outlast.providers.market.gathering import Gathering, each, gather, regions_for, types_for
from outlast.providers.market.reading import decode_object, inner, joined, micro_usd, number, rows, word
from outlast.providers.parse import printable

ADDRESS = "https://api.runpod.io/graphql"
APART_S = 0.1
AT_ONCE = 4
LEVELS = {"High": 3.0, "Medium": 2.0, "Low": 1.0}
CENTRES = "query Centres { dataCenters { id listed } }"
_LOWEST = (
    "n{n}: lowestPrice(input: {{gpuCount: {n}, dataCenterId: $centre, secureCloud: true}})"
    " {{ minimumBidPrice uninterruptablePrice stockStatus }}"
)
_FIELDS: tuple[tuple[str, QuoteKind], ...] = (
    ("minimumBidPrice", "min_bid"),
    ("uninterruptablePrice", "on_demand"),
)


class RunPod:
    """Lowest bids, on-demand prices and stock. The region is the data centre; there are no zones."""

    name = "runpod"

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._environ = access.environ
        self._client = PublicClient(access, apart_s=APART_S)
        self._address = access.endpoints.get("runpod", ADDRESS)

    async def ask(self, want: Want, deadline: float) -> Answer:
        """What the wanted pods cost in the wanted data centres now."""

        async def run(into: Gathering) -> None:
            types, regions = types_for("runpod", want), regions_for("runpod", want)
            if types and regions is not None:
                await self._gather(frozenset(types), regions, deadline, into)

        return await gather(self.name, self._clock, deadline, run)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    async def _gather(
        self, types: frozenset[str], regions: tuple[str, ...], deadline: float, into: Gathering
    ) -> None:
        query = prices_query(sorted({int(kind.partition("x")[0]) for kind in types}))

        async def one(centre: str) -> None:
            data = await self._query(query, {"centre": centre}, deadline)
            found = rows(data, "gpuTypes", self.name)
            into.quotes += [
                q for q in pod_prices(found, centre, into.at, self.name) if q.instance_type in types
            ]
            into.risks += [
                r for r in pod_stock(found, centre, into.at, self.name) if r.instance_type in types
            ]

        await each(regions or await self._centres(deadline), AT_ONCE, into, one)

    async def _centres(self, deadline: float) -> tuple[str, ...]:
        found = rows(await self._query(CENTRES, {}, deadline), "dataCenters", self.name)
        return tuple(name for row in found if row.get("listed") is True and (name := word(row.get("id"))))

    async def _query(self, query: str, variables: dict[str, str], deadline: float) -> Any:
        key = self._environ.get("RUNPOD_API_KEY", "").strip()
        usable = key.isascii() and key.isprintable()
        if key and not usable:
            raise ProviderError("RUNPOD_API_KEY is no key: it has characters that no key has")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        told = {"query": query, "variables": variables}
        reply = await self._client.post(self._address, told, deadline=deadline, headers=headers)
        body = decode_object(reply.body, self.name)
        errors = body.get("errors")
        if errors and not body.get("data"):
            said = inner(errors[0], "message") if isinstance(errors, list) else None
            text = said if isinstance(said, str) else "no reason given"
            text = text.replace(key, "[key]") if key else text  # before it is cut, lest half the key stay
            raise ProviderError(f"RunPod refuses the query: {printable(text, 100)}")
        return body.get("data")


def prices_query(counts: Iterable[int]) -> str:
    """The query for all GPU types in one data centre, for each number of GPUs."""
    lowest = " ".join(_LOWEST.format(n=n) for n in counts)
    return f"query Prices($centre: String) {{ gpuTypes {{ id maxGpuCount {lowest} }} }}"


def pod_prices(found: Iterable[dict[str, Any]], centre: str, at: float, source: str) -> Iterator[Quote]:
    """The quotes of `gpuTypes`: `n<GPUs>`, or `lowestPrice` of one GPU, times the number of GPUs."""
    for kind, n, lowest in _pods(found):
        for field, market in _FIELDS:
            each_gpu = number(lowest.get(field))
            price = None if each_gpu is None else micro_usd(each_gpu * Decimal(n))
            if price is not None:
                yield Quote("runpod", centre, "", kind, market, price, at, source)


def pod_stock(found: Iterable[dict[str, Any]], centre: str, at: float, source: str) -> Iterator[Risk]:
    """The stock of `gpuTypes`, where RunPod has a word for it."""
    for kind, _n, lowest in _pods(found):
        said = lowest.get("stockStatus")
        if isinstance(said, str) and said in LEVELS:
            yield Risk("runpod", centre, "", kind, "stock", LEVELS[said], LEVELS[said], said, at, source)


def _pods(found: Iterable[dict[str, Any]]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Instance type, GPUs and lowest price of each pod that could be rented: where there is any stock."""
    for row in found:
        gpu, most = joined(row.get("id")), number(row.get("maxGpuCount", 128))
        for field, lowest in row.items():
            n = 1 if field == "lowestPrice" else int(field[1:]) if _counted(field) else 0
            fits = n and most is not None and n <= most
            if gpu and fits and isinstance(lowest, dict) and lowest.get("stockStatus"):
                yield f"{n}x{gpu}", n, lowest


def _counted(field: str) -> bool:
    return field[:1] == "n" and field[1:].isascii() and field[1:].isdigit() and len(field) <= 4
