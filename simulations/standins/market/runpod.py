"""Stand-in for RunPod's GraphQL interface: data centres, and lowest prices of GPU types in each."""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from outlast.providers.base import Clock
from outlast.simulations.standins.market.server import Market, json_response

_LOWEST = re.compile(r"(\w+): lowestPrice\(input: \{gpuCount: (\d+)")


class RunPodMarket(Market):
    """``centres`` and ``gpus`` are what it answers from; a price is dollars an hour of one GPU."""

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, clock: Clock | None = None) -> None:
        super().__init__(host=host, port=port, clock=clock)
        self.centres: list[dict[str, Any]] = [
            {"id": "US-KS-2", "listed": True},
            {"id": "EU-RO-1", "listed": True},
            {"id": "XX-OLD-1", "listed": False},
        ]
        # (GPU, data centre): lowest bid, on-demand price, stock, GPUs of the largest machine.
        self.gpus: dict[tuple[str, str], tuple[Any, Any, Any, Any]] = {
            ("NVIDIA A100-SXM4-80GB", "US-KS-2"): (0.79, 1.89, "High", 8),
            ("NVIDIA A100-SXM4-80GB", "EU-RO-1"): (None, None, None, 8),
            ("NVIDIA H100 80GB HBM3", "EU-RO-1"): (1.5, 2.99, "Low", 2),
        }
        self.errors: list[dict[str, Any]] = []

    @property
    def endpoints(self) -> dict[str, str]:
        """The one address."""
        return {"runpod": self.url + "/graphql"}

    def add_routes(self, app: web.Application) -> None:
        """The one path."""
        app.router.add_post("/graphql", self._graphql)

    async def _graphql(self, request: web.Request) -> web.Response:
        told = await request.json()
        self.bodies.append(told)
        if self.errors:
            return json_response({"errors": self.errors, "data": None})
        if "dataCenters" in told["query"]:
            return json_response({"data": {"dataCenters": self.centres}})
        counts = [(alias, int(n)) for alias, n in _LOWEST.findall(told["query"])]
        rows = [
            {"id": gpu, "maxGpuCount": most, **{alias: _lowest(n, most, told_of) for alias, n in counts}}
            for (gpu, centre), (*told_of, most) in self.gpus.items()
            if centre == told["variables"]["centre"]
        ]
        return json_response({"data": {"gpuTypes": rows}})


def _lowest(n: int, most: Any, told_of: list[Any]) -> dict[str, Any]:
    bid, on_demand, stock = told_of if isinstance(most, int) and n <= most else (None, None, None)
    return {"minimumBidPrice": bid, "uninterruptablePrice": on_demand, "stockStatus": stock}
