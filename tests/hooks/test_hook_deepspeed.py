"""Real DeepSpeed trainings on CPU, saved by the hook and resumed to the last bit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.checkpoint.adopting import adopt
from outlast.daemon.checkpoint.commit import CommitOrder, commit
from outlast.wire.messages import Failed, Hello, Resume, Saved, StandDown
from outlast.wire.store import newest_whole

STEPS = 8


def _train(processes: Any, checkpoints: Path, losses: Path, zero: int, **options: str) -> Any:
    extra = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return processes.start(
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "outlast.simulations.training.gpt",
        "--checkpoints", str(checkpoints), "--losses", str(losses), "--job", "tune", "--size", "tiny",
        "--steps", str(STEPS), "--zero", str(zero), *extra,
    )  # fmt: skip


def _ended(process: subprocess.Popen[bytes], processes: Any) -> None:
    code = process.wait(55.0)
    assert code == 0, processes.output()[-6000:]


def _losses(path: Path) -> dict[int, str]:
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines}


def _interrupt_and_resume(make_daemon: Callable[[int], Any], processes: Any, folder: Path, zero: int) -> None:
    store = folder / "checkpoints"
    daemon = make_daemon(2)

    def committing(saved: Saved, hello: Hello) -> None:
        order = CommitOrder("tune", saved.tag, saved.step, 1, saved.id, "notice", hello.layout)
        commit(store, order, 1_800_000_000.0)

    daemon.commit, daemon.then = committing, "exit"
    daemon.start()
    first = _train(processes, store, folder / "first", zero, step_seconds="0.3")
    daemon.connected(50.0)
    wait_for_step(folder / "first", 2)
    daemon.flush("n1", hold=True)
    saved = daemon.all_said(Saved, "n1", 30.0)
    assert len({word.step for word in saved.values()}) == 1
    _ended(first, processes)

    found = newest_whole(store)
    assert found is not None
    assert found.step == saved[0].step
    assert max(_losses(folder / "first")) == found.step
    daemon.greeting = [Resume(2, str(found.folder), found.tag, found.step)]
    _ended(_train(processes, store, folder / "second", zero, step_seconds="0"), processes)
    assert daemon.hellos[0].layout.zero_stage == zero

    daemon.stop()
    _ended(_train(processes, folder / "empty", folder / "whole", zero, step_seconds="0"), processes)
    pieces = {**_losses(folder / "first"), **_losses(folder / "second")}
    assert min(_losses(folder / "second")) == found.step + 1
    assert pieces == _losses(folder / "whole")


def wait_for_step(path: Path, step: int) -> None:
    """Until the training has written its losses up to ``step``."""

    until = time.monotonic() + 40.0
    while not path.exists() or max(_losses(path), default=0) < step:
        assert time.monotonic() < until, "the training did not get going"
        time.sleep(0.02)


@pytest.mark.timeout(180)
def test_zero_2_resumes_bit_for_bit(
    make_daemon: Callable[[int], Any], processes: Any, tmp_path: Path
) -> None:
    """A 2-rank ZeRO-2 run interrupted by a flush and resumed has the losses of the uninterrupted run."""
    _interrupt_and_resume(make_daemon, processes, tmp_path, zero=2)


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_every_zero_stage_resumes_bit_for_bit(
    make_daemon: Callable[[int], Any], processes: Any, tmp_path: Path, zero: int
) -> None:
    """The same holds for ZeRO 0, 1 and 3."""
    _interrupt_and_resume(make_daemon, processes, tmp_path, zero=zero)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_universal_checkpoint_goes_on_with_another_number_of_ranks(
    make_daemon: Callable[[int], Any], processes: Any, tmp_path: Path
) -> None:
    """Two ranks saved it: as it is one rank is refused, converted by DeepSpeed it goes on where they were."""
    store = tmp_path / "checkpoints"
    daemon = make_daemon(2)
    daemon.commit = lambda saved, hello: commit(
        store, CommitOrder("tune", saved.tag, saved.step, 1, saved.id, "notice", hello.layout), 1.0
    )
    daemon.then = "exit"
    daemon.start()
    first = _train(processes, store, tmp_path / "first", 2, step_seconds="0.3")
    daemon.connected(50.0)
    wait_for_step(tmp_path / "first", 2)
    daemon.flush("n1", hold=True)
    daemon.all_said(Saved, "n1", 30.0)
    _ended(first, processes)
    daemon.stop()
    found = newest_whole(store)
    assert found is not None

    assert _alone(processes, store, tmp_path / "refused").wait(55.0) != 0
    assert "was saved with 2 ranks" in processes.output()
    assert not (tmp_path / "refused").exists()

    universal = found.folder / f"{found.tag}_universal"
    converter = processes.start(
        sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal",
        "--input_folder", str(found.path), "--output_folder", str(universal), "--inject_missing_state",
    )  # fmt: skip
    _ended(converter, processes)
    adopt(universal, 2.0)
    _ended(_alone(processes, store, tmp_path / "second", "--load-universal"), processes)
    before, after = _losses(tmp_path / "first"), _losses(tmp_path / "second")
    assert (min(after), max(after)) == (found.step + 1, STEPS)
    # Not from scratch: a fresh model's loss is that of the first step.
    assert float.fromhex(after[found.step + 1]) < float.fromhex(before[1])


def _alone(processes: Any, checkpoints: Path, losses: Path, *more: str) -> subprocess.Popen[bytes]:
    """The same training by one rank, without a daemon."""
    process: subprocess.Popen[bytes] = processes.start(
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1",
        "-m", "outlast.simulations.training.gpt",
        "--checkpoints", str(checkpoints), "--losses", str(losses), "--job", "tune", "--size", "tiny",
        "--steps", str(STEPS), "--zero", "2", "--step-seconds", "0", *more,
    )  # fmt: skip
    return process


FULL_DISK = """
import os, torch
real, left = torch.save, [1]

