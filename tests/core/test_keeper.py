"""A job with its keeper on a real socket and folder, and ranks that train, freeze, leave and return."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.core import errands
from outlast.daemon.core.facts import Place
from outlast.simulations.rank import Script, ScriptedRank
from outlast.wire.messages import Flush, StandDown
from outlast.wire.store import Committed, newest_whole, scan

if TYPE_CHECKING:
    from tests.core.conftest import Ground, Life

BOUND_S = 15.0


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - steps are announced to nobody here
            await asyncio.sleep(0.01)


async def trains(*ranks: ScriptedRank) -> None:
    """Wait until every rank has taken two steps more."""
    goal = [rank.step + 2 for rank in ranks]
    await until(lambda: all(rank.step >= step for rank, step in zip(ranks, goal, strict=True)))


async def newest(folder: Path) -> Committed | None:
    return await asyncio.to_thread(newest_whole, folder)


async def checkpoint(life: Life) -> Place:
    """An operator's checkpoint, committed."""
    place = await asyncio.wait_for(life.job.ask_checkpoint("an operator asked"), BOUND_S)
    assert isinstance(place, Place), place
    return place


def told(rank: ScriptedRank, kind: type[Flush] | type[StandDown]) -> list[Flush | StandDown]:
    return [m for _, m in rank.told if isinstance(m, kind)]


async def test_the_interval_commits_and_training_goes_on(tmp_path: Path, ground: Ground) -> None:
    """Every interval, all ranks save one step, it is committed, and nobody is held."""
    often = type(ground)(tmp_path, every="300ms")
    async with often.life() as life, often.trainer(often.script(0, 2), often.script(1, 2)) as ranks:
        said = await life.record.until("committed", 2)
        await trains(*ranks)
    found = await newest(life.checkpoints)
    assert found is not None
    assert found.manifest.reason == "interval"
    assert found.step >= said["step"] > 0
    assert found.manifest.layout.world == 2
    assert all(not m.hold for rank in ranks for m in told(rank, Flush) if isinstance(m, Flush))


async def test_an_operator_gets_the_tag(ground: Ground) -> None:
    """The answer comes when the checkpoint is committed, and it names what lies on disk."""
    async with ground.life() as life:
        assert await life.job.ask_checkpoint("x") == "no trainer is connected"
        async with ground.trainer(ground.script(0, 2), ground.script(1, 2)) as ranks:
            await trains(*ranks)
            place = await checkpoint(life)
            found = await newest(life.checkpoints)
            assert found is not None
            assert (found.epoch, found.tag, found.step) == (place.epoch, place.tag, place.step)
            assert place.tag == f"global_step{place.step}"
            assert place.size == found.manifest.total_bytes
            last = told(ranks[1], StandDown)[-1]
            assert isinstance(last, StandDown)
            assert (last.then, last.committed) == ("train", True)
            assert life.job.newest == place


async def test_without_a_peer_the_newest_two_stay(ground: Ground) -> None:
    """With nobody to ship to, older checkpoints go once two newer ones are committed here."""
    async with ground.life() as life, ground.trainer(ground.script()) as ranks:
        await trains(*ranks)
        tags = []
        for _ in range(3):
            tags.append((await checkpoint(life)).tag)
            await trains(*ranks)
        folder = life.checkpoints / "epoch-1"
        await until(lambda: not (folder / tags[0]).exists())
        left = await asyncio.to_thread(lambda: {p.name for p in folder.iterdir() if p.is_dir()})
        assert left == set(tags[1:])


async def test_a_save_that_a_crash_cut_off_goes_with_the_next_commit(ground: Ground) -> None:
    """It would stay for good: nobody comes back to that step."""
    async with ground.life() as life, ground.trainer(ground.script()) as ranks:
        await trains(*ranks)
        cut = life.checkpoints / "epoch-1" / "global_step0.partial"
        await asyncio.to_thread(cut.mkdir, parents=True)
        place = await checkpoint(life)
        await until(lambda: not cut.exists())
        assert (cut.parent / place.tag).is_dir()


