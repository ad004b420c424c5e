"""The AWS stand-in, asked as any HTTP client would ask it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession
from tests.conftest import ManualClock

from outlast.simulations.standins import AwsStandIn

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
SESSION = "X-aws-ec2-metadata-token"
ACTION = "/latest/meta-data/spot/instance-action"


@pytest.fixture
async def http() -> AsyncIterator[ClientSession]:
    """A plain client."""
    async with ClientSession() as session:
        yield session


async def token(http: ClientSession, endpoint: AwsStandIn, ttl: str = "60") -> dict[str, str]:
    """The header of a new session."""
    async with http.put(f"{endpoint.url}/latest/api/token", headers={TTL: ttl}) as answer:
        assert (answer.status, answer.headers[TTL]) == (200, ttl)
        return {SESSION: await answer.text()}


async def status(http: ClientSession, url: str, headers: dict[str, str] | None = None) -> int:
    """The status of a GET."""
    async with http.get(url, headers=headers) as answer:
        return answer.status


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, 400),
        ({TTL: "0"}, 400),
        ({TTL: "99999"}, 400),
        ({TTL: "x"}, 400),
        ({TTL: "60", "X-Forwarded-For": "10.0.0.1"}, 403),
    ],
)
async def test_aws_refuses_a_bad_token_request(
    http: ClientSession, headers: dict[str, str], refused: int
) -> None:
    """A token needs a lifetime of 1 to 21600 s and no forwarding."""
    async with (
        AwsStandIn() as endpoint,
        http.put(f"{endpoint.url}/latest/api/token", headers=headers) as answer,
    ):
        assert answer.status == refused


async def test_aws_has_no_version_1(http: ClientSession) -> None:
    """Without a token, or with one never given, each path is 401; with one, 404 where there is nothing."""
    async with AwsStandIn() as endpoint:
        url = endpoint.url + ACTION
        assert await status(http, url) == 401
        assert await status(http, url, {SESSION: "made-up"}) == 401
        async with http.get(url, headers=await token(http, endpoint)) as answer:
            assert answer.status == 404
            assert "<html" in await answer.text()


async def test_aws_tokens_end(http: ClientSession, manual_clock: ManualClock) -> None:
    """A token is refused after its lifetime, after its number of requests, and when all are expired."""
    async with AwsStandIn(clock=manual_clock, token_requests=2) as endpoint:
        url = endpoint.url + ACTION
        first = await token(http, endpoint)
        assert [await status(http, url, first) for _ in range(3)] == [404, 404, 401]
        second = await token(http, endpoint)
        manual_clock.advance(60.0)
        assert await status(http, url, second) == 401
        third = await token(http, endpoint)
        endpoint.expire_tokens()
        assert await status(http, url, third) == 401


async def test_aws_shows_and_withdraws(http: ClientSession, manual_clock: ManualClock) -> None:
    """A notice has action and time in both keys, stays as it is, and can be withdrawn."""
    async with AwsStandIn(clock=manual_clock) as endpoint:
        session = await token(http, endpoint, "21600")
        endpoint.notice("terminate", 120.0)
        for _ in range(2):
            async with http.get(endpoint.url + ACTION, headers=session) as answer:
                told = await answer.json(content_type=None)
            assert told == {"action": "terminate", "time": "2027-01-15T08:02:00Z"}
            manual_clock.advance(1.0)
        old = endpoint.url + "/latest/meta-data/spot/termination-time"
        async with http.get(old, headers=session) as answer:
            assert await answer.text() == "2027-01-15T08:02:00Z"
        endpoint.withdraw()
        assert await status(http, endpoint.url + ACTION, session) == 404
        endpoint.show("spot/termination-time", "soon")
        async with http.get(old, headers=session) as answer:
            assert await answer.text() == "soon"
