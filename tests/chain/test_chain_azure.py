"""T4 with a whole daemon: which scheduled events stop training, when, and what is answered to them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast.daemon.cli.status import degraded
from outlast.simulations.drill.chain import Chain, playing
from outlast.simulations.drill.nodes import PRIMARY, STANDBY, ScriptedTrainer
from outlast.simulations.drill.scenario import Plan, Seen
from outlast.simulations.standins.azure import EVENTS, AzureStandIn

pytestmark = pytest.mark.timeout(60)

NOW = {
    "past NotBefore": {"not_before": "Mon, 19 Sep 2016 18:29:47 GMT"},
    "blank NotBefore, Started": {"not_before": "", "status": "Started"},
}


@asynccontextmanager
async def azure(save_s: float = 0.0, first_delay_s: float = 0.0, **plan: Any) -> AsyncIterator[_Azure]:
    """Two ranks on the VM ``vmss_3``, and its Scheduled Events endpoint, served by the test itself."""
    trainer = ScriptedTrainer(steps=100_000, save_s=save_s, shard_bytes=10_000, world=2)
    standin = AzureStandIn(first_delay_s=first_delay_s)
    async with playing(Plan("azure", trainer, "500ms", bound_s=50.0, **plan), standin=standin) as chain:
        yield _Azure(standin, chain)


class _Azure:
    def __init__(self, standin: AzureStandIn, chain: Chain) -> None:
        self.standin = standin
        self.chain = chain

    @property
    def posts(self) -> int:
        """How many times anything was posted to the endpoint."""
        return sum(seen.method == "POST" for seen in self.standin.requests)


def taken_over(seen: Seen) -> bool:
    """The standby trains."""
    return seen.mark("first_step", STANDBY) is not None


def _trains(status: dict[str, Any]) -> bool:
    """Both ranks are here, and the first step, which is an event, is behind them."""
    trainer = status["jobs"][0]["trainer"]
    return bool(trainer["ranks"] == 2 and trainer["step"] > 0)


async def test_t4_other_vm_and_freeze_stop_nothing() -> None:
    """A Preempt of vmss_7 has no effect on vmss_3. A Freeze of vmss_3 gives one early checkpoint at the peer;
    training goes on and nothing is handed over. Neither is acknowledged, even where that is switched on."""
    async with azure(acknowledge=True) as cloud:
        chain = cloud.chain
        await chain.status_until("training", _trains)
        await chain.say("event", kind="Preempt", resources=["vmss_7"], not_before="")
        await cloud.standin.asked(EVENTS, 3)
        assert (await chain.seen()).story.told() == ()
        assert (await chain.order(chain.primary, "status"))["notices"] == []
        await chain.say("event", kind="Freeze")
        seen = await chain.until("the replica", lambda s: s.mark("verified", PRIMARY) is not None)
        at = seen.step(PRIMARY)
        seen = await chain.until(
            "training on, and the warning",
            lambda s: s.step(PRIMARY) >= at + 20 and s.mark("peer_warned", STANDBY) is not None,
        )
        assert [m.fields["cause"] for m in seen.story.all("flush_asked")] == ["hint"]
        assert len(seen.story.all("committed")) == 1
        assert seen.mark("notice_seen") is None
        assert seen.mark("handed_over") is None
        assert seen.mark("taken_over") is None
        assert all(rank.status is None for rank in chain.ranks)
        assert cloud.posts == 0


@pytest.mark.parametrize("how", NOW)
async def test_t4_preempt_is_now(how: str) -> None:
    """A Preempt whose time is past, or which has started without one, has its flush asked for at once; no
    line is refused, every step gets to the standby, and nothing is acknowledged unless configured."""
    async with azure() as cloud:
        chain = cloud.chain
        await chain.status_until("ranks", lambda status: status["jobs"][0]["trainer"]["ranks"] == 2)
        await chain.say("event", kind="Preempt", **NOW[how])
        status = await chain.status_until("the notice", lambda status: status["notices"])
        assert status["notices"][0]["seconds_left"] <= 0.0
        seen = await chain.until("the takeover", taken_over)
        noticed, asked = seen.mark("notice_seen", PRIMARY), seen.mark("flush_asked", PRIMARY)
        assert noticed is not None
        assert asked is not None
        assert noticed.fields["seconds_left"] == pytest.approx(0.0, abs=0.1)
        assert asked.mono - noticed.mono < 0.5
        assert asked.fields["cause"] == "notice"
        assert len(seen.story.all("committed", PRIMARY)) == 1
        assert seen.steps[STANDBY][0].step == seen.step(PRIMARY) + 1
        assert await chain.log("watch_blind") == []
        assert [await chain.ended(rank) for rank in chain.ranks] == [0, 0]
        assert cloud.posts == 0


async def test_t4_acknowledgement_follows_the_replica() -> None:
    """Where acknowledging is switched on, the event is acknowledged once, and not before the checkpoint of
    its flush is verified at the peer."""
    async with azure(save_s=1.5, acknowledge=True) as cloud:
        chain = cloud.chain
        await chain.status_until("ranks", lambda status: status["jobs"][0]["trainer"]["ranks"] == 2)
        await chain.say("notice", in_s=40)
        seen = await chain.until(
            "the takeover and the answer", lambda s: taken_over(s) and bool(cloud.standin.acknowledged)
        )
        verified = seen.mark("verified", PRIMARY)
        assert verified is not None
        posted = [c.monotonic for c in cloud.standin.changes if c.what == "acknowledged"]
        assert len(posted) == cloud.posts == 1
        assert posted[0] >= verified.mono
        await cloud.standin.asked(EVENTS, 4)
        assert cloud.posts == 1
        assert len(await chain.log("acknowledged")) == 1


async def test_t4_slow_first_answer_is_no_outage() -> None:
    """While the endpoint takes its time over the very first answer the status shows no outage, and a notice
    given meanwhile is seen as soon as it answers."""
    async with azure(first_delay_s=4.0) as cloud:
        chain = cloud.chain
        status = await chain.order(chain.primary, "status")
        assert status["provider"]["seen_s_ago"] is None
        assert status["provider"]["state"] == "asking"
        assert not degraded(status)
        said = await chain.say("event", kind="Preempt", not_before="")
        seen = await chain.until("the notice", lambda s: s.mark("notice_seen", PRIMARY) is not None)
        noticed = seen.mark("notice_seen", PRIMARY)
        assert noticed is not None
        first = next(r.monotonic for r in cloud.standin.requests if r.path == EVENTS)
        assert said.mono < noticed.mono <= first + 4.0 + 1.0
        assert time.monotonic() - first >= 4.0
        status = await chain.order(chain.primary, "status")
        assert status["provider"]["state"] == "ok"
        assert await chain.log("watch_blind") == []
