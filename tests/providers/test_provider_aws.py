"""AWS in particular: sessions, hibernation, stale times, drifting times, hints that fail."""

from __future__ import annotations

import time

import pytest
from aiohttp import ClientSession
from tests.conftest import ManualClock
from tests.providers.conftest import Bench

from outlast.providers.base import Action, Unknown
from outlast.simulations.standins import AwsStandIn

ACTION = "spot/instance-action"


def puts(endpoint: AwsStandIn) -> int:
    """Tokens asked for so far."""
    return sum(seen.method == "PUT" for seen in endpoint.requests)


def unauthorised(endpoint: AwsStandIn) -> int:
    """Requests refused so far."""
    return sum(seen.status == 401 for seen in endpoint.requests)


async def test_t1_token_expiry(bench: Bench) -> None:
    """T1: ten polls with one token; once refused, it is replaced and the notice seen in that same poll."""
    async with AwsStandIn() as endpoint:
        watch = await bench.watch(endpoint)
        for _ in range(10):
            await watch.quiet()
        assert puts(endpoint) == 1
        endpoint.expire_tokens()
        endpoint.notice(in_s=120.0)
        seen = await watch.next()
        assert not isinstance(seen, Unknown)
        assert len(seen.notices) == 1
        assert puts(endpoint) == 2
        assert unauthorised(endpoint) == 1


async def test_t1_no_request_is_ever_version_1(bench: Bench) -> None:
    """T1: with tokens that are good for ten requests only, each request carries one and none is lost."""
    async with AwsStandIn(token_requests=10) as endpoint:
        watch = await bench.watch(endpoint)
        for _ in range(40):
            assert not isinstance(await watch.next(), Unknown)
        assert unauthorised(endpoint) < puts(endpoint) * 4
        async with (
            ClientSession() as session,
            session.get(f"{endpoint.url}/latest/meta-data/{ACTION}") as bare,
        ):
            assert bare.status == 401


async def test_a_token_refused_again_is_unknown(bench: Bench) -> None:
    """An endpoint that refuses every token is Unknown, with one new token a poll and no loop."""
    async with AwsStandIn() as endpoint:
        endpoint.misbehave("401")
        watch = await bench.watch(endpoint)
        seen = await watch.next()
        assert isinstance(seen, Unknown)
        assert "401" in seen.because
        assert puts(endpoint) == 2


async def test_the_token_is_renewed_before_it_ends() -> None:
    """Six hours later the token is renewed without a refused request."""
    from outlast.providers.aws import Aws
    from outlast.providers.base import Options

    clock = ManualClock()
    async with AwsStandIn(clock=clock) as endpoint:
        provider = Aws(Options(endpoint=endpoint.url), clock)
        await provider.identify()
        clock.advance(21_600 - 200)
        await provider.identify()
        await provider.close()
        assert (puts(endpoint), unauthorised(endpoint)) == (2, 0)


@pytest.mark.parametrize("action", ["terminate", "stop"])
async def test_action_of_the_notice(bench: Bench, action: str) -> None:
    """Terminate and stop are told apart and keep their time."""
    async with AwsStandIn(pretty=True) as endpoint:
        endpoint.notice(action, 90.0)
        (notice,) = (await (await bench.watch(endpoint)).noticed()).notices
        assert notice.action.value == action
        assert notice.deadline - time.monotonic() == pytest.approx(89.5, abs=1.0)


async def test_hibernate_leaves_no_time(bench: Bench) -> None:
    """Hibernation begins with its notice: the deadline is now, whatever time is told."""
    async with AwsStandIn() as endpoint:
        endpoint.notice("hibernate", 120.0)
        seen = await (await bench.watch(endpoint)).noticed()
        assert seen.notices[0].action is Action.HIBERNATE
        assert seen.notices[0].deadline <= seen.at


