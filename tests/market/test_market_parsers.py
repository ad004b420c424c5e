"""Whatever arrives in place of an answer: figures that can be believed, or a lack; never an exception."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.market.conftest import WANTS, SkippingClock, access_to, provider_of, texts
from tests.market.samples import SAVED, VALUES, damaged

from outlast.providers.base import ProviderError
from outlast.providers.market import registry, saved
from outlast.providers.market.aws_history import spot_prices, zone_ids
from outlast.providers.market.aws_scores import scores
from outlast.providers.market.base import Answer, Quote, Risk
from outlast.providers.market.gcp_advice import advice_risks, past_prices, preemption_risks
from outlast.providers.market.gcp_prices import part_prices
from outlast.providers.market.own_json import MOST_MICRO, own_answers
from outlast.providers.market.reading import YEAR_10000, decode_object, rows
from outlast.providers.market.runpod import pod_prices, pod_stock
from outlast.simulations.standins import market as standins

AT = 1_796_200_000.0
PLACE = ("gcp", "us-central1", "us-central1-a", "a2-highgpu-1g")
Told = Iterator[Quote | Risk]


def _advice(body: dict[str, Any]) -> Told:
    yield from advice_risks(body, "us-central1", "a2-highgpu-1g", AT, "gcp-advice")


def _history(body: dict[str, Any]) -> Told:
    yield from preemption_risks(body, PLACE, 0.0, "gcp-advice")
    yield from past_prices(body, PLACE, 0.0, "gcp-advice")


def _pods(body: dict[str, Any]) -> Told:
    found = rows(body.get("data"), "gpuTypes", "runpod")
    yield from pod_prices(found, "US-KS-2", AT, "runpod")
    yield from pod_stock(found, "US-KS-2", AT, "runpod")


def _scores(body: dict[str, Any]) -> Told:
    yield from scores(rows(body, "SpotPlacementScores", "aws-scores"), "g5.xlarge", AT, "aws-scores")


def _own(body: dict[str, Any]) -> Told:
    for answer in own_answers(body):
        yield from told(answer)


def told(answer: Answer) -> Told:
    """Everything in an answer."""
    yield from answer.quotes
    yield from answer.risks


def _saved(body: dict[str, Any]) -> Told:
    yield from told(saved.read(body, AT))


DAY = {"startTime": "2026-11-29T08:00:00Z", "endTime": "2026-11-30T08:00:00Z"}
SHARD = {"zone": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a"}
POD = {"minimumBidPrice": 0.79, "uninterruptablePrice": 1.89, "stockStatus": "High"}
# A parser, and an answer that it reads.
PARSERS: dict[str, tuple[Callable[[dict[str, Any]], Told], dict[str, Any]]] = {
    **{name: (_saved, body) for name, body in SAVED.items()},
    "gcp-advice": (
        _advice,
        {
            "recommendations": [
                {"scores": {"obtainability": 0.7, "estimatedUptime": "3600s"}, "shards": [SHARD]}
            ]
        },
    ),
    "gcp-history": (
        _history,
        {
            "preemptionHistory": [{"interval": DAY, "preemptionRate": 0.25}],
            "priceHistory": [
                {"interval": DAY, "listPrice": {"currencyCode": "USD", "units": "1", "nanos": 5}}
            ],
        },
    ),
    "runpod": (_pods, {"data": {"gpuTypes": [{"id": "NVIDIA L4", "maxGpuCount": 8, "n1": POD, "n8": POD}]}}),
    "aws-scores": (
        _scores,
        {"SpotPlacementScores": [{"Region": "us-east-1", "AvailabilityZoneId": "use1-az4", "Score": 9}]},
    ),
    "own": (
        _own,
        {
            "format": 1,
            "answers": [
                {
                    "source": "vast",
                    "at": AT,
                    "quotes": [
                        {
                            "provider": "vast",
                            "region": "SE",
                            "zone": "m1",
                            "instance_type": "1xL4",
                            "kind": "spot",
                            "micro_usd": 5,
                            "at": AT,
                            "source": "vast",
                        }
                    ],
                    "risks": [],
                    "lacks": ["vast: none"],
                }
            ],
        },
    ),
}


def believable(one: Quote | Risk) -> bool:
    """Whether a figure is one that can be worked with and shown, whoever sent it."""
    words = (one.provider, one.region, one.zone, one.instance_type)
    if not all(len(word) <= 140 and word.isprintable() for word in words):
        return False
    if not one.provider or not one.instance_type or not 0 <= one.at < YEAR_10000:
        return False
    if isinstance(one, Quote):
        return 0 < one.micro_usd <= MOST_MICRO
    return one.text.isprintable() and one.low <= one.high and math.isfinite(one.low + one.high)


@pytest.mark.parametrize("name", PARSERS)
def test_the_answer_itself_is_read(name: str) -> None:
    """What is damaged below is worth reading to begin with."""
    parser, whole = PARSERS[name]
    found = list(parser(decode_object(json.dumps(whole), name)))
    assert found
    assert all(believable(one) for one in found)


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
def test_a_damaged_answer_is_figures_or_refused(name: str, data: st.DataObject) -> None:
    """Any value in place of any other gives figures that can be believed, or a ProviderError."""
    parser, whole = PARSERS[name]
    body = json.dumps(data.draw(damaged(data.draw(damaged(whole)))))
    try:
        found = list(parser(decode_object(body, name)))
    except ProviderError:
        return
    assert all(believable(one) for one in found)


def test_a_unit_of_google_that_is_a_list_prices_nothing() -> None:
    """A list where a word is meant is passed over like any other unit, and the other parts are priced."""
    skus = json.loads(json.dumps(SAVED["gcp-prices"]["skus"]))
    assert part_prices(skus)
    skus[0]["pricingInfo"][0]["pricingExpression"]["usageUnit"] = ["h"]
    assert part_prices(skus) == part_prices(skus[1:])


@given(page=damaged(SAVED["aws-prices"]))
def test_damaged_history_of_aws_gives_what_can_be_believed(page: Any) -> None:
    """boto3's answers are read by the same functions; a list of zones that is none gives no ids."""
    body = page if isinstance(page, dict) else {}
    history = body.get("SpotPriceHistory")
    past = history if isinstance(history, list) else []
    found, unknown = spot_prices(past, "", zone_ids(body), "aws-prices")
    assert all(believable(one) for one in found)
    assert all(name.isprintable() for name in unknown)


BODIES = st.binary(max_size=200) | VALUES.map(json.dumps).map(str.encode)


@pytest.mark.parametrize("name", registry.NAMES)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bodies=st.lists(BODIES, min_size=1, max_size=4))
async def test_any_bytes_for_an_answer_make_no_figure(name: str, bodies: list[bytes]) -> None:
    """A source never raises for what it is sent, and shows none of it that cannot be printed."""
    clock = SkippingClock()
    async with standins.create(provider_of(name), clock=clock) as market:
        source = registry.create(name, access_to(market, clock))
        try:
            for body in bodies:
                market.says = body
                answer = await source.ask(WANTS[provider_of(name)], clock.monotonic() + 30.0)
                assert (answer.quotes, answer.risks) == ((), ())
                assert answer.lacks or answer.complete  # an empty list of prices is an answer
                assert all(text.isprintable() for text in texts(answer))
        finally:
            await source.close()
