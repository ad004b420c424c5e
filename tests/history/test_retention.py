"""What is kept and what goes: old events, and nothing for the clock's sake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.config import load
from outlast.daemon.core import diary as diary_module
from outlast.daemon.core.diary import Diary
from outlast.daemon.history import ledger
from outlast.daemon.history.db import History
from outlast.daemon.history.reading import read_file_events, read_rows
from outlast.daemon.history.rows import LaunchRow, Pool

if TYPE_CHECKING:
    from tests.conftest import ManualClock

DAY = 86400.0


@pytest.fixture
def history(tmp_path: Path, manual_clock: ManualClock) -> Iterator[History]:
    """An empty history on disk."""
    opened = History.open(tmp_path / "history.sqlite3", manual_clock)
    yield opened
    opened.close()


def test_events_go_after_ninety_days_and_rows_stay(
    history: History, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeline is bounded; what counting needs is kept."""
    monkeypatch.setattr(ledger, "EVENTS_ALWAYS", 2)
    for day in range(100):
        history.event("day", number=day)
        history.launch(LaunchRow(f"l-{day}", Pool("a", "r", "z", "t"), manual_clock.wall(), 1, 1))
        manual_clock.advance(DAY)
    history.prune_events()
    assert [event.fields["number"] for event in history.events()] == list(range(10, 100))
    assert len(read_rows(history.path).launches) == 100


def test_a_clock_that_jumps_ahead_erases_nothing(history: History, manual_clock: ManualClock) -> None:
    """A machine that boots in the year 2099 keeps its latest events."""
    for number in range(50):
        history.event("kept", number=number)
    manual_clock.step_wall(70 * 365 * DAY)
    history.prune_events()
    assert len(history.events()) == 50


async def test_the_daemon_prunes_at_its_start_and_daily(
    tmp_path: Path, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that runs for months does as well as one that is restarted."""
    import asyncio

    monkeypatch.setattr(ledger, "EVENTS_ALWAYS", 0)
    (tmp_path / "c.yaml").write_text(
        f"node: {{name: n, state: {tmp_path}}}\njobs: [{{name: j, checkpoints: {tmp_path}}}]\n"
    )
    settings = await asyncio.to_thread(load, tmp_path / "c.yaml", env={})

    async def kinds() -> list[str]:
        events = await asyncio.to_thread(read_file_events, tmp_path / "history.sqlite3", 0.0, 100)
        return [event.kind for event in events]

    diary = Diary(settings, manual_clock, "boot-1")
    await diary.open()
    diary.event("old")
    manual_clock.advance(91 * DAY)
    diary.event("new")
    diary.heartbeat()
    await diary.writer()
    assert await kinds() == ["new"]
    diary.event("young")
    manual_clock.advance(diary_module.PRUNE_S - 1)
    await diary.close()
    manual_clock.advance(91 * DAY)
    again = Diary(settings, manual_clock, "boot-1")
    await again.open()
    await again.writer()
    assert await kinds() == []
    await again.close()