@pytest.mark.blocking  # the traceback in the log is made from the source files
async def test_a_bug_in_the_commit_ends_the_flush(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error nobody foresaw is reported once, the flush is given up, and the next one is tried anew."""
    calls: list[str] = []

    def broken(*_args: object) -> Committed:
        calls.append("commit")
        raise RuntimeError("not foreseen")

    async with ground.life() as life, ground.trainer(ground.script()) as ranks:
        await trains(*ranks)
        with monkeypatch.context() as patch:
            patch.setattr(errands, "commit", broken)
            outcome = await asyncio.wait_for(life.job.ask_checkpoint("x"), BOUND_S)
        assert isinstance(outcome, str)
        assert "unexpected error" in outcome
        assert calls == ["commit"]
        await trains(*ranks)
        assert (await checkpoint(life)).step > 0


async def test_an_operator_is_told_when_the_trainer_leaves(ground: Ground) -> None:
    """A wish that waits for a second rank ends when the first one leaves."""
    async with ground.life() as life:
        async with ground.trainer(ground.script(0, 2)) as ranks:
            await trains(*ranks)
            answer = life.job.ask_checkpoint("an operator asked")
            await asyncio.sleep(0)
            assert not answer.done()
        assert await asyncio.wait_for(answer, BOUND_S) == "the trainer left"


async def test_wishes_at_once_are_one_checkpoint(ground: Ground) -> None:
    """Three operators who ask together get the same checkpoint."""
    async with ground.life() as life, ground.trainer(ground.script(save_s=0.1)) as ranks:
        await trains(*ranks)
        answers = await asyncio.wait_for(
            asyncio.gather(*(life.job.ask_checkpoint("together") for _ in range(3))), BOUND_S
        )
    assert len(set(answers)) == 1
    assert len(life.record.of("committed")) == 1


@asynccontextmanager
async def rank_process(script: Script) -> AsyncIterator[asyncio.subprocess.Process]:
    """A rank as a process of its own, killed at the end."""
    words = ["--socket", script.socket, "--checkpoints", script.checkpoints, "--step-s", script.step_s]
    words += ["--rank", script.rank, "--world", script.world]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "outlast.simulations.rank",
        *map(str, words),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_frozen_rank_is_named_before_the_deadline(ground: Ground) -> None:
    """One rank stopped: given up in time with its pid, nothing committed, the other trains on (T9)."""
    async with (
        ground.life() as life,
        ground.trainer(ground.script(0, 2)) as (rank,),
        rank_process(ground.script(1, 2)) as frozen,
    ):
        await trains(rank)
        before = await checkpoint(life)
        os.kill(frozen.pid, signal.SIGSTOP)
        live = life.notice(5.0)
        failed = await life.record.until("flush_failed")
        assert life.clock.monotonic() < live.deadline - 1.0
        assert f"rank 1 (pid {frozen.pid})" in failed["because"]
        assert "the last committed checkpoint counts" in life.job.last_decision or life.job.flush is None
        await trains(rank)
        os.kill(frozen.pid, signal.SIGCONT)
        found = await asyncio.to_thread(lambda: list(scan(life.checkpoints)))
        assert [c.tag for c in found] == [before.tag]
        assert life.job.newest == before
        assert len(life.record.of("flush_asked")) == 2


async def test_a_killed_rank_ends_the_flush(ground: Ground) -> None:
    """A trainer that dies in the middle of its save is no checkpoint; the operator hears why."""
    async with ground.life() as life:
        async with ground.trainer(ground.script(save_s=60.0)) as ranks:
            await trains(*ranks)
            answer = life.job.ask_checkpoint("an operator asked")
            await life.record.until("step_agreed")
        assert "the trainer left before it had saved" in str(await asyncio.wait_for(answer, BOUND_S))
    assert await newest(life.checkpoints) is None


async def test_a_save_of_an_earlier_life_is_adopted(ground: Ground) -> None:
    """The daemon dies while a rank still saves; the next life commits what all have saved."""
    scripts = ground.script(0, 2), ground.script(1, 2, save_s=0.6)
    async with ground.trainer(*scripts) as ranks:
        async with ground.life() as first:
            await trains(*ranks)
            answer = first.job.ask_checkpoint("an operator asked")
            agreed = await first.record.until("step_agreed")
        assert not first.record.of("committed")
        answer.cancel()
        async with ground.life() as second:
            committed = await second.record.until("committed")
            assert committed["episode"] == agreed["episode"]
            assert committed["step"] == agreed["step"]
            assert second.job.flush_s is None  # the commit alone is no measure of a flush
            await trains(*ranks)
            assert all(rank.epoch == 1 for rank in ranks)
    found = await newest(second.checkpoints)
    assert found is not None
    assert found.step == agreed["step"]
    assert found.manifest.flush_id == agreed["episode"]


async def test_a_restart_before_the_agreement_lets_the_ranks_train(ground: Ground) -> None:
    """A flush nobody remembers is off: ranks that wait for its step are told to train on."""
    scripts = ground.script(0, 2), ground.script(1, 2, step_s=30.0)
    async with ground.trainer(*scripts) as ranks:
        async with ground.life() as first:
            await trains(ranks[0])
            answer = first.job.ask_checkpoint("an operator asked")
            await first.record.until("step_agreed")
            stuck = ranks[0].step
        answer.cancel()
        async with ground.life():
            await trains(ranks[0])
            assert ranks[0].step > stuck


async def test_a_trainer_that_comes_back_resumes_the_newest(ground: Ground) -> None:
    """A new trainer process is told the newest committed checkpoint, and trains on from its step."""
    async with ground.life() as life:
        async with ground.trainer(ground.script()) as ranks:
            await trains(*ranks)
            assert ranks[0].resumed is not None
            assert ranks[0].resumed.tag is None
            await checkpoint(life)
            await trains(*ranks)
            place = await checkpoint(life)
        await until(lambda: len(life.job.ranks) == 0)
        async with ground.trainer(ground.script()) as again:
            await until(lambda: again[0].resumed)
            resumed = again[0].resumed
            assert resumed is not None
            assert (resumed.tag, resumed.step, resumed.epoch) == (place.tag, place.step, place.epoch)
            assert resumed.folder == str(life.checkpoints / "epoch-1")
            await trains(*again)
            assert again[0].step > place.step


def cut(path: Path) -> None:
    """The last byte is missing."""
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    """One bit is another."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, empty, Path.unlink])
async def test_a_torn_newest_is_passed_over(ground: Ground, damage: Callable[[Path], None]) -> None:
    """The newest is damaged in one file: the trainer resumes the one before it (T7)."""
    async with ground.life() as life:
        async with ground.trainer(ground.script()) as ranks:
            await trains(*ranks)
            good = await checkpoint(life)
            await trains(*ranks)
            torn = await checkpoint(life)
        shard = life.checkpoints / "epoch-1" / torn.tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
        await asyncio.to_thread(damage, shard)
    async with ground.life(), ground.trainer(ground.script()) as again:
        await until(lambda: again[0].resumed)
        assert again[0].resumed is not None
        assert (again[0].resumed.tag, again[0].resumed.step) == (good.tag, good.step)


async def test_a_notice_without_a_peer_is_committed_here(ground: Ground) -> None:
    """Nobody can take over: the checkpoint is kept here, the ranks train on; withdrawn changes nothing."""
    async with ground.life() as life, ground.trainer(ground.script(0, 2), ground.script(1, 2)) as ranks:
        await trains(*ranks)
        live = life.notice(60.0)
        committed = await life.record.until("committed")
        assert committed["episode"] == live.episode
        await trains(*ranks)
        life.job.noticed(None)
        await trains(*ranks)
        assert len(life.record.of("flush_asked")) == 1
