"""Stores beside the peer: what is decided, what may go, how far behind; then a job with real folders."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ManualClock
from tests.core.conftest import Noted, until

from outlast.daemon.config import load
from outlast.daemon.core.destinations import destinations
from outlast.daemon.core.facts import Place, Role
from outlast.daemon.core.lag import Commits, Lag
from outlast.daemon.core.node import Desk, build
from outlast.daemon.core.replicas import Cut, Rest, Send, StoreFacts, Tidy, decide, may_go
from outlast.daemon.core.status import job_status
from outlast.providers.base import SystemClock
from outlast.simulations.saved import committed
from outlast.wire.store import newest_whole, scan, verify


def place(step: int, epoch: int = 1) -> Place:
    """A checkpoint of ten bytes a step."""
    return Place(epoch, f"global_step{step}", step, "", 10 * step)


places = st.builds(place, st.integers(0, 5), st.integers(1, 2))
facts = st.builds(
    StoreFacts,
    now=st.floats(0, 10),
    role=st.sampled_from(Role),
    newest=st.none() | places,
    there=st.none() | places,
    shipping=st.none() | places,
    notice=st.booleans(),
    peer_first=st.booleans(),
    retry_at=st.floats(0, 10),
    tidy=st.booleans(),
)


@given(facts)
def test_a_store_gets_the_newest_and_never_stands_in_the_peers_way(seen: StoreFacts) -> None:
    """Only the newest, only by a primary, only what the store lacks, one at a time, after the peer."""
    action = decide(seen)
    if isinstance(action, Send):
        assert action.place == seen.newest
        assert seen.role is Role.PRIMARY
        assert seen.shipping is None
        assert not seen.peer_first
        assert seen.now >= seen.retry_at
        assert seen.there is None or seen.there.order < action.place.order
    if isinstance(action, Cut):
        assert seen.shipping is not None
        assert seen.peer_first or seen.notice
    if seen.peer_first and seen.role is Role.PRIMARY and seen.newest and seen.shipping:
        assert isinstance(action, Cut)


def test_a_slow_store_is_let_to_finish_and_a_notice_is_not_waited_for() -> None:
    """Without a notice the older transfer ends first; under one the newer checkpoint takes over."""
    slow = StoreFacts(1.0, Role.PRIMARY, newest=place(30), there=place(10), shipping=place(20))
    assert isinstance(decide(slow), Rest)
    hurried = StoreFacts(
        1.0, Role.PRIMARY, newest=place(30), there=place(10), shipping=place(20), notice=True
    )
    assert isinstance(decide(hurried), Cut)
    done = StoreFacts(1.0, Role.PRIMARY, newest=place(30), there=place(30), tidy=True)
    assert decide(done) == Tidy()


@pytest.mark.parametrize(
    ("require", "expected"), [("any", (1, 30)), ("all", (1, 10)), (1, (1, 30)), (2, (1, 20)), (3, (1, 10))]
)
def test_what_may_go_follows_from_what_is_required(require: Any, expected: tuple[int, int]) -> None:
    """Of three destinations at 10, 30 and 20."""
    assert may_go(require, [(1, 10), (1, 30), (1, 20)], []) == expected
    assert may_go(require, [(1, 10), (1, 30), (1, 20)], [(1, 5)]) == (1, 5)


orders = st.tuples(st.integers(1, 2), st.integers(0, 9))


@given(
    st.sampled_from(["any", "all"]) | st.integers(1, 5),
    st.lists(st.none() | orders, max_size=5),
    st.lists(orders, max_size=3),
)
def test_what_may_go_is_held_by_as_many_as_are_required(
    require: Any, held: list[tuple[int, int] | None], under_way: list[tuple[int, int]]
) -> None:
    """Whatever goes is older than what enough destinations hold, and than all that is being sent."""
    bound = may_go(require, held, under_way)
    if bound is None:
        return
    needed = require if isinstance(require, int) else 1 if require == "any" else len(held)
    assert sum(1 for order in held if order is not None and order >= bound) >= needed >= 1
    assert all(bound <= order for order in under_way)


def test_lag_is_counted_from_the_oldest_that_is_missing(manual_clock: ManualClock) -> None:
    """Steps and bytes to the newest, seconds since the first checkpoint that the destination lacks."""
    commits = Commits(manual_clock)
    assert commits.behind(None, None) is None
    for step in (10, 20, 30):
        commits.note(place(step))
        manual_clock.advance(5.0)
    assert commits.behind(place(30), place(30)) == Lag(0, 0, 0.0)
    assert commits.behind(place(30), place(10)) == Lag(20, 300, 10.0)
    assert commits.behind(place(30), place(10), sent=100) == Lag(20, 200, 10.0)
    assert commits.behind(place(30), None) == Lag(30, 300, 15.0)
    assert commits.behind(place(30), place(5, epoch=2)) == Lag(0, 0, 0.0)


CONFIG = """\
node: {{name: here, state: {folder}/state, runtime: {folder}/run}}
provider: {{name: none}}
jobs:
  - name: gpt
    checkpoints: {folder}/ckpt
    stores: [{{url: {folder}/one}}, {{url: "file://{folder}/two", keep: 3}}]
    require: {require}
