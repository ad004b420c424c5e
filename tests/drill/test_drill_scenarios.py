"""Faults from the field played with real processes; the trainer is scripted, so that times are exact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast.providers.base import SystemClock
from outlast.simulations.drill import reap
from outlast.simulations.drill.nodes import PRIMARY, STANDBY, ScriptedTrainer
from outlast.simulations.drill.rehearsal import damaged, unfinished
from outlast.simulations.drill.sandbox import DrillError, Sandbox
from outlast.simulations.drill.scenario import Plan, Seen, Stage

pytestmark = pytest.mark.timeout(90)

LONG = ScriptedTrainer(steps=100_000)


@asynccontextmanager
async def stage_for(**plan: Any) -> AsyncIterator[Stage]:
    """A stage with everything running."""
    async with (
        Sandbox(SystemClock()) as sandbox,
        Stage(Plan(**{"trainer": LONG, "poll": "200ms", "bound_s": 60.0, **plan}), sandbox) as stage,
    ):
        await stage.begin()
        yield stage


def flushing(seen: Seen) -> bool:
    """The notice's flush is in progress at its agreed step, and the standby has been told of that step."""
    asked = [m for m in seen.story.all("flush_asked", PRIMARY) if m.fields["cause"] == "notice"]
    agreed = [m for m in seen.story.all("step_agreed", PRIMARY) if asked and m.episode == asked[0].episode]
    told = [m.whole("step") for m in seen.story.all("peer_warned", STANDBY)]
    return bool(agreed) and seen.step(PRIMARY) == agreed[0].whole("step") and seen.step(PRIMARY) in told


async def test_t5a_node_dies_before_its_deadline() -> None:
    """Killed during a flush that is too slow, the job goes on from the last checkpoint the peer has
    verified; the standby says how many steps are lost, and no half tag is shown."""
    slow = ScriptedTrainer(steps=100_000, save_s=2.5)
    async with stage_for(trainer=slow, every="1s") as stage:
        await stage.until("a replica", lambda seen: seen.mark("verified", PRIMARY) is not None)
        await stage.say("notice", in_s=8)
        at_death = await stage.until("the flush", flushing)
        await stage.cut_power(stage.primary)
        seen = await stage.until("the takeover", lambda seen: seen.mark("first_step", STANDBY) is not None)
        taken = seen.mark("taken_over", STANDBY)
        assert taken is not None
        assert taken.fields["planned"] is False
        replica = max(m.whole("step") or 0 for m in at_death.story.marks if m.kind == "verified")
        assert taken.whole("step") == replica
        assert taken.whole("lost") == at_death.step(PRIMARY) - replica > 0
        assert seen.steps[STANDBY][0].step == replica + 1
        assert await asyncio.to_thread(damaged, stage.standby.replicas / "drill") == []
        assert await asyncio.to_thread(unfinished, stage.standby.replicas / "drill") == []


async def test_t5b_notice_is_withdrawn() -> None:
    """A notice that vanishes while the node lives gives the job back: held ranks train on, nobody takes
    over, the standby's parked trainer goes home, and the record says withdrawn."""
    held = ScriptedTrainer(steps=100_000, save_s=1.5)
    async with stage_for(trainer=held) as stage:
        await stage.until("some steps", lambda seen: seen.step(PRIMARY) >= 5)
        await stage.say("notice", in_s=60)
        await stage.until("the flush", lambda seen: seen.mark("step_agreed", PRIMARY) is not None)
        await stage.say("withdraw")
        seen = await stage.until("the record", lambda s: s.mark("notice_withdrawn", PRIMARY) is not None)
        at = seen.step(PRIMARY)
        seen = await stage.until("training again", lambda s: s.step(PRIMARY) >= at + 20)
        assert seen.mark("taken_over") is None
        assert seen.mark("handed_over") is None
        assert seen.step(STANDBY) == 0
        assert stage.trainer is not None
        assert stage.trainer.status is None
        await nobody_but_daemon(stage, STANDBY)


