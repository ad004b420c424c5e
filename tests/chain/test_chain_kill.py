"""kill -9 of each part at each step of the chain: nothing committed is lost, nothing half-made is taken."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from harness import Node, Pair, until

from outlast.wire.store import scan, verify

# The daemons under test are other processes: this loop only looks at what they left.
pytestmark = [pytest.mark.blocking, pytest.mark.timeout(120)]

DAEMON = (
    "notice_seen", "flush_asked", "step_agreed", "saved", "committed", "ship_began", "shipped",
    "verified", "handed_over",
)  # fmt: skip
RANK = ("notice_seen", "flush_asked", "step_agreed", "saved", "committed", "verified")
RECEIVER = ("ship_began", "shipped", "verified", "handed_over")


async def protected(pair: Pair) -> int:
    """Both daemons up, training, and one checkpoint at the peer: its step."""
    await pair.up()
    await pair.train()
    step = int((await asyncio.to_thread(pair.primary.ask, "checkpoint"))["step"])
    await until(lambda: pair.primary.job()["peer"]["newest"], "the first checkpoint is at the peer")
    return step


async def appoint(pair: Pair, at: str, victim: str) -> None:
    """Restart the primary's daemon with the death appointed; the ranks train on meanwhile."""
    primary = pair.primary
    assert primary.process is not None
    await primary.process.kill()
    folder = pair.folder / "a"
    primary.crash = ["--at", at, "--victim", victim, "--mark", str(folder / "mark")]
    primary.crash += ["--pid-file", str(folder / "rank1.pid")]
    await primary.start()
    await primary.up()
    await until(lambda: primary.job()["trainer"]["ranks"] == 2, "the ranks are back")


async def resumed_at(standby: Node) -> int:
    """The step at which the standby's trainer went on; it trains by then."""
    await until(lambda: standby.events("first_step"), "the standby trains", 60)
    return int(standby.events("resumed")[-1]["step"])


def assert_whole(store: Path) -> None:
    """Whatever bears a plain name is a whole checkpoint."""
    for folder in store.glob("epoch-*/*"):
        if folder.is_dir() and "." not in folder.name:
            assert verify(folder) == [], folder
    assert scan(store)


@pytest.mark.parametrize(
    ("victim", "at"),
    [("daemon", at) for at in DAEMON] + [("rank", at) for at in RANK] + [("receiver", at) for at in RECEIVER],
)
async def test_kill_at_each_step(tmp_path: Path, victim: str, at: str) -> None:
    """A notice, a kill -9 at one step of the chain, and the standby carries on from whole bytes."""
    async with Pair(tmp_path) as pair:
        first = await protected(pair)
        await appoint(pair, at, victim)
        guardian = asyncio.create_task(pair.keep_alive(pair.primary))
        try:
            await pair.say("notice", action="terminate", in_s=25)
            step = await resumed_at(pair.standby)
        finally:
            guardian.cancel()
            with suppress(asyncio.CancelledError):
                await guardian
        assert (tmp_path / "a" / "mark").read_text() == victim
        flushed = victim != "rank" or at in ("saved", "committed", "verified")
        if flushed:
            assert step > first
        else:
            assert step == first
        assert_whole(pair.primary.checkpoints)
        replicas = tmp_path / "b" / "replicas" / "tune"
        assert_whole(replicas)
        assert step == scan(replicas)[0].step
        await until(lambda: not any(r.alive for r in pair.ranks), "the primary's trainer left")
