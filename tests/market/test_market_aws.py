"""AWS's prices against a real server of EC2's interface, and what that server lacks against a stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from tests.market.conftest import SECRET, Asked, SkippingClock, access_to, texts

from outlast.providers.market import registry
from outlast.providers.market.aws_door import AwsDoor
from outlast.providers.market.base import Answer, Want
from outlast.simulations.standins.market import AwsMarket

PRICES = pytest.mark.parametrize("asked", ["aws-prices"], indirect=True)
SCORES = pytest.mark.parametrize("asked", ["aws-scores"], indirect=True)
REGIONS = ("us-east-1", "eu-west-1")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that speaks EC2's interface, with its own zones and offerings."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


async def answered(name: str, server: str, clock: SkippingClock, want: Want) -> Answer:
    """What a source has from the real server."""
    access = access_to(None, clock)
    source = registry.create(name, replace(access, endpoints={**access.endpoints, "ec2": server}))
    try:
        return await source.ask(want, clock.monotonic() + 60.0)
    finally:
        await source.close()


def ec2(server: str, region: str) -> Any:
    """AWS's own client, for what the server says itself."""
    return boto3.client("ec2", endpoint_url=server, region_name=region)


def pools(server: str, region: str, kind: str) -> set[tuple[str, str, str]]:
    """Region, zone id and type of each zone where the server offers ``kind``."""
    client = ec2(server, region)
    zones = {z["ZoneName"]: z["ZoneId"] for z in client.describe_availability_zones()["AvailabilityZones"]}
    offered = client.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [kind]}]
    )
    return {(region, zones[row["Location"]], kind) for row in offered["InstanceTypeOfferings"]}


async def test_prices_come_under_zone_ids(server: str, clock: SkippingClock) -> None:
    """Each zone that offers a type has its price, under the id that is the same in every account."""
    kinds = ("g5.xlarge", "p4d.24xlarge")
    answer = await answered("aws-prices", server, clock, Want(kinds, REGIONS))
    expected = {pool for region in REGIONS for kind in kinds for pool in pools(server, region, kind)}
    assert len(expected) > 8
    assert {(q.region, q.zone, q.instance_type) for q in answer.quotes} == expected
    assert {(q.provider, q.kind, q.micro_usd) for q in answer.quotes} == {("aws", "spot", 10)}
    assert answer.complete


async def test_the_regions_are_those_of_the_account(server: str, clock: SkippingClock) -> None:
    """AWS's own list of them, which is asked for where none is named."""
    door = AwsDoor(replace(access_to(None, clock), endpoints={"ec2": server}))
    page = await door.call("us-east-1", "describe_regions", clock.monotonic() + 60.0)
    await door.close()
    assert page["Regions"] == ec2(server, "us-east-1").describe_regions()["Regions"]
    assert {"us-east-1", "eu-west-1"} <= {row["RegionName"] for row in page["Regions"]}


async def test_a_type_that_is_offered_nowhere_is_no_trouble(server: str, clock: SkippingClock) -> None:
    """No price is a whole answer."""
    answer = await answered("aws-prices", server, clock, Want(("p99.xlarge",), ("us-east-1",)))
    assert (answer.quotes, answer.complete) == ((), True)


async def test_a_region_that_does_not_exist_stops_no_other(server: str, clock: SkippingClock) -> None:
    """What is wrong with one region is said with its name; the others' prices are there."""
    answer = await answered("aws-prices", server, clock, Want(("g5.xlarge",), ("us-east-1", "us-east-9")))
    assert {q.region for q in answer.quotes} == {"us-east-1"}
    assert not answer.complete
    assert "us-east-9" in answer.lacks[-1]


async def test_what_a_server_does_not_know_is_a_lack(server: str, clock: SkippingClock) -> None:
    """An interface without placement scores gives none, and no traceback."""
    answer = await answered("aws-scores", server, clock, Want(("g5.xlarge",), ("us-east-1",)))
    assert (answer.quotes, answer.risks, answer.complete) == ((), (), False)
    assert "get_spot_placement_scores in us-east-1" in answer.lacks[0]


