"""AWS spot placement scores: how likely a launch succeeds, 1 to 10. They say nothing about interruptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from outlast.providers.market.aws_door import AwsDoor
from outlast.providers.market.base import Access, Answer, Risk, Want
from outlast.providers.market.gathering import Gathering, each, gather, regions_for, types_for
from outlast.providers.market.reading import word

HOME = "us-east-1"
AT_ONCE = 2
# AWS limits how many new questions an account may ask a day; a repeated one is not new.
MOST_TYPES = 10


class AwsScores:
    """One score a zone id and instance type, each type asked for alone. Needs credentials."""

    name = "aws-scores"

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._door = AwsDoor(access)

    async def ask(self, want: Want, deadline: float) -> Answer:
        """The scores for ``want.count`` instances in one zone."""

        async def run(into: Gathering) -> None:
            await self._gather(want, deadline, into)

        return await gather(self.name, self._clock, deadline, run)

    async def close(self) -> None:
        """Release the threads."""
        await self._door.close()

    async def _gather(self, want: Want, deadline: float, into: Gathering) -> None:
        types, regions = types_for("aws", want), regions_for("aws", want)
        if not types or regions is None:
            return
        if len(types) > MOST_TYPES:
            into.say(f"scores of {MOST_TYPES} of {len(types)} types only, as AWS limits them; name the types")
        told: dict[str, Any] = {"RegionNames": list(regions)} if regions else {}

        async def one(kind: str) -> None:
            pages = self._door.pages(
                regions[0] if regions else HOME,
                "get_spot_placement_scores",
                deadline,
                InstanceTypes=[kind],
                TargetCapacity=max(1, want.count),
                TargetCapacityUnitType="units",
                SingleAvailabilityZone=True,
                MaxResults=30,
                **told,
            )
            async for page in pages:
                into.risks += scores(page.get("SpotPlacementScores", []), kind, into.at, self.name)

        await each(types[:MOST_TYPES], AT_ONCE, into, one)


def scores(found: Iterable[Any], instance_type: str, at: float, source: str) -> list[Risk]:
    """The scores of one instance type; what is no whole number from 1 to 10 is left out."""
    risks = []
    for row in found:
        if not isinstance(row, Mapping):
            continue
        region, zone, score = word(row.get("Region")), word(row.get("AvailabilityZoneId")), row.get("Score")
        if region and isinstance(score, int) and not isinstance(score, bool) and 1 <= score <= 10:
            figure = float(score)
            place = ("aws", region, zone or "", instance_type)
            risks.append(Risk(*place, "placement-score", figure, figure, str(score), at, source))
    return risks
