"""Stand-ins for the providers' metadata endpoints, for tests, drills and trying out tools.

async with AwsStandIn() as endpoint:
    endpoint.notice(in_s=120)
"""

from __future__ import annotations

from collections.abc import Callable

from outlast.providers.base import Clock, Identity
from outlast.simulations.standins import aws, azure, gcp
from outlast.simulations.standins.aws import AwsStandIn
from outlast.simulations.standins.azure import AzureStandIn
from outlast.simulations.standins.gcp import GcpStandIn
from outlast.simulations.standins.script import Seen
from outlast.simulations.standins.server import StandIn

__all__ = ["IDENTITIES", "AwsStandIn", "AzureStandIn", "GcpStandIn", "StandIn", "create"]

# Who the node is unless told otherwise.
IDENTITIES = {"aws": aws.DEFAULT, "gcp": gcp.DEFAULT, "azure": azure.DEFAULT}
_CLASSES: dict[str, type[AwsStandIn | GcpStandIn | AzureStandIn]] = {
    "aws": AwsStandIn,
    "gcp": GcpStandIn,
    "azure": AzureStandIn,
}


def create(
    provider: str,
    identity: Identity | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    clock: Clock | None = None,
    on_request: Callable[[Seen], None] | None = None,
) -> StandIn:
    """The stand-in for ``provider``, not yet listening. Raises KeyError for a name not in IDENTITIES."""
    who = identity or IDENTITIES[provider]
    return _CLASSES[provider](who, host=host, port=port, clock=clock, on_request=on_request)
