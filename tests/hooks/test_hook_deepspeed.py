"""Real DeepSpeed trainings on CPU, saved by the hook and resumed to the last bit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.checkpoint.commit import CommitOrder, commit
from outlast.wire.messages import Hello, Resume, Saved
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
    import time

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
