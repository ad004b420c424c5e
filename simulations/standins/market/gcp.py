"""Stand-in for Google's zones, capacity advice, its history, and the price list."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from outlast.providers.base import Clock
from outlast.simulations.standins.market.server import Market, json_response, pages

Row = dict[str, Any]
PROJECT = "/compute/v1/projects/{project}"
ROOT = "https://www.googleapis.com/compute/v1/projects/p"


def sku(description: str, usage: str, regions: list[str], units: Any, nanos: Any, unit: str = "h") -> Row:
    """A row of the price list."""
    rate = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": units, "nanos": nanos}}
    expression = {"usageUnit": unit, "displayQuantity": 1, "tieredRates": [rate]}
    return {
        "name": "services/6F81-5844-456A/skus/0000-0000-0000",
        "description": description,
        "category": {"serviceDisplayName": "Compute Engine", "resourceFamily": "Compute", "usageType": usage},
        "serviceRegions": regions,
        "pricingInfo": [{"effectiveTime": "2026-11-30T00:00:00Z", "pricingExpression": expression}],
        "serviceProviderName": "Google",
    }


def a2_skus(region: str = "us-central1") -> list[Row]:
    """All parts of an A2 machine, spot and on demand, and rows beside them that mean something else."""
    where = [region]
    vms = "attached to Spot Preemptible VMs"
    return [
        sku("A2 Instance Core running in Americas", "OnDemand", where, "0", 31611000),
        sku("A2 Instance Ram running in Americas", "OnDemand", where, "0", 4237000, "GiBy.h"),
        sku("Nvidia Tesla A100 GPU running in Americas", "OnDemand", where, "2", 933908000),
        sku("Spot Preemptible A2 Instance Core running in Americas", "Preemptible", where, "0", 12644400),
        sku(
            "Spot Preemptible A2 Instance Ram running in Americas",
            "Preemptible",
            where,
            "0",
            1694800,
            "GiBy.h",
        ),
        sku(f"Nvidia Tesla A100 GPU {vms} running in Americas", "Preemptible", where, "1", 173563200),
        sku("Commitment v1: A2 Cpu in Americas for 1 Year", "Commit1Yr", where, "0", 19915000),
        sku("A2 Instance Core running in Americas with sole tenancy", "OnDemand", [], "9", 0),
    ]


class GcpMarket(Market):
    """``skus``, ``zones``, ``advice``, ``preemptions`` and ``prices`` are what it answers from."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, clock: Clock | None = None) -> None:
        super().__init__(host=host, port=port, clock=clock)
        self.page_size = 3
        self.skus = a2_skus()
        self.zones = {"us-central1": ["us-central1-a", "us-central1-b"], "europe-west4": ["europe-west4-a"]}
        self.advice: Any = {"obtainability": 0.7, "estimatedUptime": "3600s"}
        self.preemptions = [_day("2026-11-29", preemptionRate=0.25), _day("2026-11-30", preemptionRate=0.4)]
        money = {"currencyCode": "USD", "units": "1", "nanos": 805000000}
        self.prices = [
            _day("2026-06-01", listPrice={**money, "units": "2"}),
            _day("2026-11-20", listPrice=money),
        ]

    @property
    def endpoints(self) -> dict[str, str]:
        """The compute interface and the price list."""
        return {"gcp-compute": self.url, "gcp-billing": self.url}

    def add_routes(self, app: web.Application) -> None:
        """Zones, advice, history, price list."""
        app.router.add_get(PROJECT + "/zones", self._zones)
        app.router.add_post(PROJECT + "/regions/{region}/advice/capacity", self._capacity)
        app.router.add_post(PROJECT + "/regions/{region}/advice/capacityHistory", self._history)
        app.router.add_get("/v1/services/6F81-5844-456A/skus", self._skus)

    async def _zones(self, request: web.Request) -> web.Response:
        if not self.admitted(request):
            return _refused()
        rows = [
            {"name": zone, "region": f"{ROOT}/regions/{region}", "status": "UP"}
            for region, zones in self.zones.items()
            for zone in zones
        ]
        return json_response({"kind": "compute#zoneList", "items": rows})

    async def _capacity(self, request: web.Request) -> web.Response:
        if not self.admitted(request):
            return _refused()
        told = await request.json()
        self.bodies.append(told)
        region = request.match_info["region"]
        (kind,) = told["instanceFlexibilityPolicy"]["instanceSelections"]["wanted"]["machineTypes"]
        shard = {
            "instanceCount": told["size"],
            "machineType": kind,
            "provisioningModel": "SPOT",
            "zone": f"{ROOT}/zones/{self.zones[region][0]}",
        }
        return json_response({"recommendations": [{"scores": self.advice, "shards": [shard]}]})

    async def _history(self, request: web.Request) -> web.Response:
        """Prices are a region's: asking a zone for them is an error."""
        if not self.admitted(request):
            return _refused()
        told = await request.json()
        self.bodies.append(told)
        zone, types = told.get("locationPolicy", {}).get("location"), told["types"]
        if zone and "PRICE" in types:
            return json_response({"error": {"code": 400, "message": "PRICE is regional"}}, 400)
        body: Row = {"machineType": told["instanceProperties"]["machineType"]}
        if "PREEMPTION" in types:
            body["preemptionHistory"] = self.preemptions
        if "PRICE" in types:
            body["priceHistory"] = self.prices
        return json_response(body)

    async def _skus(self, request: web.Request) -> web.Response:
        if not self.admitted(request) and "X-Goog-Api-Key" not in request.headers:
            return _refused()
        part, following = pages(self.skus, int(request.query.get("pageToken", "0")), self.page_size)
        return json_response({"skus": part, "nextPageToken": "" if following is None else str(following)})


def _day(begins: str, **more: Any) -> Row:
    return {"interval": {"startTime": f"{begins}T08:00:00Z", "endTime": f"{begins}T23:59:59Z"}, **more}


def _refused() -> web.Response:
    return json_response({"error": {"code": 401, "status": "UNAUTHENTICATED"}}, 401)
