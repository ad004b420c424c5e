"""A trainer starts on a primary: the newest checkpoint of all places, or a refusal that says what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.core.conftest import Ground, Life, until

from outlast.daemon.checkpoint.commit import CommitOrder, commit
from outlast.daemon.core.search import Search
from outlast.daemon.store.destination import StoreDestination
from outlast.simulations.saved import save_tag
from outlast.wire.messages import Layout, Park, Resume, StandDown
from outlast.wire.store import Committed, epoch_folder, scan, verify

ONE = Layout(1)
CONFIG = """\
node: {{name: here, state: {folder}/state, runtime: {folder}/run}}
provider: {{name: none}}
jobs:
  - {{name: tune, checkpoints: {folder}/ckpt, stores: [{{url: {folder}/nfs}}]}}
"""
Dial = Callable[[], Any]


@pytest.fixture
def nfs(ground: Ground) -> Path:
    """The job's folder in a store that the first job of the ground has from now on."""
    (ground.folder / "nfs").mkdir()
    (ground.folder / "outlast.yaml").write_text(CONFIG.format(folder=ground.folder))
    return ground.folder / "nfs" / "tune"


async def put(store: Path, step: int, epoch: int = 1, layout: Layout = ONE) -> Committed:
    """A committed checkpoint of job tune."""
    return await asyncio.to_thread(_put, store, step, epoch, layout)


def _put(store: Path, step: int, epoch: int, layout: Layout) -> Committed:
    tag = f"global_step{step}"
    save_tag(epoch_folder(store, epoch) / f"{tag}.partial", layout, seed=step)
    return commit(store, CommitOrder("tune", tag, step, epoch, "f", "test", layout), 0.0)


async def answer_of(line: Any) -> Resume:
    """What comes after the words that tell a rank to wait."""
    while isinstance(said := await line.hear(), Park):
        continue
    assert isinstance(said, Resume), said
    return said


async def refusal_of(line: Any) -> StandDown:
    """The same where the run cannot go on."""
    while isinstance(said := await line.hear(), Park):
        continue
    assert isinstance(said, StandDown), said
    return said


def state_of(life: Life) -> dict[str, Any]:
    """What outlives the daemon."""
    body: dict[str, Any] = json.loads((life.folder / "state/jobs/tune.json").read_bytes())
    return body


async def test_a_newer_one_in_a_store_is_fetched_before_training_starts(
    ground: Ground, nfs: Path, dial: Dial
) -> None:
    """The node has step 10, the store step 30: the trainer begins from 30, in the node's own folder."""
    await put(ground.folder / "ckpt", 10)
    item = await put(nfs, 30)
    async with ground.life() as life:
        line = await dial()
        line.hello(life.checkpoints)
        resume = await answer_of(line)
        folder = str(life.checkpoints / "epoch-1")
        assert resume == Resume(1, folder, item.tag, 30)
        assert await asyncio.to_thread(verify, life.checkpoints / "epoch-1" / item.tag) == []
        (fetched,) = life.record.of("fetched")
        assert (fetched["tag"], fetched["bytes"]) == (item.tag, item.manifest.total_bytes)
        assert [e["tag"] for e in life.record.of("resumed")] == [item.tag]


async def test_what_is_here_and_newest_is_not_fetched(ground: Ground, nfs: Path, dial: Dial) -> None:
    """The store is behind: nothing moves, the trainer begins from here."""
    await put(nfs, 10)
    item = await put(ground.folder / "ckpt", 30)
    async with ground.life() as life:
        line = await dial()
        line.hello(life.checkpoints)
        assert (await answer_of(line)).tag == item.tag
        assert life.record.of("fetching") == []


async def test_a_node_with_nothing_goes_on_in_the_epoch_that_it_finds(
    ground: Ground, nfs: Path, dial: Dial
) -> None:
    """A new machine, the store holds epoch 3: it is epoch 3 here as well, and that is durable."""
    await put(nfs, 30, epoch=3)
    async with ground.life() as life:
        assert life.job.state.epoch == 1
        line = await dial()
        line.hello(life.checkpoints)
        resume = await answer_of(line)
        assert (resume.epoch, resume.tag) == (3, "global_step30")
        assert (await asyncio.to_thread(state_of, life))["epoch"] == 3
    async with ground.life() as life:
        assert life.job.state.epoch == 3