"""


class Ground:
    """A job with two folders as stores, each there or not."""

    def __init__(self, folder: Path, require: str) -> None:
        self.folder = folder
        self.record = Noted()
        for name in ("ckpt", "one"):
            (folder / name).mkdir()
        (folder / "outlast.yaml").write_text(CONFIG.format(folder=folder, require=require))

    @asynccontextmanager
    async def desk(self) -> AsyncIterator[Desk]:
        """The job, with its stores kept."""
        settings = await asyncio.to_thread(load, self.folder / "outlast.yaml", env={})
        desk = (await asyncio.to_thread(build, settings, SystemClock(), self.record))["gpt"]
        assert desk.replicas is not None
        tasks = [asyncio.create_task(keeper.run()) for keeper in desk.replicas.keepers]
        try:
            yield desk
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def commit(self, desk: Desk, step: int) -> None:
        """A checkpoint is committed here, as after a flush."""
        done = await asyncio.to_thread(committed, self.folder / "ckpt", step)
        desk.job.found(Place(1, done.tag, step, "", done.manifest.total_bytes))


async def until_held(store: Path, count: int) -> None:
    """Wait until so many checkpoints are committed there."""
    async with asyncio.timeout(15):
        while len(await asyncio.to_thread(scan, store)) != count:  # noqa: ASYNC110 - a folder tells nobody
            await asyncio.sleep(0.02)


@pytest.fixture
async def ground(tmp_path: Path, request: pytest.FixtureRequest) -> Ground:
    """Two stores of which the second is not mounted yet; `require` is the fixture's parameter."""
    return await asyncio.to_thread(Ground, tmp_path, getattr(request, "param", "any"))


async def test_each_checkpoint_goes_to_every_store(ground: Ground, tmp_path: Path) -> None:
    """A store that is not there fails alone, says why, and catches up once it is mounted."""
    async with ground.desk() as desk:
        await ground.commit(desk, 10)
        await ground.record.until("stored")
        await ground.record.until("store_failed")
        one, two = destinations(desk.job, desk.errands)
        assert (one["reachable"], one["newest"]["step"], one["lag"]["bytes"]) == (True, 10, 0)
        assert (two["reachable"], two["newest"], two["lag"]["steps"]) == (False, None, 10)
        assert "mount it" in two["because"]
        json.dumps([one, two])
        taken = job_status(desk.job, desk.errands, parked=0)["taken_now"]
        assert (taken["peer_step"], taken["store_step"], taken["lost_steps"]) == (None, 10, 0)
        (tmp_path / "two").mkdir()
        await ground.record.until("stored", 2)
        assert destinations(desk.job, desk.errands)[1]["lag"] == {"steps": 0, "bytes": 0, "seconds": 0.0}
    for name in ("one", "two"):
        found = await asyncio.to_thread(newest_whole, tmp_path / name / "gpt")
        assert found is not None
        assert found.step == 10


@pytest.mark.parametrize(
    ("ground", "left"), [("any", 2), ("all", 4), ("1", 2), ("2", 4)], indirect=["ground"]
)
async def test_old_ones_go_here_once_enough_destinations_have_newer(
    ground: Ground, left: int, tmp_path: Path
) -> None:
    """With one store of two out of reach: what `any` lets go, `all` keeps, until the second has caught up."""
    async with ground.desk() as desk:
        for number, step in enumerate((10, 20, 30, 40), 1):
            await ground.commit(desk, step)
            await ground.record.until("stored", number)
        await until_held(tmp_path / "ckpt", left)
        (tmp_path / "two").mkdir()
        await ground.record.until("stored", 5)
        await until_held(tmp_path / "ckpt", 2)
    kept = await asyncio.to_thread(scan, tmp_path / "ckpt")
    assert [item.step for item in kept] == [40, 30]
    for item in kept:
        assert await asyncio.to_thread(verify, item.path) == []


async def test_a_store_keeps_as_many_as_its_user_wants(ground: Ground, tmp_path: Path) -> None:
    """Two by default, three where it says so; the oldest go."""
    (tmp_path / "two").mkdir()
    async with ground.desk() as desk:
        for number, step in enumerate((10, 20, 30, 40), 1):
            await ground.commit(desk, step)
            await ground.record.until("stored", 2 * number)
        await until_held(tmp_path / "one/gpt", 2)
        await until_held(tmp_path / "two/gpt", 3)


async def test_a_notice_is_safe_only_once_a_store_has_its_checkpoint(ground: Ground, tmp_path: Path) -> None:
    """Without a peer a store is what outlives the node: nothing is acknowledged before it has the newest."""
    async with AsyncExitStack() as stack:
        settings = await asyncio.to_thread(load, tmp_path / "outlast.yaml", env={})
        desk = (await asyncio.to_thread(build, settings, SystemClock(), ground.record))["gpt"]
        desk.job.newest = Place(1, "global_step10", 10, "i-1@7", 100)
        assert desk.replicas is not None
        assert not desk.replicas.some_store_has((1, 10))
        await ground.commit(desk, 11)
        desk.job.newest = Place(1, "global_step11", 11, "i-1@7", 100)
        keeper = desk.replicas.keepers[0]
        task = asyncio.create_task(keeper.run())
        stack.callback(task.cancel)
        await until(lambda: desk.replicas is not None and desk.replicas.some_store_has((1, 11)))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
