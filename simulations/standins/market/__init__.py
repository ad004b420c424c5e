"""Stand-ins for the providers' public interfaces to prices and risk figures, one server a provider.

async with AzureMarket() as market:
    access = Access(endpoints=market.endpoints)
"""

from __future__ import annotations

from outlast.providers.base import Clock
from outlast.simulations.standins.market.aws import AwsMarket
from outlast.simulations.standins.market.azure import AzureMarket
from outlast.simulations.standins.market.gcp import GcpMarket
from outlast.simulations.standins.market.runpod import RunPodMarket
from outlast.simulations.standins.market.server import Market
from outlast.simulations.standins.market.vast import VastMarket

__all__ = [
    "MARKETS",
    "AwsMarket",
    "AzureMarket",
    "GcpMarket",
    "Market",
    "RunPodMarket",
    "VastMarket",
    "create",
]

MARKETS: dict[str, type[AwsMarket | AzureMarket | GcpMarket | RunPodMarket | VastMarket]] = {
    "aws": AwsMarket,
    "azure": AzureMarket,
    "gcp": GcpMarket,
    "runpod": RunPodMarket,
    "vast": VastMarket,
}


def create(provider: str, *, port: int = 0, clock: Clock | None = None) -> Market:
    """The stand-in for a provider's market, not yet listening. Raises KeyError for a name not in MARKETS."""
    return MARKETS[provider](port=port, clock=clock)
