"""The Google Cloud stand-in, asked as any HTTP client would ask it."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import ClientSession

from outlast.simulations.standins import GcpStandIn

FLAVOR = {"Metadata-Flavor": "Google"}
KEY = "/computeMetadata/v1/instance/preempted"


async def ask(url: str, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Status, text and ETag of a GET."""
    async with ClientSession() as http, http.get(url, headers=headers) as answer:
        return answer.status, await answer.text(), answer.headers.get("ETag", "")


@pytest.mark.parametrize("headers", [{}, {"Metadata-Flavor": "x"}, FLAVOR | {"X-Forwarded-For": "10.0.0.1"}])
async def test_gcp_refuses_without_flavour(headers: dict[str, str]) -> None:
    """A request without the header, or forwarded, is 403."""
    async with GcpStandIn() as endpoint:
        assert (await ask(endpoint.url + KEY, headers))[0] == 403


async def test_gcp_etag_follows_the_value() -> None:
    """The ETag changes with the value, also when the value comes back."""
    async with GcpStandIn() as endpoint:
        _, before, first = await ask(endpoint.url + KEY, FLAVOR)
        endpoint.notice()
        _, during, second = await ask(endpoint.url + KEY, FLAVOR)
        endpoint.withdraw()
        _, after, third = await ask(endpoint.url + KEY, FLAVOR)
        assert (before, during, after) == ("FALSE", "TRUE", "FALSE")
        assert len({first, second, third}) == 3


async def test_gcp_a_hang_ends_at_the_change() -> None:
    """A hang is answered when the value changes."""
    async with GcpStandIn() as endpoint:
        wait = f"{endpoint.url}{KEY}?wait_for_change=true"
        hang = asyncio.create_task(ask(wait, FLAVOR))
        await endpoint.script.change(5.0)
        assert not hang.done()
        endpoint.notice()
        assert (await asyncio.wait_for(hang, 5.0))[:2] == (200, "TRUE")


async def test_gcp_a_hang_ends_at_its_timeout() -> None:
    """Without a change a hang ends after timeout_sec with the present value, TRUE or not."""
    async with GcpStandIn() as endpoint:
        endpoint.notice()
        began = time.monotonic()
        told = await ask(f"{endpoint.url}{KEY}?wait_for_change=true&timeout_sec=1", FLAVOR)
        assert told[:2] == (200, "TRUE")
        assert time.monotonic() - began >= 0.95


async def test_gcp_a_known_old_etag_answers_at_once() -> None:
    """A last_etag that is not the present one is answered at once."""
    async with GcpStandIn() as endpoint:
        wait = f"{endpoint.url}{KEY}?wait_for_change=true&last_etag=0"
        assert (await asyncio.wait_for(ask(wait, FLAVOR), 5.0))[:2] == (200, "FALSE")


async def test_gcp_a_hang_can_break() -> None:
    """A fault set while a request hangs is that request's answer."""
    async with GcpStandIn() as endpoint:
        hang = asyncio.create_task(ask(f"{endpoint.url}{KEY}?wait_for_change=true", FLAVOR))
        await endpoint.script.change(5.0)
        endpoint.misbehave("503", count=1)
        assert (await asyncio.wait_for(hang, 5.0))[0] == 503
        assert (await ask(endpoint.url + KEY, FLAVOR))[0] == 200