def save(state, path, *args, **kwargs):
    if os.environ["RANK"] == "1" and "optim_states" in str(path) and left:
        left.clear()
        raise OSError(28, "No space left on device", str(path))
    return real(state, path, *args, **kwargs)

torch.save = save
from outlast.simulations.training.gpt import main
main()
"""


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_full_disk_on_one_rank_leaves_no_rank_in_a_barrier(
    make_daemon: Callable[[int], Any], processes: Any, tmp_path: Path
) -> None:
    """Rank 1 cannot write its shard: it says so, both train on, and the next flush is saved by both."""
    script = tmp_path / "full_disk.py"
    script.write_text(FULL_DISK)
    daemon = make_daemon(2)
    daemon.start()
    training = processes.start(
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script),
        "--checkpoints", str(tmp_path / "store"), "--losses", str(tmp_path / "losses"), "--job", "tune",
        "--size", "tiny", "--steps", "40", "--step-seconds", "0.1",
    )  # fmt: skip
    daemon.connected(50.0)
    wait_for_step(tmp_path / "losses", 2)
    daemon.flush("f", hold=True)
    until = time.monotonic() + 20.0
    while not (daemon.words(Failed, "f") and daemon.words(Saved, "f")):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert "No space left" in daemon.words(Failed, "f")[1].reason
    daemon.send(StandDown("rank 1 could not save", "train", "f"))
    daemon.flush("g")
    assert len({word.step for word in daemon.all_said(Saved, "g").values()}) == 1
    _ended(training, processes)
    assert max(_losses(tmp_path / "losses")) == 40


@pytest.mark.long
@pytest.mark.timeout(120)
def test_sigterm_to_torchrun_is_held_until_the_work_is_committed(
    make_daemon: Callable[[int], Any], processes: Any, tmp_path: Path
) -> None:
    """torchrun hands SIGTERM to its ranks: they save one checkpoint, which is committed before they end."""
    store = tmp_path / "store"
    daemon = make_daemon(2)
    daemon.flush_on_ask = True
    daemon.commit = lambda saved, hello: commit(
        store, CommitOrder("tune", saved.tag, saved.step, 1, saved.id, "signal", hello.layout), 1.0
    )
    daemon.start()
    training = _train(processes, store, tmp_path / "losses", 2, step_seconds="2")
    daemon.connected(50.0)
    wait_for_step(tmp_path / "losses", 2)
    training.terminate()
    training.wait(40.0)
    found = newest_whole(store)
    assert found is not None
    assert found.step == max(_losses(tmp_path / "losses"))
