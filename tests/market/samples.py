"""Answers as hypothesis draws them, what sources answer as somebody saved it, and that with damage."""

from __future__ import annotations

import string
from typing import Any, get_args

from hypothesis import strategies as st

from outlast.providers.market.base import Answer, Measure, Quote, QuoteKind, Risk
from outlast.providers.market.own_json import MOST_MICRO
from outlast.simulations.standins.market import AzureMarket, VastMarket
from outlast.simulations.standins.market.aws import ADVISOR
from outlast.simulations.standins.market.gcp import a2_skus

WORDS = st.text(string.ascii_letters + string.digits + "_./:+@()-", min_size=1, max_size=128)
TIMES = st.floats(0, 4_000_000_000)
FIGURES = st.floats(-999_999_999_999, 999_999_999_999)
PLACES = st.tuples(WORDS, WORDS | st.just(""), WORDS | st.just(""), WORDS)


def lines(most: int) -> st.SearchStrategy[str]:
    """Text that can be printed in one line."""
    printable = st.text(max_size=most).map(lambda text: "".join(c for c in text if c.isprintable()))
    return printable.map(str.strip)


@st.composite
def quotes(draw: st.DrawFn) -> Quote:
    """A price that may be."""
    place, kind = draw(PLACES), draw(st.sampled_from(get_args(QuoteKind)))
    return Quote(*place, kind, draw(st.integers(1, MOST_MICRO)), draw(TIMES), draw(WORDS))


@st.composite
def risks(draw: st.DrawFn) -> Risk:
    """A figure that may be."""
    place, measure = draw(PLACES), draw(st.sampled_from(get_args(Measure)))
    low, high = sorted((draw(FIGURES), draw(FIGURES)))
    return Risk(*place, measure, low, high, draw(lines(60)), draw(TIMES), draw(WORDS))


ANSWERS = st.builds(
    Answer,
    WORDS,
    TIMES,
    st.lists(quotes(), max_size=4).map(tuple),
    st.lists(risks(), max_size=4).map(tuple),
    st.lists(lines(400), max_size=4).map(tuple),
    st.booleans(),
    st.booleans(),
)


def price(zone: str, usd: str, at: str, **more: str) -> dict[str, str]:
    """A row of AWS's history as its command line prints it."""
    row = {"AvailabilityZone": zone, "InstanceType": "p4d.24xlarge", "ProductDescription": "Linux/UNIX"}
    return {**row, "SpotPrice": usd, "Timestamp": at, **more}


HISTORY = [
    price("us-east-1a", "9.831600", "2026-12-01T10:00:00+00:00"),
    price("us-east-1-bos-1a", "12.012345", "2026-11-30T00:00:00+00:00"),
    price("us-east-1a", "3.0", "2026-11-30T00:00:00+00:00", ProductDescription="Windows"),
]
ZONES = [
    {"ZoneName": "us-east-1a", "ZoneId": "use1-az4", "RegionName": "us-east-1"},
    {"ZoneName": "us-east-1-bos-1a", "ZoneId": "use1-bos1-az1", "RegionName": "us-east-1"},
]
SCORES = [
    {"sku": "Standard_ND96asr_v4", "region": "eastus", "score": "High", "isQuotaAvailable": True},
    {"sku": "Standard_ND96asr_v4", "region": "westus2", "score": "DataNotFoundOrStale"},
]
# What sources answer, as somebody saved it, by the source.
SAVED: dict[str, dict[str, Any]] = {
    "aws-advisor": ADVISOR,
    "aws-prices": {"SpotPriceHistory": HISTORY, "AvailabilityZones": ZONES},
    "azure-prices": {"BillingCurrency": "USD", "Items": AzureMarket().rows, "NextPageLink": None},
    "azure-evictions": {"data": [*AzureMarket().evictions, *AzureMarket().history], "totalRecords": 4},
    "azure-scores": {"desiredCount": 1, "placementScores": SCORES},
    "gcp-prices": {"skus": a2_skus(), "nextPageToken": ""},
    "vast": {"offers": VastMarket().offers},
}
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text(max_size=8), LEAVES, max_size=3)


@st.composite
def damaged(draw: st.DrawFn, whole: Any) -> Any:
    """A copy of a JSON value in which something, anywhere, is another value."""
    if isinstance(whole, dict) and whole and draw(st.integers(0, 7)):
        key = draw(st.sampled_from(sorted(whole)))
        return {**whole, key: draw(damaged(whole[key]))}
    if isinstance(whole, list) and whole and draw(st.integers(0, 7)):
        n = draw(st.integers(0, len(whole) - 1))
        return [*whole[:n], draw(damaged(whole[n])), *whole[n + 1 :]]
    return draw(VALUES)