@pytest.mark.parametrize("name", ["aws-prices", "aws-scores"])
async def test_without_credentials_it_says_how_to_give_some(
    name: str, server: str, clock: SkippingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text names what to set."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it would remember those of an earlier test
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    answer = await answered(name, server, clock, Want(("g5.xlarge",), ("us-east-1",)))
    assert not answer.complete
    assert "AWS_PROFILE" in answer.lacks[-1]


async def test_without_boto3_it_says_what_to_install(
    server: str, clock: SkippingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing SDK is a lack, and never fails the command."""
    monkeypatch.setitem(sys.modules, "botocore.exceptions", None)
    answer = await answered("aws-prices", server, clock, Want(("g5.xlarge",), ("us-east-1",)))
    assert not answer.complete
    assert "pip install 'outlast[aws]'" in answer.lacks[-1]


def market_of(asked: Asked) -> AwsMarket:
    """The stand-in."""
    assert isinstance(asked.market, AwsMarket)
    return asked.market


def told(asked: Asked, action: str) -> list[dict[str, str]]:
    """The forms of an action, in order."""
    return [form for form in asked.market.bodies if form["Action"] == action]


@PRICES
async def test_pages_are_asked_for_by_their_token(asked: Asked) -> None:
    """Every page but the first is asked for by the token of the one before, with the same question."""
    market = market_of(asked)
    market.page_size = 1
    answer = await asked.ask(Want(("p4d.24xlarge", "g5.xlarge"), ("us-east-1",), days=7.0))
    forms = told(asked, "DescribeSpotPriceHistory")
    assert [form.pop("NextToken", "") for form in forms] == ["", "1", "2"]
    assert forms[0] == forms[1] == forms[2]
    assert [forms[0][f"InstanceType.{n}"] for n in (1, 2)] == ["g5.xlarge", "p4d.24xlarge"]
    assert forms[0]["StartTime"].startswith("2026-11-25T")
    assert len(answer.quotes) == 3


@PRICES
async def test_no_more_than_90_days_are_asked_for(asked: Asked) -> None:
    """AWS keeps no more."""
    await asked.ask(Want(("p4d.24xlarge",), ("us-east-1",), days=365.0))
    (form, *_others) = told(asked, "DescribeSpotPriceHistory")
    assert form["StartTime"].startswith("2026-09-03T")


@PRICES
async def test_pages_that_go_in_a_circle_end(asked: Asked) -> None:
    """A token that comes back is said; the prices before it count, and none twice."""
    market_of(asked).circle = True
    answer = await asked.ask()
    assert not answer.complete
    assert "circle" in answer.lacks[-1]
    assert len(answer.quotes) == 3
    assert len(told(asked, "DescribeSpotPriceHistory")) == 2


@PRICES
async def test_a_zone_without_an_id_is_said_and_left_out(asked: Asked) -> None:
    """A letter means other zones in other accounts: its price is not kept under it."""
    del market_of(asked).zones["us-east-1"]["us-east-1b"]
    answer = await asked.ask()
    assert {q.zone for q in answer.quotes} == {"use1-az4"}
    assert not answer.complete
    assert any("us-east-1: no zone id is known of us-east-1b" in line for line in answer.lacks)


@PRICES
async def test_an_id_that_comes_with_the_price_counts(asked: Asked) -> None:
    """Where AWS names the id itself, no other list is believed over it."""
    market_of(asked).history[0]["availabilityZoneId"] = "use1-az2"
    answer = await asked.ask()
    assert (answer.quotes[0].zone, answer.quotes[0].micro_usd) == ("use1-az2", 9_831_600)


@PRICES
async def test_what_is_no_price_of_linux_is_left_out(asked: Asked) -> None:
    """Windows, absurd prices and times that are none are no prices; the rest of the page is."""
    market = market_of(asked)
    good = market.history[0]
    wrong: list[dict[str, str]] = [
        {"productDescription": "Windows"},
        {"spotPrice": "0"},
        {"spotPrice": "-1"},
        {"spotPrice": "1e9"},
        {"spotPrice": "NaN"},
        {"instanceType": ""},
    ]
    market.history = [*({**good, **row} for row in wrong), good]
    answer = await asked.ask()
    assert [q.micro_usd for q in answer.quotes] == [9_831_600]


@PRICES
async def test_a_refused_action_is_named_and_the_account_is_not(asked: Asked) -> None:
    """AWS's own words may hold the account: only its code is said, and what to do."""
    market_of(asked).refusals = {"DescribeSpotPriceHistory": "UnauthorizedOperation"}
    answer = await asked.ask()
    assert not answer.complete
    assert "describe_spot_price_history in us-east-1" in answer.lacks[-1]
    assert "UnauthorizedOperation" in answer.lacks[-1]
    assert "IAM" in answer.lacks[-1]
    assert not any(part in text for part in ("123456789012", SECRET) for text in texts(answer))


@PRICES
async def test_a_region_that_refuses_stops_no_other(asked: Asked) -> None:
    """An opt-in region that the account has not joined costs its own prices only."""
    market = market_of(asked)
    market.zones["me-south-1"] = {"me-south-1a": "mes1-az1"}
    market.refusals = {"me-south-1": "OptInRequired"}
    answer = await asked.ask(Want(("p4d.24xlarge",)))
    assert {q.region for q in answer.quotes} == {"us-east-1"}
    assert answer.lacks[-1].endswith("describe_availability_zones in me-south-1: AWS answers OptInRequired")


@SCORES
async def test_scores_are_asked_for_each_type_alone(asked: Asked) -> None:
    """A question with several types is answered for all of them together, which is no type's score."""
    kinds = ("g5.xlarge", "p4d.24xlarge")
    answer = await asked.ask(Want(kinds, ("us-east-1", "us-west-2"), count=16))
    forms = [form for form in told(asked, "GetSpotPlacementScores") if "NextToken" not in form]
    assert sorted(form["InstanceType.1"] for form in forms) == sorted(kinds)
    for form in forms:
        assert "InstanceType.2" not in form
        assert (form["TargetCapacity"], form["TargetCapacityUnitType"]) == ("16", "units")
        assert form["SingleAvailabilityZone"] == "true"
        assert [form["RegionName.1"], form["RegionName.2"]] == ["us-east-1", "us-west-2"]
    assert {(r.zone, r.instance_type, r.low) for r in answer.risks} == {
        (zone, kind, score)
        for kind in kinds
        for zone, score in (("use1-az4", 9.0), ("use1-az6", 3.0), ("usw2-az1", 1.0))
    }


@SCORES
async def test_scores_of_more_than_ten_types_are_not_asked_for(asked: Asked) -> None:
    """AWS lets an account ask few new questions a day; what is left out is said."""
    answer = await asked.ask(Want(tuple(f"g5.{n}xlarge" for n in range(1, 14)), ("us-east-1",)))
    assert len({form["InstanceType.1"] for form in told(asked, "GetSpotPlacementScores")}) == 10
    assert any("10 of 13 types" in line for line in answer.lacks)


@SCORES
async def test_a_score_that_is_none_is_left_out(asked: Asked) -> None:
    """AWS's scores are whole numbers from 1 to 10; a score of a whole region has no zone."""
    market = market_of(asked)
    market.scores = [{"region": "us-east-1", "score": score} for score in (0, 11, -3, 10)]
    answer = await asked.ask()
    assert [(r.zone, r.low, r.high, r.text) for r in answer.risks] == [("", 10.0, 10.0, "10")]
