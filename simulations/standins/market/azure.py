"""Stand-in for Azure's price list, Resource Graph, placement scores and the managed identity's endpoint."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from outlast.providers.base import Clock
from outlast.simulations.standins.market.server import TOKEN, Market, json_response, pages

Row = dict[str, Any]
_EQ = re.compile(r"(\w+) eq '([^']*)'")
_IN = re.compile(r"(sku\.name|location) in~ \(([^)]*)\)")


def retail(sku: str, region: str, usd: Any, **more: Any) -> Row:
    """A row of the price list, as of a Linux machine on demand unless told otherwise."""
    name = sku.removeprefix("Standard_").replace("_", " ")
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": usd,
        "unitPrice": usd,
        "armRegionName": region,
        "location": region,
        "effectiveStartDate": "2026-09-01T00:00:00Z",
        "meterName": name,
        "productName": "Virtual Machines NDasrA100_v4 Series",
        "skuName": name,
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": sku,
        **more,
    }


def spot(sku: str, region: str, usd: Any, **more: Any) -> Row:
    """A row of the price list for a spot machine."""
    name = sku.removeprefix("Standard_").replace("_", " ") + " Spot"
    return retail(sku, region, usd, **{"meterName": name, "skuName": name, **more})


ND = "Standard_ND96asr_v4"
NC = "Standard_NC24ads_A100_v4"


class AzureMarket(Market):
    """``rows``, ``evictions``, ``history`` and ``levels`` are what it answers from, and may be changed."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, clock: Clock | None = None) -> None:
        super().__init__(host=host, port=port, clock=clock)
        self.page_size = 2
        self.expires_in: Any = "86399"
        self.rows = [
            retail(ND, "eastus", 27.197),
            spot(ND, "eastus", 10.8788),
            spot(ND, "westus2", 8.703041),
            spot(ND, "eastus", 1.5, productName="Virtual Machines NDasrA100_v4 Series Windows"),
            retail(ND, "eastus", 5.4, meterName="ND96asr v4 Low Priority"),
            retail(ND, "eastus", 14.0, type="Reservation", reservationTerm="1 Year"),
            spot(NC, "eastus", 1.469),
        ]
        self.evictions = [
            {"skuName": "standard_nd96asr_v4", "location": "eastus", "evictionRate": "5-10"},
            {"skuName": "standard_nd96asr_v4", "location": "westus2", "evictionRate": "20+"},
            {"skuName": "standard_nc24ads_a100_v4", "location": "eastus", "evictionRate": "0-5"},
        ]
        self.history = [
            {
                "skuName": "standard_nd96asr_v4",
                "location": "eastus",
                "spotPrices": [
                    {"priceUSD": 10.8788, "effectiveDate": "2026-09-01T00:00:00.0000000Z"},
                    {"priceUSD": 11.25, "effectiveDate": "2026-11-20T00:00:00.0000000Z"},
                ],
            }
        ]
        self.levels = {(ND, "eastus"): "High", (ND, "westus2"): "DataNotFoundOrStale", (NC, "eastus"): "Low"}

    @property
    def endpoints(self) -> dict[str, str]:
        """The list, the management interface and the identity's endpoint."""
        return {
            "azure-retail": self.url + "/api/retail/prices",
            "azure-manage": self.url,
            "azure-identity": self.url,
        }

    def add_routes(self, app: web.Application) -> None:
        """The four interfaces."""
        app.router.add_get("/api/retail/prices", self._retail)
        app.router.add_post("/providers/Microsoft.ResourceGraph/resources", self._graph)
        path = "/subscriptions/{account}/providers/Microsoft.Compute/locations/{region}"
        app.router.add_post(path + "/placementScores/spot/generate", self._scores)
        app.router.add_get("/metadata/identity/oauth2/token", self._identity)

    async def _retail(self, request: web.Request) -> web.Response:
        asked = _EQ.findall(request.query.get("$filter", ""))
        if not asked:
            return json_response({"Error": {"Code": "BadRequest", "Message": "no filter"}}, 400)
        wanted: dict[str, set[str]] = {}
        for field, value in asked:
            wanted.setdefault({"priceType": "type"}.get(field, field), set()).add(value)
        found = [row for row in self.rows if all(row.get(field) in wanted[field] for field in wanted)]
        part, following = pages(found, int(request.query.get("$skip", "0")), self.page_size)
        link = None
        if following is not None:
            link = str(request.url.update_query({"$skip": str(following)}))
        body = {"BillingCurrency": "USD", "CustomerEntityId": "Default", "Items": part, "Count": len(part)}
        return json_response({**body, "NextPageLink": link})

    async def _graph(self, request: web.Request) -> web.Response:
        if not self.admitted(request):
            return json_response({"error": {"code": "AuthenticationFailed"}}, 401)
        told = await request.json()
        self.bodies.append(told)
        query = told["query"]
        rows: list[Row] = self.evictions if "skuspotevictionrate" in query else self.history
        for field, names in _IN.findall(query):
            known = {name.strip(" '").lower() for name in names.split(",")}
            key = {"sku.name": "skuName"}.get(field, field)
            rows = [row for row in rows if str(row.get(key)).lower() in known]
        start = int(told["options"].get("$skipToken", "0"))
        part, following = pages(rows, start, self.page_size)
        body: Row = {"totalRecords": len(rows), "count": len(part), "data": part, "facets": []}
        body["resultTruncated"] = "false"
        return json_response(body if following is None else {**body, "$skipToken": str(following)})

    async def _scores(self, request: web.Request) -> web.Response:
        if not self.admitted(request):
            return json_response({"error": {"code": "AuthenticationFailed"}}, 401)
        told = await request.json()
        self.bodies.append(told)
        places, sizes = told["desiredLocations"], [size["sku"] for size in told["desiredSizes"]]
        if len(places) > 8 or len(sizes) > 5:
            return json_response({"error": {"code": "BadRequest"}}, 400)
        found = [
            {"sku": sku, "region": region, "score": self.levels[sku, region], "isQuotaAvailable": True}
            for sku in sizes
            for region in places
            if (sku, region) in self.levels
        ]
        return json_response({**told, "placementScores": found})

    async def _identity(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata") != "true":
            return json_response({"error": "invalid_request"}, 400)
        return json_response({"access_token": TOKEN, "expires_in": self.expires_in, "token_type": "Bearer"})
