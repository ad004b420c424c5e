"""Answers of the sources themselves, saved to a file: which one it is, is told by what is in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market.aws_advisor import advisor_risks
from outlast.providers.market.aws_history import spot_prices, zone_ids
from outlast.providers.market.azure_graph import eviction_bands, past_prices
from outlast.providers.market.azure_prices import retail_prices
from outlast.providers.market.azure_scores import placement_scores
from outlast.providers.market.base import Answer
from outlast.providers.market.gathering import Gathering
from outlast.providers.market.gcp_prices import MACHINES, machine_prices, part_prices
from outlast.providers.market.reading import rows
from outlast.providers.market.vast import offer_prices

Reader = Callable[[dict[str, Any], Gathering], None]


def read(document: dict[str, Any], at: float) -> Answer:
    """The answer in one saved document, as known ``at`` UTC. Raises ProviderError."""
    for key, (source, reader) in _READERS.items():
        if key in document:
            into = Gathering(source, at)
            reader(document, into)
            if not into.quotes and not into.risks and not into.answer().lacks:
                raise ProviderError(f"no price and no figure in it can be used ({source})")
            return into.answer()
    raise ProviderError(
        "its JSON is none that is known; take what `outlast prices --json` prints, or a source's own answer"
    )


def _advisor(body: dict[str, Any], into: Gathering) -> None:
    into.risks += advisor_risks(body, (), (), into.at, into.source)


def _aws(body: dict[str, Any], into: Gathering) -> None:
    found = rows(body, "SpotPriceHistory", into.source)
    quotes, unknown = spot_prices(found, "", zone_ids(body), into.source)
    into.quotes += quotes
    if unknown:
        into.lack(
            f"no zone id is known of {', '.join(unknown[:8])}, as zone names differ from account to account: "
            'put "AvailabilityZones" of `aws ec2 describe-availability-zones` beside "SpotPriceHistory"'
        )


def _retail(body: dict[str, Any], into: Gathering) -> None:
    into.quotes += retail_prices(rows(body, "Items", into.source), into.at, into.source)


def _graph(body: dict[str, Any], into: Gathering) -> None:
    found = rows(body, "data", into.source)
    into.risks += eviction_bands(found, into.at, into.source)
    into.quotes += past_prices(found, 0.0, into.source)


def _scores(body: dict[str, Any], into: Gathering) -> None:
    risks, refused = placement_scores(rows(body, "placementScores", into.source), into.at, into.source)
    into.risks += risks
    for text in refused:
        into.say(text)


def _skus(body: dict[str, Any], into: Gathering) -> None:
    parts = part_prices(rows(body, "skus", into.source))
    into.quotes += machine_prices(parts, MACHINES, (), into.at, into.source)


def _offers(body: dict[str, Any], into: Gathering) -> None:
    found = rows(body, "offers", into.source)
    into.quotes += offer_prices(found, "min_bid", "min_bid", into.at, into.source)


_READERS: dict[str, tuple[str, Reader]] = {
    "spot_advisor": ("aws-advisor", _advisor),
    "SpotPriceHistory": ("aws-prices", _aws),
    "Items": ("azure-prices", _retail),
    "placementScores": ("azure-scores", _scores),
    "skus": ("gcp-prices", _skus),
    "offers": ("vast", _offers),
    "data": ("azure-evictions", _graph),
}
