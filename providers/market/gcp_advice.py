"""Google's capacity advice: obtainability and estimated uptime now, prices by region, preemption by zone.

``preemptionRate`` is a share of the Spot VMs that stopped, for whatever reason: no hazard. Needs
credentials. Endpoint "gcp-compute" replaces the address.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Access, Answer, Measure, Quote, Risk, Want
from outlast.providers.market.client import PublicClient
from outlast.providers.market.gathering import Gathering, each, gather, regions_for, types_for
from outlast.providers.market.gcp_token import GcpToken
from outlast.providers.market.reading import decode_object, inner, micro_usd, money, number, rows, when, word

ADDRESS = "https://compute.googleapis.com"
AT_ONCE = 4
MOST_QUESTIONS = 120
# What is asked of a region; any other question is a zone's name.
ADVICE, PRICES = "capacity?", "prices?"
SPOT = {"scheduling": {"provisioningModel": "SPOT"}}

Place = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Round:
    """What all questions of one ``ask`` share."""

    want: Want
    deadline: float
    headers: dict[str, str]
    root: str
    into: Gathering


class GcpAdvice:
    """Chances of a launch, and the last 30 days; regions must be named."""

    name = "gcp-advice"

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._client = PublicClient(access)
        self._token = GcpToken(access)
        self._address = access.endpoints.get("gcp-compute", ADDRESS).rstrip("/") + "/compute/v1/projects/"

    async def ask(self, want: Want, deadline: float) -> Answer:
        """Advice for ``want.count`` machines of each wanted type, and its history."""

        async def run(into: Gathering) -> None:
            types, regions = types_for("gcp", want), regions_for("gcp", want)
            if not types or regions is None:
                return
            if not regions:
                raise ProviderError("name the regions to ask about")
            headers = await self._token.headers(deadline)
            root = self._address + await self._token.project(deadline)
            await self._gather(_Round(want, deadline, headers, root, into), types, regions)

        return await gather(self.name, self._clock, deadline, run)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    async def _gather(self, now: _Round, types: tuple[str, ...], regions: tuple[str, ...]) -> None:
        zones = await self._zones(now, regions)
        places = [(region, what) for region in regions for what in (ADVICE, PRICES, *zones.get(region, ()))]
        questions = [(region, what, kind) for kind in types for region, what in places]
        if len(questions) > MOST_QUESTIONS:
            now.into.lack(
                f"{MOST_QUESTIONS} of {len(questions)} questions asked; name fewer types or regions"
            )

        async def one(question: tuple[str, str, str]) -> None:
            await self._question(now, *question)

        await each(questions[:MOST_QUESTIONS], AT_ONCE, now.into, one)

    async def _zones(self, now: _Round, regions: tuple[str, ...]) -> dict[str, list[str]]:
        reply = await self._client.get(f"{now.root}/zones", deadline=now.deadline, headers=now.headers)
        found: dict[str, list[str]] = {}
        for row in rows(decode_object(reply.body, self.name), "items", self.name):
            name = word(row.get("name"))
            region = _last(row.get("region"))
            if name and "/" not in name and region in regions:
                found.setdefault(region, []).append(name)
        return found

    async def _question(self, now: _Round, region: str, what: str, kind: str) -> None:
        """Advice for the region, its prices, or one zone's preemptions, where ``what`` is the zone."""
        told = {
            ADVICE: advice_question(kind, max(1, now.want.count)),
            PRICES: price_question(kind),
        }.get(what) or preemption_question(kind, what)
        url = f"{now.root}/regions/{region}/advice/{'capacity' if what == ADVICE else 'capacityHistory'}"
        reply = await self._client.post(url, told, deadline=now.deadline, headers=now.headers)
        body = decode_object(reply.body, self.name)
        into, since = now.into, now.into.at - now.want.days * 86400
        if what == ADVICE:
            into.risks += advice_risks(body, region, kind, into.at, self.name)
        elif what == PRICES:
            into.quotes += past_prices(body, ("gcp", region, "", kind), since, self.name)
        else:
            into.risks += preemption_risks(body, ("gcp", region, what, kind), since, self.name)


def advice_question(kind: str, count: int) -> dict[str, Any]:
    """The body of advice.capacity: ``count`` machines of one type, all in one zone."""
    return {
        "instanceProperties": SPOT,
        "instanceFlexibilityPolicy": {"instanceSelections": {"wanted": {"machineTypes": [kind]}}},
        "size": count,
        "distributionPolicy": {"targetShape": "ANY_SINGLE_ZONE"},
    }


def price_question(kind: str) -> dict[str, Any]:
    """The body of advice.capacityHistory for prices, which are a region's: a zone has none."""
    return {"instanceProperties": {"machineType": kind, **SPOT}, "types": ["PRICE"]}


def preemption_question(kind: str, zone: str) -> dict[str, Any]:
    """The body of advice.capacityHistory for the preemptions of one zone."""
    return {
        "instanceProperties": {"machineType": kind, **SPOT},
        "locationPolicy": {"location": f"zones/{zone}"},
        "types": ["PREEMPTION"],
    }


def advice_risks(body: Any, region: str, kind: str, at: float, source: str) -> Iterator[Risk]:
    """Obtainability and estimated uptime of each recommendation; one over several zones is the region's."""
    for row in rows(body, "recommendations", source):
        shards = row.get("shards")
        zones = {_last(inner(shard, "zone")) for shard in shards} if isinstance(shards, list) else set()
        zone = zones.pop() if len(zones) == 1 else ""
        place: Place = ("gcp", region, zone or "", kind)
        chance = number(inner(row, "scores", "obtainability"))
        if chance is not None and 0 <= chance <= 1:
            yield _figure(place, "obtainability", float(chance), f"{chance:f}", at, source)
        uptime = inner(row, "scores", "estimatedUptime")
        seconds = number(uptime[:-1]) if isinstance(uptime, str) and uptime.endswith("s") else None
        if seconds is not None and 0 <= seconds < 10**9:
            yield _figure(place, "estimated-uptime", float(seconds), f"{seconds:f}s", at, source)


def preemption_risks(body: Any, place: Place, since: float, source: str) -> Iterator[Risk]:
    """The share of each interval from ``since`` on, under the time at which the interval began."""
    for at, row in _intervals(body, "preemptionHistory"):
        share = number(row.get("preemptionRate"))
        if at >= since and share is not None and 0 <= share <= 1:
            yield _figure(place, "preempted-of-stopped", float(share), f"{share:f}", at, source)


def past_prices(body: Any, place: Place, since: float, source: str) -> Iterator[Quote]:
    """The list price of each interval that begins from ``since`` on, and of the one before."""
    found = [(at, micro_usd(money(row.get("listPrice")))) for at, row in _intervals(body, "priceHistory")]
    first = max((at for at, _price in found if at <= since), default=-math.inf)
    for at, price in found:
        if price is not None and at >= first:
            yield Quote(*place, "spot", price, at, source)


def _intervals(body: Any, key: str) -> Iterator[tuple[float, dict[str, Any]]]:
    history = inner(body, key)
    for row in history if isinstance(history, list) else ():
        at = when(inner(row, "interval", "startTime"))
        if at is not None:
            yield at, row


def _figure(place: Place, measure: Measure, value: float, text: str, at: float, source: str) -> Risk:
    return Risk(*place, measure, value, value, text[:20], at, source)


def _last(url: Any) -> str:
    """The last part of a resource's address, which is its name; empty where it is none."""
    return word(url.rpartition("/")[2]) or "" if isinstance(url, str) else ""
