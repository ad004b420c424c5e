"""Azure in particular: other VMs' events, times past and blank, the slow first answer, acknowledgement."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate

import pytest
from tests.providers.conftest import Bench

from outlast.providers.base import ProviderError, Unknown, View
from outlast.simulations.standins import AzureStandIn


async def test_t4_events_of_other_vms_and_kinds(bench: Bench) -> None:
    """T4: Preempt of another VM is nothing to us, Freeze of ours is a hint; neither is a notice."""
    async with AzureStandIn() as endpoint:
        endpoint.event("Preempt", resources=["vmss_7"], at_wall=time.time() + 30)
        endpoint.event("Freeze", resources=["vmss_3"], at_wall=time.time() + 900)
        seen = await (await bench.watch(endpoint)).next()
        assert isinstance(seen, View)
        assert seen.notices == ()
        assert [hint.kind for hint in seen.hints] == ["freeze"]


@pytest.mark.parametrize(
    ("not_before", "status"),
    [
        (formatdate(time.time() - 600, usegmt=True), "Scheduled"),
        ("", "Started"),
        ("", "Scheduled"),
        (formatdate(time.time() + 600, usegmt=True), "Started"),
    ],
)
async def test_t4_past_or_blank_means_now(bench: Bench, not_before: str, status: str) -> None:
    """T4: a Preempt whose NotBefore is past or blank, or that has started, has its deadline now."""
    async with AzureStandIn() as endpoint:
        endpoint.event("Preempt", not_before=not_before, status=status)
        seen = await (await bench.watch(endpoint)).next()
        assert isinstance(seen, View)
        assert seen.notices[0].deadline <= seen.at


async def test_t4_the_slow_first_answer_is_no_outage(bench: Bench) -> None:
    """T4: while the first answer is on its way the watch is silent, not Unknown, then it goes on."""
    from outlast.providers import azure

    assert azure.FIRST_TRY_S >= 130
    async with AzureStandIn(first_delay_s=azure.TRY_S + 1.0) as endpoint:
        endpoint.notice(in_s=60.0)
        seen = await (await bench.watch(endpoint)).next(azure.TRY_S + 5.0)
        assert isinstance(seen, View)
        assert len(seen.notices) == 1


async def test_t4_nothing_is_acknowledged_unasked(bench: Bench) -> None:
    """T4: watching posts nothing; asked to acknowledge, it approves that one event, which starts."""
    async with AzureStandIn() as endpoint:
        endpoint.notice(in_s=60.0)
        provider = bench.provider(endpoint)
        watch = await bench.watching(provider)
        (notice,) = (await watch.noticed()).notices
        assert endpoint.acknowledged == []
        await provider.acknowledge(notice.id)
        assert [f"azure-{key}" for key in endpoint.acknowledged] == [notice.id]
        started = await watch.view(lambda view: view.notices[0].deadline <= view.at)
        assert started.notices[0].id == notice.id


@pytest.mark.parametrize("notice_id", ["azure-nothing", "aws-i-1-terminate"])
async def test_a_refused_acknowledgement_is_an_error(bench: Bench, notice_id: str) -> None:
    """An acknowledgement that the endpoint refuses, or that is not Azure's, is a ProviderError."""
    async with AzureStandIn() as endpoint:
        with pytest.raises(ProviderError):
            await bench.provider(endpoint).acknowledge(notice_id)


async def test_scheduled_then_started_then_gone_is_one_notice(bench: Bench) -> None:
    """An event that starts keeps its id, its deadline becomes now; when it vanishes it is gone."""
    async with AzureStandIn() as endpoint:
        key = endpoint.event("Terminate", at_wall=time.time() + 1.0)
        watch = await bench.watch(endpoint)
        first = (await watch.noticed()).notices[0]
        started = (await watch.view(lambda v: "Started" in v.notices[0].detail)).notices[0]
        assert started.id == first.id == f"azure-{key}"
        assert started.deadline <= first.deadline
        endpoint.vanish(key)
        await watch.quiet()


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ("Freeze", "freeze"),
        ("Reboot", "reboot"),
        ("Redeploy", "redeploy"),
        ("SpotRebalanceRecommendation", "rebalance"),
        ("SomethingNew", "unknown"),
    ],
)
async def test_other_events_are_hints(bench: Bench, event: str, kind: str) -> None:
    """Every event that does not take the VM away is a hint, types nobody knows yet included."""
    async with AzureStandIn() as endpoint:
        endpoint.hint(event)
        assert [h.kind for h in (await (await bench.watch(endpoint)).hinted()).hints] == [kind]


async def test_iso_times_are_read(bench: Bench) -> None:
    """NotBefore as ISO 8601 is read like RFC 1123."""
    async with AzureStandIn(iso=True) as endpoint:
        endpoint.notice(in_s=60.0)
        (notice,) = (await (await bench.watch(endpoint)).noticed()).notices
        assert 57.0 < notice.deadline - time.monotonic() <= 60.1


async def test_an_unreadable_time_counts_from_the_sighting(bench: Bench) -> None:
    """A Preempt of ours with a time that cannot be read is a notice with the documented minimum of 30 s."""
    async with AzureStandIn() as endpoint:
        endpoint.event("Preempt", not_before="soon")
        seen = await (await bench.watch(endpoint)).noticed()
        assert seen.notices[0].deadline == pytest.approx(seen.at + 30.0)


async def test_an_empty_body_is_nothing(bench: Bench) -> None:
    """An empty answer means that nothing is pending."""
    async with AzureStandIn() as endpoint:
        endpoint.empty = True
        assert isinstance(await (await bench.watch(endpoint)).next(), View)


async def test_the_name_can_be_told(bench: Bench) -> None:
    """A configured own name is believed, in any case of letters, and the endpoint is not asked for it."""
    async with AzureStandIn() as endpoint:
        endpoint.event("Preempt", resources=["Other_9"], at_wall=time.time() + 30)
        watch = await bench.watch(endpoint, own_name="OTHER_9")
        assert (await watch.noticed()).notices
        assert not [r for r in endpoint.requests if "compute" in r.path]


async def test_events_without_a_known_name_are_unknown(bench: Bench) -> None:
    """While the own name cannot be read, events that may be ours make the sighting Unknown."""
    async with AzureStandIn() as endpoint:
        endpoint.misbehave("503", path="compute")
        endpoint.notice(in_s=60.0)
        watch = await bench.watch(endpoint)
        assert isinstance(await watch.next(), Unknown)
        endpoint.behave()
        assert (await watch.noticed()).notices


async def test_an_old_host_is_asked_in_its_own_version(bench: Bench) -> None:
    """A host that does not know the newest version of the instance document is asked for an older one."""
    async with AzureStandIn() as endpoint:
        endpoint.misbehave("400", count=1, path="compute")
        assert (await bench.provider(endpoint).identify()).name == "vmss_3"


async def test_the_rate_stays_below_the_limit(bench: Bench) -> None:
    """However often polling is asked for, the endpoint never has to refuse."""
    async with AzureStandIn() as endpoint:
        endpoint.notice(in_s=60.0)
        watch = await bench.watch(endpoint, poll_s=0.01)
        for _ in range(8):
            assert isinstance(await watch.next(), View)


async def test_throttling_slows_the_watch_down(bench: Bench) -> None:
    """While the endpoint throttles, each pause is twice as long."""
    async with AzureStandIn() as endpoint:
        endpoint.misbehave("429", count=3)
        watch = await bench.watch(endpoint)
        began = asyncio.get_running_loop().time()
        await watch.quiet()
        assert asyncio.get_running_loop().time() - began >= 3.0
