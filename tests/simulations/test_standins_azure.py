"""The Azure stand-in, asked as any HTTP client would ask it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession
from tests.conftest import ManualClock

from outlast.simulations.standins import AzureStandIn

PATH = "/metadata/scheduledevents?api-version=2020-07-01"
HEADER = {"Metadata": "true"}


@pytest.fixture
async def http() -> AsyncIterator[ClientSession]:
    """A plain client that sends Azure's header."""
    async with ClientSession(headers=HEADER) as session:
        yield session


async def document(http: ClientSession, endpoint: AzureStandIn) -> dict[str, Any]:
    """The document of events."""
    async with http.get(endpoint.url + PATH) as answer:
        assert answer.status == 200
        told: dict[str, Any] = await answer.json()
        return told


async def test_azure_refuses_without_header_or_version() -> None:
    """A request without `Metadata: true` or without an api-version is 400."""
    async with AzureStandIn() as endpoint, ClientSession() as http:
        for path, headers in ((PATH, {}), ("/metadata/scheduledevents", HEADER)):
            async with http.get(endpoint.url + path, headers=headers) as answer:
                assert answer.status == 400


async def test_azure_allows_five_requests_a_second(http: ClientSession, manual_clock: ManualClock) -> None:
    """The sixth request within a second is 429; a second later all is well."""
    async with AzureStandIn(clock=manual_clock) as endpoint:
        for wanted in (200, 200, 200, 200, 200, 429):
            async with http.get(endpoint.url + PATH) as answer:
                assert answer.status == wanted
        manual_clock.advance(1.0)
        await document(http, endpoint)


async def test_azure_takes_its_time_once(http: ClientSession) -> None:
    """The first answer is late by the delay that was set, the next one is not."""
    async with AzureStandIn(first_delay_s=0.5) as endpoint:
        began = time.monotonic()
        await document(http, endpoint)
        first = time.monotonic()
        await document(http, endpoint)
        assert first - began >= 0.45
        assert time.monotonic() - first < 0.3


async def test_azure_events_start_and_vanish(http: ClientSession, manual_clock: ManualClock) -> None:
    """A scheduled event starts at its time with a blank NotBefore; each change has a new incarnation."""
    async with AzureStandIn(clock=manual_clock) as endpoint:
        nothing = await document(http, endpoint)
        assert nothing == {"DocumentIncarnation": 1, "Events": []}
        endpoint.notice(in_s=30.0)
        scheduled = await document(http, endpoint)
        assert scheduled["Events"][0]["NotBefore"] == "Fri, 15 Jan 2027 08:00:30 GMT"
        manual_clock.advance(30.0)
        started = await document(http, endpoint)
        assert (started["Events"][0]["EventStatus"], started["Events"][0]["NotBefore"]) == ("Started", "")
        assert started["Events"][0]["EventId"] == scheduled["Events"][0]["EventId"]
        endpoint.withdraw()
        gone = await document(http, endpoint)
        assert [d["DocumentIncarnation"] for d in (nothing, scheduled, started, gone)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "body", ["", "{}", "[]", '{"StartRequests": [{"EventId": "other"}]}', '{"StartRequests": 1}']
)
async def test_azure_refuses_a_bad_acknowledgement(http: ClientSession, body: str) -> None:
    """An acknowledgement that names no event of the document is 400 and starts nothing."""
    async with AzureStandIn() as endpoint:
        endpoint.notice()
        async with http.post(endpoint.url + PATH, data=body) as answer:
            assert answer.status == 400
        assert endpoint.acknowledged == []
        assert (await document(http, endpoint))["Events"][0]["EventStatus"] == "Scheduled"


async def test_azure_an_acknowledged_event_starts(http: ClientSession) -> None:
    """An acknowledged event starts at once."""
    async with AzureStandIn() as endpoint:
        key = endpoint.event("Preempt")
        body = json.dumps({"StartRequests": [{"EventId": key}]})
        async with http.post(endpoint.url + PATH, data=body) as answer:
            assert answer.status == 200
        assert (await document(http, endpoint))["Events"][0]["EventStatus"] == "Started"
        assert endpoint.acknowledged == [key]


async def test_azure_a_late_first_answer_can_be_given_up(http: ClientSession) -> None:
    """Closing the stand-in lets a request go that still waits for the first answer."""
    endpoint = AzureStandIn(first_delay_s=60.0)
    await endpoint.start()
    asked = asyncio.create_task(document(http, endpoint))
    await endpoint.script.change(5.0)
    await asyncio.wait_for(endpoint.close(), 5.0)
    await asyncio.gather(asked, return_exceptions=True)
