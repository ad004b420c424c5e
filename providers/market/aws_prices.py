"""AWS spot prices: DescribeSpotPriceHistory, each price under its zone's id, not the account's letter.

On-demand prices are not here: AWS has no small public interface for them, and none is inferred.
"""

from __future__ import annotations

from datetime import datetime, timezone

from outlast.providers.market.aws_door import AwsDoor
from outlast.providers.market.aws_history import PRODUCTS, spot_prices, zone_ids
from outlast.providers.market.base import Access, Answer, Want
from outlast.providers.market.gathering import Gathering, each, gather, regions_for, types_for
from outlast.providers.market.reading import word

HOME = "us-east-1"
MOST_DAYS = 90.0
AT_ONCE = 4
NO_ON_DEMAND = "AWS's on-demand prices are not published here; give them by --offline with a CSV file"


class AwsPrices:
    """Spot prices of up to 90 days, by zone id, of all regions if none is named. Needs credentials."""

    name = "aws-prices"

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._door = AwsDoor(access)

    async def ask(self, want: Want, deadline: float) -> Answer:
        """The price changes of the last ``want.days``, and the one before them."""

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
        into.say(NO_ON_DEMAND)

        async def one(region: str) -> None:
            await self._region(region, types, want.days, deadline, into)

        await each(regions or await self._regions(deadline), AT_ONCE, into, one)

    async def _regions(self, deadline: float) -> tuple[str, ...]:
        page = await self._door.call(HOME, "describe_regions", deadline)
        return tuple(name for row in page.get("Regions", []) if (name := word(row.get("RegionName"))))

    async def _region(
        self, region: str, types: tuple[str, ...], days: float, deadline: float, into: Gathering
    ) -> None:
        zones = zone_ids(await self._door.call(region, "describe_availability_zones", deadline))
        begins = datetime.fromtimestamp(into.at - min(days, MOST_DAYS) * 86400, timezone.utc)
        pages = self._door.pages(
            region,
            "describe_spot_price_history",
            deadline,
            InstanceTypes=list(types),
            ProductDescriptions=list(PRODUCTS),
            StartTime=begins,
            MaxResults=1000,
        )
        async for page in pages:
            quotes, unknown = spot_prices(page.get("SpotPriceHistory", []), region, zones, self.name)
            into.quotes += quotes
            if unknown:
                into.lack(f"{region}: no zone id is known of {', '.join(unknown)}; its prices are left out")