async def nobody_but_daemon(stage: Stage, node: str) -> None:
    """Wait, bounded, until a node runs its daemon and nothing else."""
    daemon = {stage.daemons[node].pid}
    for _ in range(200):
        if await asyncio.to_thread(reap.on_node, stage.sandbox.id, node) == daemon:
            return
        await asyncio.sleep(0.1)
    pytest.fail(f"{node} still runs a trainer")


async def test_t3_hint_alone_never_stops_training() -> None:
    """A rebalance recommendation has one checkpoint committed and shipped and the standby warned; training
    goes on, and nothing is handed over."""
    async with stage_for() as stage:
        await stage.until("some steps", lambda seen: seen.step(PRIMARY) >= 5)
        await stage.say("hint", kind="rebalance")
        seen = await stage.until("the replica", lambda s: s.mark("verified", PRIMARY) is not None)
        at = seen.step(PRIMARY)
        seen = await stage.until(
            "training on, and the warning",
            lambda s: s.step(PRIMARY) >= at + 40 and s.mark("peer_warned", STANDBY) is not None,
        )
        assert len(seen.story.all("committed")) == 1
        assert len(seen.story.all("hint_seen")) == 1
        warned = seen.mark("peer_warned", STANDBY)
        assert warned is not None
        assert warned.fields["warning"] == "hint"
        assert seen.mark("taken_over") is None
        assert seen.mark("notice_seen") is None
        assert seen.step(STANDBY) == 0


async def test_t3_hints_switched_off_do_nothing() -> None:
    """With hints switched off a recommendation has no effect at all; the notice after it has."""
    async with stage_for(hints=False) as stage:
        await stage.until("some steps", lambda seen: seen.step(PRIMARY) >= 5)
        await stage.say("hint", kind="rebalance")
        at = (await stage.seen()).step(PRIMARY)
        seen = await stage.until("training on", lambda s: s.step(PRIMARY) >= at + 40)
        assert seen.story.told() == ()
        await stage.say("notice", in_s=60)
        seen = await stage.until("the takeover", lambda s: s.mark("first_step", STANDBY) is not None)
        assert seen.mark("hint_seen") is None
        assert seen.steps[STANDBY][0].step == seen.step(PRIMARY) + 1


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
async def test_planned_handoff_loses_no_step(provider: str) -> None:
    """Whatever the provider, the standby goes on with the step after the primary's last one."""
    short = ScriptedTrainer(steps=100)
    async with stage_for(provider=provider, trainer=short) as stage:
        await stage.until("step 30", lambda seen: seen.step(PRIMARY) >= 30)
        await stage.say("notice", in_s=30)
        seen = await stage.until("the end", lambda s: s.mark("trainer_ended", STANDBY) is not None)
        assert stage.trainer is not None
        assert await stage.ended(stage.trainer) == 0
        trained = [line.step for line in (*seen.steps[PRIMARY], *seen.steps[STANDBY])]
        assert trained == list(range(1, 101))
        assert await stage.stop_daemons() == {PRIMARY: 0, STANDBY: 0}


async def test_trainer_that_dies_is_told_with_its_last_words() -> None:
    """Waiting ends at once where a process that has to live does not, and the error shows why."""
    async with stage_for() as stage:
        await stage.until("some steps", lambda seen: seen.step(PRIMARY) >= 2)
        assert stage.trainer is not None
        stage.trainer.kill_group()
        with pytest.raises(
            DrillError, match=r"us-east-1\.trainer ended with status -9 while waiting for godot"
        ):
            await stage.until("godot", lambda _: False)


async def test_wait_is_bounded() -> None:
    """What never comes is an error that names it."""
    async with stage_for() as stage:
        with pytest.raises(DrillError, match="waited in vain for godot"):
            await stage.until("godot", lambda _: False, within_s=0.5)