async def test_a_node_that_trained_does_not_follow_a_later_epoch(
    ground: Ground, nfs: Path, dial: Dial
) -> None:
    """The job went on elsewhere, in epoch 2: this one is refused with what to do, and has lost nothing."""
    await put(ground.folder / "ckpt", 10)
    await put(nfs, 5, epoch=2)
    async with ground.life() as life:
        line = await dial()
        line.hello(life.checkpoints)
        said = await refusal_of(line)
        assert (said.then, said.refused) == ("exit", True)
        assert "later epoch than this node's, which is 1" in said.reason
        assert (await asyncio.to_thread(state_of, life))["epoch"] == 1
        assert [one.step for one in await asyncio.to_thread(scan, life.checkpoints)] == [10]
        assert life.record.of("resumed") == []
        assert len(life.record.of("resume_refused")) == 1


async def test_a_run_of_another_size_is_refused_with_advice(ground: Ground, nfs: Path, dial: Dial) -> None:
    """The newest was saved by two ranks, one is here: no older one is taken, nothing is fetched."""
    await put(ground.folder / "ckpt", 10)
    await put(nfs, 30, layout=Layout(2, 2, zero_stage=2))
    async with ground.life() as life:
        line = await dial()
        line.hello(life.checkpoints)
        said = await refusal_of(line)
        assert said.refused
        assert "saved with 2 ranks" in said.reason
        assert "ds_to_universal.py" in said.reason
        assert life.record.of("fetching") == []


async def test_ranks_hear_how_far_the_fetch_has_come(
    ground: Ground, nfs: Path, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parked ranks are told bytes, so that a long wait is no riddle."""
    monkeypatch.setattr("outlast.daemon.core.welcome.TELL_S", 0.0)
    await put(nfs, 30)
    async with ground.life() as life:
        line = await dial()
        line.hello(life.checkpoints)
        told = []
        while isinstance(said := await line.hear(), Park):
            told.append(said.reason)
        assert isinstance(said, Resume)
        assert told[0] == "looking for the newest checkpoint"
        assert any("GB are here" in reason for reason in told)


async def test_a_store_that_says_nothing_costs_the_bound(
    ground: Ground, nfs: Path, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount that hangs: after the bound the job goes on from what is here."""

    async def hang(_: StoreDestination) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(StoreDestination, "held", hang)
    item = await put(ground.folder / "ckpt", 10)
    async with ground.life() as life:
        welcome = life.desks["tune"].welcome
        welcome._places = replace(welcome._places, look_s=0.2)
        line = await dial()
        line.hello(life.checkpoints)
        assert (await answer_of(line)).tag == item.tag


async def test_after_a_takeover_nobody_else_is_asked(
    ground: Ground, nfs: Path, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The takeover has said where the job goes on; a place that is slow may not delay it."""
    await put(ground.folder / "ckpt", 10)
    await put(nfs, 30)
    async with ground.life() as life:
        life.job.became(replace(life.job.state, epoch=2))  # started_epoch is still 1
        line = await dial()
        line.hello(life.checkpoints)
        resume = await answer_of(line)
        assert (resume.epoch, resume.tag) == (2, "global_step10")


async def test_a_peer_in_a_later_epoch_has_the_last_word(ground: Ground, nfs: Path, dial: Dial) -> None:
    """Known to be fenced: the search ends without an answer, and the plan's own fencing gives it."""
    await put(nfs, 30)
    async with ground.life() as life:
        welcome = life.desks["tune"].welcome
        welcome._fence = lambda: 2
        line = await dial()
        line.hello(life.checkpoints)
        assert isinstance(await line.hear(), Park)
        await until(lambda: welcome._search is not None)
        await until(lambda: welcome._search is None)
        assert life.record.of("fetching") == life.record.of("resumed") == []
        welcome._fence = lambda: 0
        life.job.changed.set()
        assert (await answer_of(line)).tag == "global_step30"


async def test_a_job_with_nothing_elsewhere_is_searched_as_ever(ground: Ground, dial: Dial) -> None:
    """No peer and no store: the newest whole one here, at once."""
    item = await put(ground.folder / "ckpt", 10)
    async with ground.life() as life:
        places = life.desks["tune"].welcome._places
        assert isinstance(places, Search)
        assert places.sources == []
        line = await dial()
        line.hello(life.checkpoints)
        assert (await answer_of(line)).tag == item.tag
