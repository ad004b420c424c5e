"""What all stand-ins have in common: faults, the record, and scripting from another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientError, ClientSession, ClientTimeout

from outlast.simulations import standins
from outlast.simulations.standins import AwsStandIn, AzureStandIn, GcpStandIn, StandIn

KEY = "/computeMetadata/v1/instance/preempted"


@pytest.fixture
async def http() -> AsyncIterator[ClientSession]:
    """A plain client that gives up after a second."""
    headers = {"Metadata-Flavor": "Google"}
    async with ClientSession(headers=headers, timeout=ClientTimeout(total=1.0)) as session:
        yield session


@pytest.mark.parametrize(
    ("kind", "status"), [("503", 503), ("429", 429), ("html", 200), ("empty", 200), ("garbage", 200)]
)
async def test_standin_answers_wrongly_for_a_count(http: ClientSession, kind: str, status: int) -> None:
    """A fault with a count is met that often, then all is well."""
    async with GcpStandIn() as endpoint:
        endpoint.misbehave(kind, count=1)
        async with http.get(endpoint.url + KEY) as answer:
            assert (answer.status, await answer.text(errors="replace") == "FALSE") == (status, False)
        async with http.get(endpoint.url + KEY) as answer:
            assert (answer.status, await answer.text()) == (200, "FALSE")


@pytest.mark.parametrize("kind", ["half", "drop", "hang"])
async def test_standin_breaks_the_answer_off(http: ClientSession, kind: str) -> None:
    """A dropped, cut or hanging request never becomes an answer, and is recorded as unanswered."""
    async with GcpStandIn() as endpoint:
        endpoint.misbehave(kind)
        with pytest.raises((ClientError, TimeoutError)):
            async with http.get(endpoint.url + KEY) as answer:
                await answer.read()
        async with asyncio.timeout(5.0):
            while not any(seen.status is None for seen in endpoint.requests):
                await endpoint.script.change(1.0)


async def test_standin_misbehaves_for_a_time(http: ClientSession) -> None:
    """A fault with a duration ends by itself."""
    async with GcpStandIn() as endpoint:
        endpoint.misbehave("503", for_s=0.2)
        statuses = set()
        async with asyncio.timeout(5.0):
            while 200 not in statuses:
                async with http.get(endpoint.url + KEY) as answer:
                    statuses.add(answer.status)
        assert statuses == {200, 503}


@pytest.mark.parametrize("kind", ["200", "999", "banana", ""])
async def test_standin_knows_its_faults(kind: str) -> None:
    """A fault that does not exist is refused."""
    async with GcpStandIn() as endpoint:
        with pytest.raises(ValueError, match="not known"):
            endpoint.misbehave(kind)


async def test_standin_is_scripted_over_http(http: ClientSession) -> None:
    """Notice, withdrawal, hint and fault can be set by POST; the log tells requests and changes."""
    async with GcpStandIn() as endpoint:
        for what, body in (
            ("notice", {"action": "terminate", "in_s": 30}),
            ("withdraw", {}),
            ("hint", {}),
            ("misbehave", {"kind": "503", "count": 1}),
        ):
            async with http.post(f"{endpoint.url}/_standin/{what}", json=body) as answer:
                assert answer.status == 200
        async with http.get(endpoint.url + KEY) as answer:
            assert answer.status == 503
        async with http.get(f"{endpoint.url}/_standin/log") as answer:
            log = await answer.json()
        assert [change["what"] for change in log["changes"]] == ["notice", "withdraw", "hint", "misbehave"]
        assert [(seen["path"], seen["status"]) for seen in log["requests"]] == [(KEY, 503)]
        assert log["changes"][0]["monotonic"] <= log["requests"][0]["monotonic"] <= log["monotonic"]


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("notice", '{"in_s": "soon"}'),
        ("notice", '{"action": "explode"}'),
        ("misbehave", '{"kind": 3}'),
        ("hint", '{"kind": "no such"}'),
        ("nothing", "{}"),
        ("notice", "{"),
        ("notice", "[]"),
    ],
)
async def test_standin_refuses_a_bad_script(http: ClientSession, what: str, body: str) -> None:
    """A request that cannot be carried out is 400 with a reason and changes nothing."""
    async with AwsStandIn() as endpoint:
        async with http.post(f"{endpoint.url}/_standin/{what}", data=body) as answer:
            assert answer.status == 400
            assert (await answer.json())["because"]
        assert endpoint.changes == []


@pytest.mark.parametrize(
    ("endpoint", "what", "body"),
    [
        (AwsStandIn(), "show", {"key": "spot/instance-action", "text": "x"}),
        (AwsStandIn(), "expire", {}),
        (GcpStandIn(), "show", {"key": "preempted", "text": "maybe"}),
        (AzureStandIn(), "event", {"kind": "Preempt", "resources": ["other"], "not_before": ""}),
        (AzureStandIn(), "vanish", {"id": "x"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_standin_has_words_of_its_own(
    http: ClientSession, endpoint: StandIn, what: str, body: dict[str, object]
) -> None:
    """What only one provider has can be scripted from outside as well."""
    async with endpoint, http.post(f"{endpoint.url}/_standin/{what}", json=body) as answer:
        assert answer.status == 200
        assert [change.what for change in endpoint.changes] == [what]


async def test_standin_cannot_share_a_port() -> None:
    """A second stand-in on one port is an OSError and leaves the first one alone."""
    async with standins.create("aws") as first:
        second = standins.create("aws", port=int(first.url.rpartition(":")[2]))
        with pytest.raises(OSError, match="address already in use"):
            await second.start()
