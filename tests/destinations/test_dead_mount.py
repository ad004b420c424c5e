"""A folder whose server is gone: whoever looks at it hangs. Nothing else of the daemon does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.daemon.checkpoint.destinations import Unreachable
from outlast.daemon.core.search import Search
from outlast.daemon.core.sources import StoreSource
from outlast.daemon.store import destination
from outlast.daemon.store.address import parse
from outlast.daemon.store.apart import apart
from outlast.daemon.store.destination import StoreDestination, StoreSettings
from outlast.daemon.store.target import Target
from outlast.providers.base import SystemClock

# More than the threads that a loop has, on any machine.
_MORE = 40


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreDestination]:
    """A store that never answers, until the test is over."""
    back = threading.Event()

    def never(_: Target) -> None:
        back.wait()

    monkeypatch.setattr(destination, "check_folder", never)
    yield StoreDestination(StoreSettings(parse(str(tmp_path))), "gpt", SystemClock())
    back.set()


async def test_many_searches_leave_the_threads_to_the_commit(dead: StoreDestination, tmp_path: Path) -> None:
    """Each trainer that starts has all places asked; a commit after many of them still has a thread."""
    search = Search([tmp_path / "own"], [StoreSource(dead)], look_s=0.02)
    for _ in range(_MORE):
        async with asyncio.timeout(5):
            seen = await search.look()
        assert [one.place for one in seen.silent] == [dead.name]
    async with asyncio.timeout(5):
        await asyncio.to_thread(time.monotonic)


async def test_it_is_told_as_out_of_reach(dead: StoreDestination, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody asked for a deadline: the state says so, and why."""
    monkeypatch.setattr(destination, "_REACH_S", 0.05)
    with pytest.raises(Unreachable, match="is it mounted"):
        await dead.newest()
    assert (dead.state.reachable, "is it mounted" in dead.state.because) == (False, True)


async def test_work_apart_gives_what_it_gives() -> None:
    """Its outcome, or what it raised, as from any thread."""
    assert await apart(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await apart(lambda: 1 // 0)
