"""T9 with a whole daemon: a rank that is stopped during a notice."""

from __future__ import annotations

import signal

import pytest

from outlast.simulations.drill.chain import playing
from outlast.simulations.drill.nodes import PRIMARY, STANDBY, ScriptedTrainer
from outlast.simulations.drill.scenario import Plan

pytestmark = pytest.mark.timeout(60)

TWO = Plan(trainer=ScriptedTrainer(steps=100_000, shard_bytes=10_000, world=2), poll="200ms", bound_s=50.0)
NOTICE_S = 12.0


async def test_t9_frozen_rank_is_named_and_the_last_checkpoint_counts() -> None:
    """With one rank stopped the daemon gives the flush up before the deadline, names the rank and its pid,
    commits nothing for it and hands over the last committed checkpoint; the rank leaves once it thaws."""
    async with playing(TWO) as chain:
        first = await chain.protected()
        frozen = chain.ranks[1]
        frozen.send(signal.SIGSTOP)
        said = await chain.say("notice", in_s=NOTICE_S)
        silent = f"rank 1 (pid {frozen.pid}) did not answer"
        await chain.status_until("the rank's name", lambda s: f"{silent} yet" in s["jobs"][0]["because"])
        seen = await chain.until("the takeover", lambda s: s.mark("first_step", STANDBY) is not None)
        given_up, handed = seen.mark("flush_failed", PRIMARY), seen.mark("handed_over", PRIMARY)
        assert given_up is not None
        assert handed is not None
        assert given_up.mono < handed.mono < said.mono + NOTICE_S
        assert str(given_up.fields["because"]).startswith(f"{silent} in time")
        assert (await chain.log_until("flush_given_up"))["because"] == given_up.fields["because"]
        assert seen.story.all("committed") == ()
        assert seen.story.all("saved") == ()
        assert handed.fields["tag"] == f"global_step{first}"
        taken, resumed = seen.mark("taken_over", STANDBY), seen.mark("resumed", STANDBY)
        assert taken is not None
        assert resumed is not None
        assert resumed.whole("step") == first
        assert taken.fields["planned"] is True
        assert (taken.whole("lost") or 0) > 0
        assert await chain.ended(chain.ranks[0]) == 0
        assert frozen.status is None
        frozen.send(signal.SIGCONT)
        assert await chain.ended(frozen) == 0
