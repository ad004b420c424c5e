"""Room for the next checkpoints: the verdict as a pure function, then real small disks that fill up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.core.conftest import Noted, until
from tests.ship.small_disk import small_disk

from outlast.daemon.core.facts import Role
from outlast.daemon.core.job import Job
from outlast.daemon.core.room import FEW_FILES, RoomFacts, Size, Spot, State, plan_room
from outlast.daemon.core.roomwatch import RoomWatch, facts
from outlast.daemon.core.state import JobState
from outlast.providers.base import SystemClock
from outlast.simulations.saved import committed

HERE = Spot("checkpoints", "gpt", "/data")
some = st.integers(0, 10**13)
seen = st.builds(
    RoomFacts,
    spot=st.sampled_from([HERE, Spot("replicas", "gpt", "/r"), Spot("state", "", "/s")]),
    free_bytes=some,
    free_files=st.integers(0, 10**7),
    all_files=st.just(0) | st.integers(10**7, 10**8),
    need=st.none() | st.builds(Size, st.integers(0, 10**12), st.integers(0, 10**5)),
    trouble=st.sampled_from(["", "", "", "Stale file handle"]),
)


def need(bytes_: int, files: int) -> dict[str, Any]:
    return {"need": Size(bytes_, files)}


@pytest.mark.parametrize(
    ("found", "state", "fits", "words"),
    [
        (RoomFacts(HERE, 1000, 500, 1000, **need(100, 10)), "ok", 10, "room for 10 more checkpoints"),
        (
            RoomFacts(HERE, 1000, 19, 100, **need(100, 10)),
            "low",
            1,
            "it takes 10 inodes, 19 are free in /data",
        ),
        (RoomFacts(HERE, 199, 0, 0, **need(100, 10)), "low", 1, "it takes 100 bytes, 199 are free in /data"),
        (RoomFacts(HERE, 99, 0, 0, **need(100, 10)), "full", 0, "no room for the next checkpoint"),
        (RoomFacts(HERE, 10**9, 9, 100, **need(100, 10)), "full", 0, "10 inodes, 9 are free"),
        (RoomFacts(HERE, 10**9, 49, 1000, **need(100, 1)), "low", 49, "49 of 1000 inodes are left"),
        (RoomFacts(HERE, 10**9, 0, 0, **need(100, 10)), "ok", 10**7, "room for 10000000"),
        (RoomFacts(HERE, 10**9, 500, 1000), "ok", None, "room enough so far"),
        (RoomFacts(HERE, 10**9, 0, 1000), "full", None, "/data is full"),
        (RoomFacts(HERE, trouble="Stale file handle"), "unknown", None, "Stale file handle"),
    ],
)
def test_the_verdict(found: RoomFacts, state: str, fits: int | None, words: str) -> None:
    """What ends first decides; below two more, or 5 % of the inodes, it warns; below one it says no."""
    room = plan_room(found)
    assert (room.state, room.fits) == (State(state), fits)
    assert words in room.because
    assert room.free_files == (found.free_files if found.all_files and not found.trouble else None)


@given(seen, some, st.integers(0, 10**7))
def test_more_room_is_never_judged_worse(found: RoomFacts, more_bytes: int, more_files: int) -> None:
    """With more bytes and more inodes free the verdict is the same or a better one, and so is the count."""
    order = [State.FULL, State.LOW, State.OK]
    more = RoomFacts(
        found.spot,
        found.free_bytes + more_bytes,
        found.free_files + more_files,
        found.all_files,
        found.need,
        found.trouble,
    )
    one, two = plan_room(found), plan_room(more)
    if found.trouble:
        assert one.state is two.state is State.UNKNOWN
        return
    assert order.index(two.state) >= order.index(one.state)
    if one.fits is not None:
        assert two.fits is not None
        assert two.fits >= one.fits
        assert (one.state is State.FULL) == (one.fits == 0)
    if found.all_files and found.free_files < FEW_FILES * found.all_files:
        assert one.state is not State.OK


@asynccontextmanager
async def watching(watch: RoomWatch) -> AsyncIterator[None]:
    """The watch, running."""
    task = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_disk_that_fills_up_is_told_once_and_again_when_it_has_room(tmp_path: Path) -> None:
    """Looked at after each commit: room, then little, then none, then room again, one line each."""
    record, clock = Noted(), SystemClock()
    with small_disk(tmp_path / "disk", "size=16m") as disk, capture_logs() as logs:
        await asyncio.to_thread(committed, disk, 10, shard_bytes=1024 * 1024)
        job = await asyncio.to_thread(Job, "gpt", disk, None, JobState(1, Role.PRIMARY, 1, ""), clock, record)
        watch = RoomWatch([Spot("checkpoints", "gpt", str(disk))], [job], record, look_s=3600.0)

        async def then(state: State) -> None:
            job.commits.tell()
            await until(lambda: watch.rooms and watch.rooms[0].state is state)

        async with watching(watch):
            await then(State.OK)
            assert watch.rooms[0].fits == 4
            ballast = disk / "ballast"
            await asyncio.to_thread(ballast.write_bytes, bytes(9 * 1024 * 1024))
            await then(State.LOW)
            await then(State.LOW)
            more = disk / "more"
            await asyncio.to_thread(more.write_bytes, bytes(2 * 1024 * 1024))
            await then(State.FULL)
            await asyncio.to_thread(ballast.unlink)
            await then(State.OK)
    assert [line["event"] for line in logs] == ["room_low", "room_full", "room_ok"]
    assert [event["state"] for event in record.of("room")] == ["low", "full", "ok"]
    assert watch.state[0]["free_inodes"] is not None


def test_used_up_inodes_of_a_real_file_system(tmp_path: Path) -> None:
    """A disk with bytes enough and few inodes: what is counted is what a checkpoint really takes."""
    with small_disk(tmp_path / "disk", "size=64m,nr_inodes=24") as disk:
        spot = Spot("checkpoints", "gpt", str(disk))
        committed(disk, 10)
        room = plan_room(facts(spot))
        assert (room.state, room.fits) == (State.LOW, 1)
        committed(disk, 20)
        room = plan_room(facts(spot))
        assert room.state is State.FULL
        assert "inodes" in room.because
        with pytest.raises(Exception, match="No space left"):
            committed(disk, 30)


def test_a_folder_that_is_not_there_yet_is_asked_of_the_one_around_it(tmp_path: Path) -> None:
    """A standby's replicas come with the first transfer; until then the disk is known all the same."""
    found = facts(Spot("replicas", "gpt", str(tmp_path / "a/b/gpt")))
    assert (found.trouble, found.need) == ("", None)
    assert found.free_bytes > 0
    assert plan_room(found).state is State.OK
