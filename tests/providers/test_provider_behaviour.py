"""What every provider does alike, each against its own stand-in."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from tests.providers.conftest import Bench

from outlast.providers.base import Action, ProviderError, Unknown, View
from outlast.simulations.standins import StandIn

FAULTS = ["503", "403", "429", "hang", "html", "half", "huge", "garbage", "drop", "redirect"]


async def test_nothing_pending_is_an_empty_view(bench: Bench, endpoint: StandIn) -> None:
    """Where nothing is pending, the first sighting is a view without notice or hint."""
    seen = await (await bench.watch(endpoint)).next()
    assert isinstance(seen, View)
    assert (seen.notices, seen.hints) == ((), ())


async def test_a_notice_has_action_source_and_deadline(bench: Bench, endpoint: StandIn) -> None:
    """A notice is seen once, its deadline as far away as the provider says or the deployment configures."""
    watch = await bench.watch(endpoint, notice_s=60.0)
    await watch.quiet()
    endpoint.notice(in_s=60.0)
    seen = await watch.noticed()
    (notice,) = seen.notices
    assert notice.action is Action.TERMINATE
    assert notice.source
    assert 58.0 <= notice.deadline - time.monotonic() <= 60.1


async def test_a_repeated_notice_keeps_id_and_deadline(bench: Bench, endpoint: StandIn) -> None:
    """One notice seen in many polls is one notice with one deadline."""
    endpoint.notice(in_s=60.0)
    watch = await bench.watch(endpoint)
    seen = [await watch.noticed() for _ in range(4)]
    assert len({(view.notices[0].id, view.notices[0].deadline) for view in seen}) == 1


async def test_a_notice_keeps_its_id_when_the_daemon_restarts(bench: Bench, endpoint: StandIn) -> None:
    """A second watch of the same node names the same notice alike."""
    endpoint.notice(in_s=60.0)
    first = await (await bench.watch(endpoint)).noticed()
    second = await (await bench.watch(endpoint)).noticed()
    assert first.notices[0].id == second.notices[0].id


async def test_a_withdrawn_notice_leaves_the_view(bench: Bench, endpoint: StandIn) -> None:
    """A notice that the provider takes back is gone from the view."""
    endpoint.notice(in_s=60.0)
    watch = await bench.watch(endpoint)
    await watch.noticed()
    endpoint.withdraw()
    assert (await watch.quiet()).notices == ()


async def test_a_second_notice_has_a_new_deadline(bench: Bench, endpoint: StandIn) -> None:
    """A notice that comes after a withdrawn one does not inherit its deadline."""
    endpoint.notice(in_s=20.0)
    watch = await bench.watch(endpoint)
    first = (await watch.noticed()).notices[0].deadline
    endpoint.withdraw()
    await watch.quiet()
    endpoint.notice(in_s=80.0)
    assert (await watch.noticed()).notices[0].deadline > first


async def test_a_hint_is_no_notice(bench: Bench, endpoint: StandIn) -> None:
    """A hint is shown as a hint and nothing else."""
    watch = await bench.watch(endpoint)
    await watch.quiet()
    endpoint.hint()
    seen = await watch.hinted()
    assert seen.notices == ()
    assert seen.hints[0].kind in {"rebalance", "maintenance", "freeze"}


async def test_hint_and_notice_together(bench: Bench, endpoint: StandIn) -> None:
    """A hint and a notice that come in one poll are both in the view."""
    endpoint.hint()
    endpoint.notice(in_s=60.0)
    watch = await bench.watch(endpoint)
    seen = await watch.view(lambda view: bool(view.notices and view.hints))
    assert len(seen.notices) == 1


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_unknown_and_passes(bench: Bench, endpoint: StandIn, fault: str) -> None:
    """Whatever the endpoint answers wrongly is Unknown with a reason of one line, until it is over."""
    watch = await bench.watch(endpoint)
    await watch.quiet()
    endpoint.misbehave(fault)
    seen = await watch.unknown()
    assert seen.because
    assert "\n" not in seen.because
    endpoint.behave()
    assert (await watch.quiet()).notices == ()


@pytest.mark.parametrize("fault", ["503", "html", "drop"])
async def test_a_fault_from_the_first_request_on(bench: Bench, endpoint: StandIn, fault: str) -> None:
    """An endpoint that is broken when the watch begins is Unknown, and a notice is seen once it answers."""
    endpoint.misbehave(fault)
    endpoint.notice(in_s=60.0)
    watch = await bench.watch(endpoint)
    assert isinstance(await watch.next(), Unknown)
    endpoint.behave()
    assert len((await watch.noticed()).notices) == 1


async def test_an_endless_body_is_cut(bench: Bench, endpoint: StandIn) -> None:
    """A body beyond 64 KiB is given up as soon as it is, not read to its end."""
    endpoint.misbehave("huge")
    assert "65536 bytes" in (await (await bench.watch(endpoint)).unknown()).because


async def test_a_redirect_is_not_followed(bench: Bench, endpoint: StandIn) -> None:
    """A redirect leads nowhere: the address it names is never asked."""
    endpoint.misbehave("redirect")
    seen = await (await bench.watch(endpoint)).unknown()
    assert "redirect" in seen.because
    assert not [r for r in endpoint.requests if "trap" in r.path]


async def test_proxies_are_ignored(bench: Bench, endpoint: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not used for metadata."""
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    assert isinstance(await (await bench.watch(endpoint)).next(), View)


async def test_identify_tells_who_and_where(bench: Bench, endpoint: StandIn) -> None:
    """The node's provider, region, zone, type, instance and whether it is spot are as the endpoint says."""
    who = await bench.provider(endpoint).identify()
    assert who == endpoint.identity


async def test_identify_fails_with_provider_error(bench: Bench, endpoint: StandIn) -> None:
    """An endpoint that cannot tell who the node is makes a ProviderError, nothing else."""
    endpoint.misbehave("html")
    with pytest.raises(ProviderError):
        await bench.provider(endpoint).identify()


async def test_nobody_listens(bench: Bench, endpoint: StandIn) -> None:
    """An address at which nobody listens is Unknown at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        seen = await (await bench.watch(url, endpoint.provider)).next(2.0)
    assert isinstance(seen, Unknown)


async def test_close_twice(bench: Bench, endpoint: StandIn) -> None:
    """A provider may be closed twice; asked afterwards it says that it is closed."""
    provider = bench.provider(endpoint)
    await provider.identify()
    await provider.close()
    await provider.close()
    with pytest.raises(ProviderError, match="closed"):
        await provider.identify()


async def test_cancelling_a_watch_leaves_nothing_behind(bench: Bench, endpoint: StandIn) -> None:
    """A watch that is cancelled while it waits for the endpoint ends with its tasks."""
    before = asyncio.all_tasks()
    endpoint.misbehave("hang")
    watch = await bench.watch(endpoint)
    asked = asyncio.create_task(watch.next())
    await endpoint.script.change(5.0)
    asked.cancel()
    began = time.monotonic()
    await asyncio.wait({asked}, timeout=5.0)
    assert asked.cancelled()
    assert time.monotonic() - began < 1.0
    left = {getattr(t.get_coro(), "__qualname__", "") for t in asyncio.all_tasks() - before}
    assert not {name for name in left if name.startswith(("Gcp.", "Aws.", "Azure.", "Queue."))}
