"""Supervision: a part that fails is started again, and one that hangs is named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from outlast.daemon.core import supervise
from outlast.daemon.core.supervise import Beat, Supervisor

if TYPE_CHECKING:
    from tests.conftest import ManualClock


async def run_until(
    supervisor: Supervisor, part: Callable[[Beat], Awaitable[None]], done: asyncio.Event
) -> None:
    """Supervise ``part`` until ``done``, then cancel."""
    task = asyncio.create_task(supervisor.run("part", part, 30.0))
    async with asyncio.timeout(10):
        await done.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("ending", [RuntimeError("a bug"), KeyError("x"), OSError(28, "No space left"), None])
async def test_a_part_that_ends_is_started_again(
    manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch, ending: Exception | None
) -> None:
    """However it ends, it is reported as a bug and comes back; the daemon lives on."""
    monkeypatch.setattr(supervise, "RESTART_S", (0.0,))
    starts, done = 0, asyncio.Event()

    async def part(_: Beat) -> None:
        nonlocal starts
        starts += 1
        if starts == 3:
            done.set()
            await asyncio.Event().wait()
        if ending is not None:
            raise ending

    with capture_logs() as logs:
        await run_until(Supervisor(manual_clock), part, done)
    assert starts == 3
    assert len(logs) == 2
    assert all("report" in line["hint"] and line["part"] == "part" for line in logs)


async def test_the_wait_grows_and_is_forgotten(
    manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failure upon failure waits longer, up to a bound; a part that had settled begins anew."""
    waits: list[float] = []
    done = asyncio.Event()

    async def note(seconds: float) -> None:
        waits.append(seconds)

    async def part(_: Beat) -> None:
        if len(waits) == 6:
            manual_clock.advance(supervise.SETTLED_S + 1)
        if len(waits) == 8:
            done.set()
            await asyncio.Event().wait()
        raise RuntimeError

    monkeypatch.setattr(asyncio, "sleep", note)
    with capture_logs():
        await run_until(Supervisor(manual_clock), part, done)
    assert waits == [0.1, 1.0, 5.0, 15.0, 15.0, 15.0, 0.1, 1.0]


async def test_a_part_that_hangs_is_named(manual_clock: ManualClock) -> None:
    """Without a beat within its bound it is stale, so the watchdog goes hungry; a beat redeems it."""
    supervisor, begun, done = Supervisor(manual_clock), asyncio.Event(), asyncio.Event()
    beats: list[Beat] = []

    async def part(beat: Beat) -> None:
        beats.append(beat)
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(run_until(supervisor, part, done))
    await begun.wait()
    manual_clock.advance(30.0)
    assert supervisor.stale() == []
    manual_clock.advance(0.5)
    assert supervisor.stale() == ["part"]
    beats[0]()
    assert supervisor.stale() == []
    done.set()
    await task
