"""T15 and T5 with a whole daemon: a restart in the middle of a notice, a notice withdrawn from held ranks."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.history.reading import read_rows
from outlast.simulations.drill.chain import Chain, playing
from outlast.simulations.drill.nodes import PRIMARY, STANDBY, Node, ScriptedTrainer
from outlast.simulations.drill.scenario import Plan
from outlast.simulations.drill.word import NOTICE_S

pytestmark = pytest.mark.timeout(60)


def plan(save_s: float = 0.0) -> Plan:
    """Two ranks, a step every 50 ms, a save that takes ``save_s``."""
    trainer = ScriptedTrainer(steps=100_000, save_s=save_s, shard_bytes=10_000, world=2)
    return Plan(trainer=trainer, poll="200ms", bound_s=50.0)


async def board(node: Node) -> dict[str, Any]:
    """The one live notice as the node's next life would take it up."""
    text = await asyncio.to_thread((node.state / "notices.json").read_text)
    (live,) = json.loads(text)
    assert isinstance(live, dict)
    return live


async def deadline(chain: Chain) -> float:
    """When the status says that the notice's time is up, in monotonic seconds."""
    asked = chain.sandbox.clock.monotonic()
    status = await chain.order(chain.primary, "status")
    (notice,) = status["notices"]
    return asked + float(notice["seconds_left"])


def holds(status: dict[str, Any]) -> bool:
    """Both ranks are here, and wait."""
    job = status["jobs"][0]
    return bool(job["held"] and job["trainer"]["ranks"] == 2)


def saves(chain: Chain, episode: str) -> int:
    """How many times rank 0 has saved for this notice. Blocking."""
    lines = [json.loads(line) for line in chain.primary.losses.read_text().splitlines()]
    return sum(line["event"] == "saved" and line["flush"] == episode for line in lines)


async def test_t15_restart_in_the_middle_of_a_notice() -> None:
    """The daemon's next life knows the same notice with the same deadline, asks for no second checkpoint,
    and brings the chain to its end; the record has one notice."""
    async with playing(plan(save_s=2.0)) as chain:
        await chain.status_until("ranks", lambda status: status["jobs"][0]["trainer"]["ranks"] == 2)
        await chain.say("notice", in_s=40)
        await chain.until("the flush", lambda s: s.mark("step_agreed", PRIMARY) is not None)
        before, ends_at = await board(chain.primary), await deadline(chain)
        await chain.restart_daemon(chain.primary)
        assert await deadline(chain) == pytest.approx(ends_at, abs=0.25)
        seen = await chain.until("the takeover", lambda s: s.mark("first_step", STANDBY) is not None)
        assert await board(chain.primary) == before
        episode = before["episode"]
        assert [m.episode for m in seen.story.all("notice_seen")] == [episode]
        assert {m.episode for m in seen.story.all("flush_asked")} == {episode}
        assert [m.episode for m in seen.story.all("committed", PRIMARY)] == [episode]
        assert await asyncio.to_thread(saves, chain, episode) == 1
        rows = await asyncio.to_thread(read_rows, chain.primary.history)
        assert [notice.withdrawn for notice in rows.notices] == [None]
        assert seen.steps[STANDBY][0].step == seen.step(PRIMARY) + 1
        assert [await chain.ended(rank) for rank in chain.ranks] == [0, 0]


def dies_when_it_asks(folder: Path) -> tuple[str, ...]:
    """A daemon killed at the very moment it asks its ranks for a checkpoint after a notice."""
    death = ("--at", "flush_asked", "--victim", "daemon", "--mark", str(folder / "mark"))
    return ("outlast.simulations.crashing", *death)


async def test_t15_killed_at_once_keeps_the_deadline() -> None:
    """Where a notice tells no deadline it counts from the first sighting, also for a daemon that was killed
    milliseconds after it; the record has one notice, though there was no time to write it down."""
    async with playing(replace(plan(), provider="gcp"), dies_when_it_asks) as chain:
        await chain.status_until("ranks", lambda status: status["jobs"][0]["trainer"]["ranks"] == 2)
        async with chain.guarded(chain.primary):
            said = await chain.say("notice")
            seen = await chain.until("the takeover", lambda s: s.mark("first_step", STANDBY) is not None)
        assert (chain.sandbox.folder / "mark").exists(), "nobody was killed"
        live = await board(chain.primary)
        assert live["deadline"] == pytest.approx(said.mono + NOTICE_S["gcp"], abs=0.5)
        assert {m.episode for m in seen.story.all("notice_seen")} <= {live["episode"]}
        assert {m.episode for m in seen.story.all("flush_asked")} == {live["episode"]}
        rows = await asyncio.to_thread(read_rows, chain.primary.history)
        assert [notice.withdrawn for notice in rows.notices] == [None]


async def test_notice_that_cannot_be_kept_is_heard() -> None:
    """A state folder that takes no more files costs the deadline's memory, and is said; the chain goes on."""
    async with playing(plan()) as chain:
        await chain.status_until("ranks", lambda status: status["jobs"][0]["trainer"]["ranks"] == 2)
        await asyncio.to_thread((chain.primary.state / "notices.json").mkdir)
        await chain.say("notice", in_s=40)
        seen = await chain.until("the takeover", lambda s: s.mark("first_step", STANDBY) is not None)
        assert seen.steps[STANDBY][0].step == seen.step(PRIMARY) + 1
        assert len(seen.story.all("notice_seen")) == 1
        assert len(await chain.log("notices_not_kept")) == 1
        assert await chain.log("unexpected_error") == []


@pytest.mark.parametrize("restarts", [0, 3])
async def test_t5b_withdrawn_while_ranks_are_held(restarts: int) -> None:
    """Ranks that have saved and wait are let go when the notice vanishes, and no sooner, however often the
    daemon is restarted meanwhile: the same processes train on, and the record says withdrawn."""
    async with playing(plan()) as chain:
        await chain.status_until("ranks", lambda status: status["jobs"][0]["trainer"]["ranks"] == 2)
        await chain.lose_peer()
        await chain.say("notice", in_s=60)
        seen = await chain.until("the commit", lambda s: s.mark("committed", PRIMARY) is not None)
        at = seen.story.all("committed", PRIMARY)[0].whole("step")
        for _ in range(restarts):
            await chain.status_until("the hold", holds)
            await chain.restart_daemon(chain.primary)
        await chain.status_until("the hold", holds)
        assert (await chain.seen()).step(PRIMARY) == at
        await chain.say("withdraw")
        seen = await chain.until("training on", lambda s: s.step(PRIMARY) >= at + 20)
        assert all(rank.status is None for rank in chain.ranks)
        status = await chain.order(chain.primary, "status")
        assert set(status["jobs"][0]["trainer"]["pids"]) == {rank.pid for rank in chain.ranks}
        assert len({m.whole("step") for m in seen.story.all("committed", PRIMARY)}) == 1
        assert seen.mark("handed_over") is None
        assert seen.mark("taken_over") is None
        assert len(seen.story.all("notice_withdrawn", PRIMARY)) == 1
        (row,) = (await asyncio.to_thread(read_rows, chain.primary.history)).notices
        assert row.withdrawn is not None
        assert status["notices"] == []
        assert status["jobs"][0]["held"] is False
