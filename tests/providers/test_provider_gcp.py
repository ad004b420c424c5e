"""Google Cloud in particular: hangs, ETags, flavour, exact values."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.providers.conftest import Bench

from outlast.providers.base import Unknown, View
from outlast.simulations.standins import GcpStandIn


async def test_a_change_is_seen_at_once(bench: Bench) -> None:
    """From the flag's flip to the sighting it takes at most 50 ms, time after time."""
    delays = []
    async with GcpStandIn() as endpoint:
        watch = await bench.watch(endpoint, hang_s=10)
        await watch.quiet()
        for _ in range(10):
            waiting = asyncio.create_task(watch.noticed())
            await asyncio.sleep(0.03)
            endpoint.notice()
            await waiting
            delays.append(time.monotonic() - endpoint.changes[-1].monotonic)
            endpoint.withdraw()
            await watch.quiet()
    assert sorted(delays)[-2] <= 0.05, delays


async def test_a_hang_costs_few_requests(bench: Bench) -> None:
    """While nothing changes, each key is asked once a hang, not once a poll."""
    async with GcpStandIn() as endpoint:
        watch = await bench.watch(endpoint, hang_s=1)
        began = time.monotonic()
        while time.monotonic() - began < 2.0:
            assert isinstance(await watch.next(), View)
        assert sum("preempted" in r.path for r in endpoint.requests) <= 5


async def test_the_default_budget_is_thirty_seconds(bench: Bench) -> None:
    """The flag has no time: 30 s count from the first sighting, or what is configured."""
    async with GcpStandIn() as endpoint:
        endpoint.notice()
        for told, budget in ((None, 30.0), (120.0, 120.0)):
            seen = await (await bench.watch(endpoint, notice_s=told)).noticed()
            assert seen.notices[0].deadline == pytest.approx(seen.at + budget)


async def test_a_foreign_server_is_unknown(bench: Bench) -> None:
    """An answer without Metadata-Flavor is not Google's."""
    async with GcpStandIn(flavor=False) as endpoint:
        endpoint.notice()
        seen = await (await bench.watch(endpoint)).next()
        assert isinstance(seen, Unknown)
        assert "Google" in seen.because


@pytest.mark.parametrize("text", ["true", "TRUE FALSE", "", "1", "NONE"])
async def test_only_exact_values_count(bench: Bench, text: str) -> None:
    """Anything but TRUE or FALSE is Unknown."""
    async with GcpStandIn() as endpoint:
        endpoint.show("preempted", text)
        assert isinstance(await (await bench.watch(endpoint)).next(), Unknown)


@pytest.mark.parametrize("fault", ["503", "drop", "html"])
async def test_a_broken_hang_is_taken_up_again(bench: Bench, fault: str) -> None:
    """A hang that breaks in the middle is taken up at once, and a flip made meanwhile is seen."""
    async with GcpStandIn() as endpoint:
        watch = await bench.watch(endpoint, hang_s=10)
        await watch.quiet()
        await endpoint.asked("preempted", 0)
        waiting = asyncio.create_task(watch.noticed())
        await asyncio.sleep(0.05)
        endpoint.misbehave(fault, count=1, path="preempted")
        endpoint.notice()
        began = time.monotonic()
        await waiting
        assert time.monotonic() - began < 0.5


async def test_maintenance_alone_does_not_blind(bench: Bench) -> None:
    """A maintenance key that fails leaves the flag's watch as it is."""
    async with GcpStandIn() as endpoint:
        endpoint.misbehave("503", path="maintenance-event")
        watch = await bench.watch(endpoint)
        for _ in range(3):
            assert isinstance(await watch.next(), View)


@pytest.mark.parametrize("etags", [True, False])
async def test_an_endpoint_that_does_not_hang_is_polled(bench: Bench, *, etags: bool) -> None:
    """An endpoint that answers at once instead of hanging is asked at the configured pace."""
    async with GcpStandIn() as endpoint:
        endpoint.hangs, endpoint.etags = False, etags
        watch = await bench.watch(endpoint, poll_s=0.2)
        began = time.monotonic()
        while time.monotonic() - began < 1.0:
            await watch.next()
        assert 4 <= sum("preempted" in r.path for r in endpoint.requests) <= 9
        endpoint.notice()
        assert (await watch.noticed()).notices


async def test_sight_is_back_at_once_after_a_broken_hang(bench: Bench) -> None:
    """After a hang that broke with nothing changed, the next view comes at once, not when a hang ends."""
    async with GcpStandIn() as endpoint:
        watch = await bench.watch(endpoint, hang_s=10)
        await watch.quiet()
        waiting = asyncio.create_task(watch.unknown())
        await asyncio.sleep(0.1)
        endpoint.misbehave("503", count=1, path="preempted")
        await waiting
        began = time.monotonic()
        await watch.quiet()
        assert time.monotonic() - began < 1.0
