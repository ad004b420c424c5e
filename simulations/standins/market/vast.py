"""Stand-in for Vast.ai's search of offers."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from outlast.providers.base import Clock
from outlast.simulations.standins.market.server import Market, json_response

TOO_OFTEN = "API requests too frequent: endpoint threshold=2.0"


def offer(
    machine: Any, gpu: str, n: int, place: str, bid: Any, on_demand: Any, ram_mb: int
) -> dict[str, Any]:
    """An offer with the fields that tell machine, price and place."""
    return {
        "id": 1_000_000 + n,
        "machine_id": machine,
        "gpu_name": gpu,
        "num_gpus": n,
        "gpu_ram": ram_mb,
        "geolocation": place,
        "min_bid": bid,
        "dph_base": on_demand,
        "dph_total": on_demand,
        "rentable": True,
        "verification": "verified",
        "reliability2": 0.998,
    }


class VastMarket(Market):
    """``offers`` is what it answers from. A question within ``threshold_s`` of the last is refused."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, clock: Clock | None = None) -> None:
        super().__init__(host=host, port=port, clock=clock)
        self.threshold_s = 2.0
        self.offers = [
            offer(11, "A100 SXM4", 8, "Sweden, SE", 5.2, 9.6, 81920),
            offer(12, "A100 SXM4", 1, "Oregon, US", 0.40000000000000002, 1.1, 40960),
            offer(13, "RTX 4090", 4, "Quebec, CA", 0.64, 1.36, 24564),
            offer(14, "H100 SXM", 8, "Sweden, SE", 9.0, 17.5, 81559),
        ]
        self._last = float("-inf")

    @property
    def endpoints(self) -> dict[str, str]:
        """The one address."""
        return {"vast": self.url + "/api/v0/bundles/"}

    def add_routes(self, app: web.Application) -> None:
        """The one path."""
        app.router.add_post("/api/v0/bundles/", self._bundles)

    def throttled(self, _request: web.Request) -> web.Response:
        """Plain text, and no word on how long to wait."""
        return web.Response(status=429, text=TOO_OFTEN)

    async def _bundles(self, request: web.Request) -> web.Response:
        now = self.clock.monotonic()
        early, self._last = now - self._last < self.threshold_s, now
        if early:
            return self.throttled(request)
        told = await request.json()
        self.bodies.append(told)
        if told.get("type") not in {"bid", "on-demand"}:
            return json_response({"success": False, "error": "invalid_args", "msg": "type"}, 400)
        names = told["gpu_name"]["in"]
        found = [row for row in self.offers if row["gpu_name"] in names]
        return json_response({"offers": found[: told["limit"]]})
