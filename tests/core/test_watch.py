"""The watcher: what the provider shows is what the jobs know; errors are words about the watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from outlast.daemon.core.facts import Role
from outlast.daemon.core.job import Job
from outlast.daemon.core.notices import Board
from outlast.daemon.core.state import JobState
from outlast.daemon.core.watch import BLIND_S, Watcher
from outlast.providers.base import Action, Hint, Identity, Notice, Sighting, Unknown, View

if TYPE_CHECKING:
    from tests.conftest import ManualClock
    from tests.core.conftest import Noted


class Told:
    """A provider that shows what the test hands it, one sighting at a time."""

    name = "told"
    can_acknowledge = False

    def __init__(self) -> None:
        self._next: asyncio.Queue[Sighting] = asyncio.Queue()

    async def identify(self) -> Identity:
        return Identity("told", zone="z-1")

    async def watch(self) -> AsyncIterator[Sighting]:
        while True:
            yield await self._next.get()
            self._next.task_done()

    async def acknowledge(self, notice_id: str) -> None: ...

    async def close(self) -> None: ...

    async def show(self, *sightings: Sighting) -> None:
        """Returns when the watcher has dealt with them all."""
        for sighting in sightings:
            self._next.put_nowait(sighting)
        async with asyncio.timeout(10):
            await self._next.join()


class Stage:
    """A watcher's surroundings in one folder; ``life`` may be entered again."""

    def __init__(self, folder: Path, clock: ManualClock, record: Noted) -> None:
        self.folder = folder
        self.clock = clock
        self.record = record
        self.told = Told()

    @asynccontextmanager
    async def life(self, *, hints: bool = True) -> AsyncIterator[tuple[Watcher, Job]]:
        job = Job("tune", None, None, JobState(1, Role.PRIMARY), self.clock, self.record)
        board = Board(self.clock, "boot", hints=hints)
        self.told = Told()
        watcher = Watcher(self.told, board, self.folder / "notices.json", [job], self.clock, self.record)
        task = asyncio.create_task(watcher.run(lambda: None))
        try:
            yield watcher, job
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    def view(self, *notices: Notice, hints: tuple[Hint, ...] = ()) -> View:
        return View(self.clock.monotonic(), notices, hints)

    def unknown(self) -> Unknown:
        return Unknown(self.clock.monotonic(), "HTTP 500")


@pytest.fixture
def stage(tmp_path: Path, manual_clock: ManualClock, noted: Noted) -> Stage:
    """Nothing has been seen yet."""
    return Stage(tmp_path, manual_clock, noted)


def notice(stage: Stage, left: float = 120.0) -> Notice:
    return Notice("i-1", Action.TERMINATE, stage.clock.monotonic() + left, "told")


async def test_errors_change_no_notice(stage: Stage) -> None:
    """An endpoint that fails between two polls neither withdraws a notice nor makes one."""
    async with stage.life() as (watcher, job):
        seen = notice(stage)
        await stage.told.show(stage.unknown(), stage.view(seen))
        first = job.notice
        assert first is not None
        for _ in range(20):
            stage.clock.advance(1.0)
            await stage.told.show(stage.unknown())
        assert job.notice == first
        assert watcher.because == "HTTP 500"
        await stage.told.show(stage.view(seen))
        assert job.notice == first
        assert watcher.because == ""
    assert [n.id for n in stage.record.seen] == ["i-1"]
    assert stage.record.withdrawn == []


async def test_a_withdrawn_notice_frees_the_job(stage: Stage) -> None:
    """Gone from a whole view: the job is told, the record too, and the file forgets it (T5)."""
    async with stage.life() as (_, job):
        await stage.told.show(stage.view(notice(stage)))
        before = job.notice
        assert before is not None
        stage.clock.advance(10.0)
        await stage.told.show(stage.view())
        assert job.notice is None
    assert [n.id for n in stage.record.withdrawn] == ["i-1"]
    async with stage.life() as (_, job):
        await stage.told.show(stage.unknown())
        assert job.notice is None


async def test_a_restart_keeps_the_deadline(stage: Stage) -> None:
    """The next life knows the notice before the endpoint answers, to the same instant; it counts once."""
    seen = notice(stage)
    async with stage.life():
        await stage.told.show(stage.view(seen))
    stage.clock.advance(7.0)
    async with stage.life() as (_, job):
        await stage.told.show(stage.unknown())
        assert job.notice is not None
        assert job.notice.deadline == seen.deadline
        await stage.told.show(stage.view(seen))
    assert [n.id for n in stage.record.seen] == ["i-1"]


async def test_a_hint_is_told_once(stage: Stage) -> None:
    """Half an hour of the same hint is one hint to job and record, and no notice (T3)."""
    hint = Hint("h-1", "rebalance", "told")
    async with stage.life() as (_, job):
        for _ in range(30):
            await stage.told.show(stage.view(hints=(hint,)))
        assert job.hint == hint
        assert job.notice is None
    assert stage.record.hints == [hint]


async def test_hints_switched_off_reach_nobody(stage: Stage) -> None:
    """Nothing at all happens on a hint where hints are off (T3)."""
    async with stage.life(hints=False) as (_, job):
        await stage.told.show(stage.view(hints=(Hint("h-1", "rebalance", "told"),)))
        assert job.hint is None
    assert stage.record.hints == []


async def test_blindness_is_said_once_and_cried_once(stage: Stage) -> None:
    """Blind: one warning; blind for a minute: one error, recorded; sight regained: one line."""
    with capture_logs() as logs:
        async with stage.life():
            for _ in range(int(BLIND_S) + 60):
                stage.clock.advance(1.0)
                await stage.told.show(stage.unknown())
            await stage.told.show(stage.view())
    said = [line["event"] for line in logs if line["event"].startswith("watch_")]
    assert said[:2] == ["watch_blind", "watch_stays_blind"]
    assert len(said) == 3
    assert len(stage.record.of("watch_blind")) == 1


async def test_a_damaged_file_does_not_stop_the_watch(stage: Stage) -> None:
    """What an earlier life left is not readable: the watch begins empty and sees what is shown."""
    await asyncio.to_thread(
        (stage.folder / "notices.json").write_bytes, b'[{"id": "i-1", "deadline": "soon"}]'
    )
    async with stage.life() as (_, job):
        await stage.told.show(stage.view(notice(stage)))
        assert job.notice is not None
