"""Stand-in for EC2's query interface, as far as prices and placement scores go, and Spot Advisor's file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from xml.sax.saxutils import escape

from aiohttp import web

from outlast.providers.base import Clock
from outlast.simulations.standins.market.server import Market, pages

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
PUBLISHED = "Tue, 01 Dec 2026 06:00:00 GMT"
ADVISOR: dict[str, Any] = {
    "global_rate": "<10%",
    "instance_types": {"p4d.24xlarge": {"emr": True, "cores": 96, "ram_gb": 1152.0}},
    "ranges": [
        {"index": 0, "label": "<5%", "dots": 0, "max": 5},
        {"index": 1, "label": "5-10%", "dots": 1, "max": 11},
        {"index": 2, "label": "10-15%", "dots": 2, "max": 16},
        {"index": 3, "label": "15-20%", "dots": 3, "max": 22},
        {"index": 4, "label": ">20%", "dots": 4, "max": 100},
    ],
    "spot_advisor": {
        "us-east-1": {
            "Linux": {"p4d.24xlarge": {"s": 62, "r": 2}, "p5.48xlarge": {"s": 52, "r": 4}},
            "Windows": {"p4d.24xlarge": {"s": 1, "r": 0}},
        },
        "us-west-2": {"Linux": {"p4d.24xlarge": {"s": -62, "r": 4}}},
    },
}
Row = dict[str, Any]


class AwsMarket(Market):
    """``zones``, ``history``, ``scores`` and ``advisor`` are what it answers from, and may be changed.

    ``refusals`` has error codes by action, or by the region that a request is signed for. With ``circle``
    the second page of an answer is followed by itself.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, clock: Clock | None = None) -> None:
        super().__init__(host=host, port=port, clock=clock)
        self.page_size = 2
        self.zones = {"us-east-1": {"us-east-1a": "use1-az4", "us-east-1b": "use1-az6"}}
        self.history: list[Row] = [
            _price("us-east-1a", "9.831600", "2026-12-01T10:00:00.000Z"),
            _price("us-east-1a", "10.100000", "2026-11-20T00:00:00.000Z"),
            _price("us-east-1b", "12.012345", "2026-11-30T00:00:00.000Z"),
        ]
        self.scores: list[Row] = [
            {"region": "us-east-1", "availabilityZoneId": "use1-az4", "score": 9},
            {"region": "us-east-1", "availabilityZoneId": "use1-az6", "score": 3},
            {"region": "us-west-2", "availabilityZoneId": "usw2-az1", "score": 1},
        ]
        self.advisor: Any = ADVISOR
        self.refusals: dict[str, str] = {}
        self.circle = False

    @property
    def endpoints(self) -> dict[str, str]:
        """EC2 and the advisor's file."""
        return {"ec2": self.url, "advisor": self.url + "/spot-advisor-data.json"}

    def add_routes(self, app: web.Application) -> None:
        """EC2 takes forms at its root."""
        app.router.add_post("/", self._query)
        app.router.add_get("/spot-advisor-data.json", self._advisor)

    def throttled(self, request: web.Request) -> web.Response:
        """As EC2 refuses a request too many: by a code, not by the status alone."""
        if request.path != "/":
            return super().throttled(request)
        return _refusal("RequestLimitExceeded", 503)

    async def _advisor(self, _request: web.Request) -> web.Response:
        headers = {"Last-Modified": PUBLISHED}
        return web.Response(body=json.dumps(self.advisor).encode(), headers=headers)

    async def _query(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.bodies.append(form)
        if "Authorization" not in request.headers:
            return _refusal("MissingAuthenticationToken", 401)
        action = form.get("Action", "")
        region = request.headers["Authorization"].split("/")[2]
        if code := self.refusals.get(action) or self.refusals.get(region):
            return _refusal(code, 400)
        if action == "DescribeRegions":
            rows = [{"regionName": region, "regionEndpoint": "ec2.amazonaws.com"} for region in self.zones]
            return _answer(action, "regionInfo", rows)
        if action == "DescribeAvailabilityZones":
            rows = [
                {"zoneName": name, "zoneId": zone_id, "regionName": region, "zoneState": "available"}
                for region, zones in self.zones.items()
                for name, zone_id in zones.items()
            ]
            return _answer(action, "availabilityZoneInfo", rows)
        if action == "DescribeSpotPriceHistory":
            return self._paged(action, "spotPriceHistorySet", self.history, form)
        if action == "GetSpotPlacementScores":
            return self._paged(action, "spotPlacementScoreSet", self.scores, form)
        return _refusal("InvalidAction", 400)

    def _paged(self, action: str, name: str, rows: list[Row], form: dict[str, str]) -> web.Response:
        part, following = pages(rows, int(form.get("NextToken") or "0"), self.page_size)
        following = self.page_size if self.circle else following
        return _answer(action, name, part, "" if following is None else str(following))


def _price(zone: str, usd: str, at: str, kind: str = "p4d.24xlarge") -> Row:
    return {
        "instanceType": kind,
        "productDescription": "Linux/UNIX",
        "spotPrice": usd,
        "timestamp": at,
        "availabilityZone": zone,
    }


def _answer(action: str, name: str, rows: Iterable[Row], token: str = "") -> web.Response:
    items = "".join(
        f"<item>{''.join(f'<{key}>{escape(str(value))}</{key}>' for key, value in row.items())}</item>"
        for row in rows
    )
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><{action}Response xmlns="{NAMESPACE}">'
        f"<requestId>00000000-0000-4000-8000-000000000000</requestId><{name}>{items}</{name}>"
        f"<nextToken>{token}</nextToken></{action}Response>"
    )
    return web.Response(text=text, content_type="text/xml")


def _refusal(code: str, status: int) -> web.Response:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error>'
        f"<Code>{code}</Code><Message>Request limit exceeded for account 123456789012.</Message>"
        "</Error></Errors><RequestID>00000000-0000-4000-8000-000000000000</RequestID></Response>"
    )
    return web.Response(text=text, status=status, content_type="text/xml")