async def test_a_drifting_time_is_one_notice(bench: Bench) -> None:
    """A time that is counted anew at each request changes neither id nor deadline."""
    async with AwsStandIn(drift=True) as endpoint:
        endpoint.notice(in_s=120.0)
        watch = await bench.watch(endpoint, poll_s=0.4)
        seen = [(await watch.noticed()).notices[0] for _ in range(5)]
        assert len({(n.id, n.deadline) for n in seen}) == 1


async def test_an_earlier_time_moves_the_deadline(bench: Bench) -> None:
    """A notice whose time comes nearer moves the deadline earlier under the same id."""
    async with AwsStandIn() as endpoint:
        endpoint.notice(in_s=120.0)
        watch = await bench.watch(endpoint)
        first = (await watch.noticed()).notices[0]
        endpoint.notice(in_s=30.0)
        moved = (await watch.view(lambda v: v.notices[0].deadline < first.deadline)).notices[0]
        assert moved.id == first.id


async def test_a_remnant_is_ignored_and_said(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A time long past is the remnant of a failed interruption: no notice, said once."""
    async with AwsStandIn() as endpoint:
        endpoint.notice(at_wall=time.time() - 3600)
        watch = await bench.watch(endpoint)
        for _ in range(3):
            assert (await watch.quiet()).notices == ()
    assert sum("past" in line for line in caplog.messages) == 1


async def test_a_time_just_past_is_now(bench: Bench) -> None:
    """A time a little past is a notice whose deadline is now."""
    async with AwsStandIn() as endpoint:
        endpoint.notice(at_wall=time.time() - 20)
        seen = await (await bench.watch(endpoint)).noticed()
        assert seen.notices[0].deadline <= seen.at


@pytest.mark.parametrize(
    "text",
    ["", "true", "{}", '{"action":"terminate"}', '{"action":"explode","time":"2030-01-01T00:00:00Z"}', "[]"],
)
async def test_an_unreadable_notice_is_unknown(bench: Bench, text: str) -> None:
    """A body that is not a notice is never taken for one."""
    async with AwsStandIn() as endpoint:
        endpoint.show(ACTION, text)
        assert isinstance(await (await bench.watch(endpoint)).next(), Unknown)


@pytest.mark.parametrize(("kind"), ["rebalance", "maintenance", "lifecycle"])
async def test_each_hint(bench: Bench, kind: str) -> None:
    """Rebalance recommendation, maintenance and a group's scale-in are hints of their kinds."""
    async with AwsStandIn() as endpoint:
        endpoint.hint(kind)
        seen = await (await bench.watch(endpoint)).hinted()
        assert [hint.kind for hint in seen.hints] == [kind]


async def test_a_hint_that_fails_does_not_blind(bench: Bench) -> None:
    """Hints that cannot be read leave the watch of the notice as it is, and hold no notice up."""
    async with AwsStandIn() as endpoint:
        endpoint.misbehave("hang", path="events/")
        watch = await bench.watch(endpoint)
        await watch.quiet()
        endpoint.notice(in_s=60.0)
        began = time.monotonic()
        assert len((await watch.noticed()).notices) == 1
        assert time.monotonic() - began < 1.0


async def test_a_wrong_clock_does_not_move_the_deadline() -> None:
    """On a node whose clock is an hour off, the deadline is as far away as the endpoint means."""
    from outlast.providers.aws import Aws
    from outlast.providers.base import Options

    clock = ManualClock(epoch=time.time() + 3600)
    async with AwsStandIn() as endpoint:
        endpoint.notice(in_s=60.0)
        provider = Aws(Options(endpoint=endpoint.url), clock)
        sightings = provider.watch()
        seen = await anext(sightings)
        await sightings.aclose()
        await provider.close()
        assert not isinstance(seen, Unknown)
        assert seen.notices[0].deadline - clock.monotonic() == pytest.approx(60.0, abs=2.5)


async def test_a_token_that_never_comes_names_the_hop_limit(bench: Bench) -> None:
    """A token request that is never answered is Unknown and says what a container needs."""
    async with AwsStandIn() as endpoint:
        endpoint.misbehave("hang", path="token")
        seen = await (await bench.watch(endpoint)).unknown()
        assert "HttpPutResponseHopLimit" in seen.because
