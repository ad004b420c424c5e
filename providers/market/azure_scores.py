"""Azure spot placement scores: High, Medium or Low chance that a launch succeeds, by region.

Scores of single zones are not asked for: their numbers differ from subscription to subscription. Needs a
token (see azure_token) and AZURE_SUBSCRIPTION_ID. Endpoint "azure-manage" replaces the address.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market import catalogue
from outlast.providers.market.azure_graph import ADDRESS
from outlast.providers.market.azure_token import AzureToken
from outlast.providers.market.base import Access, Answer, Risk, Want
from outlast.providers.market.client import PublicClient
from outlast.providers.market.gathering import Gathering, each, gather, regions_for, types_for
from outlast.providers.market.reading import decode_object, rows, word
from outlast.providers.parse import printable

PATH = "/providers/Microsoft.Compute/locations/{region}/placementScores/spot/generate?api-version=2025-06-05"
LEVELS = {"High": 3.0, "Medium": 2.0, "Low": 1.0}
MOST_REGIONS = 8  # in one question, as Azure limits it; so too the sizes
MOST_TYPES = 5


class AzureScores:
    """One word a region and type, for ``want.count`` machines. Azure answers few such questions a day."""

    name = "azure-scores"

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._environ = access.environ
        self._client = PublicClient(access)
        self._token = AzureToken(access)
        self._address = access.endpoints.get("azure-manage", ADDRESS).rstrip("/")

    async def ask(self, want: Want, deadline: float) -> Answer:
        """The scores of the wanted types in the wanted regions; regions must be named."""

        async def run(into: Gathering) -> None:
            types, regions = types_for("azure", want), regions_for("azure", want)
            if types and regions is not None:
                await self._gather(types, regions, max(1, want.count), deadline, into)

        return await gather(self.name, self._clock, deadline, run)

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()
        await self._token.close()

    async def _gather(
        self, types: tuple[str, ...], regions: tuple[str, ...], count: int, deadline: float, into: Gathering
    ) -> None:
        subscription = word(self._environ.get("AZURE_SUBSCRIPTION_ID", ""))
        if not subscription or "/" in subscription:
            raise ProviderError("set AZURE_SUBSCRIPTION_ID (az account show --query id -o tsv)")
        if not regions:
            raise ProviderError("name the regions to score; Azure scores eight at a time")
        headers = await self._token.headers(deadline)
        account = f"{self._address}/subscriptions/{subscription}"

        async def one(part: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
            places, sizes = part
            told = {
                "availabilityZones": False,
                "desiredCount": count,
                "desiredLocations": list(places),
                "desiredSizes": [{"sku": size} for size in sizes],
            }
            url = account + PATH.format(region=places[0])
            reply = await self._client.post(url, told, deadline=deadline, headers=headers)
            body = decode_object(reply.body, self.name)
            risks, refused = placement_scores(rows(body, "placementScores", self.name), into.at, self.name)
            into.risks += risks
            for text in refused:
                into.say(text)

        await each(product(_parts(regions, MOST_REGIONS), _parts(types, MOST_TYPES)), 1, into, one)


def placement_scores(found: Iterable[Any], at: float, source: str) -> tuple[list[Risk], list[str]]:
    """The scores of regions, and a line for each row that has a reason in place of one."""
    risks: list[Risk] = []
    refused: list[str] = []
    for row in found:
        kind, region, score = word(row.get("sku")), word(row.get("region")), row.get("score")
        if not kind or not region or row.get("availabilityZone") or not isinstance(score, str):
            continue
        if score in LEVELS:
            place = ("azure", region, "", catalogue.spelled(kind))
            risks.append(Risk(*place, "placement-score", LEVELS[score], LEVELS[score], score, at, source))
        else:
            refused.append(f"no score of {kind} in {region}: {printable(score, 40)}")
    return risks, refused


def _parts(names: tuple[str, ...], most: int) -> list[tuple[str, ...]]:
    return [names[i : i + most] for i in range(0, len(names), most)]
