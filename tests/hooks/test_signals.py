"""SIGTERM and SIGHUP, launchers that kill, and ranks that freeze: real processes, real signals."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.hooks import link
from outlast.hooks.ballot import LocalBallot
from outlast.simulations.training.plain import build
from outlast.wire.messages import Ask, At, Done, Saved, StandDown

WORLD = 4


@pytest.fixture
def store_port() -> Iterator[int]:
    """A store that ranks meet in, as torch.distributed's launcher would host it."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, WORLD, is_master=True, wait_for_workers=False)
    yield store.port
    del store  # the server ends with its object


def _rank(folder: Path, *options: str) -> list[str]:
    return [
        sys.executable, "-m", "outlast.simulations.training.plain", "--checkpoints", str(folder), *options
    ]  # fmt: skip


def _saved_steps(folder: Path) -> dict[str, set[int]]:
    """The steps found in each checkpoint folder's files."""
    return {
        path.name: {json.loads(file.read_text())["step"] for file in path.iterdir()}
        for path in (folder / "epoch-1").glob("*")
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_held_until_the_work_is_committed(
    make_daemon: Callable[[int], Any], processes: Any, tmp_path: Path, number: signal.Signals
) -> None:
    """The rank asks for a flush, saves, waits for the commit, and only then ends, by that signal's code."""
    daemon = make_daemon(1)
    daemon.flush_on_ask, daemon.answers_saved = True, False
    daemon.start()
    before = signal.signal(number, signal.SIG_DFL)  # a rank ignores what its caller does
    rank = processes.start(*_rank(tmp_path / "store", "--steps", "10000", "--step-seconds", "0.02"))
    signal.signal(number, before)
    daemon.connected()
    _trained(daemon)
    rank.send_signal(number)
    saved = daemon.all_said(Saved, "signal")[0]
    assert rank.poll() is None
    assert daemon.words(Ask)[0].reason == f"signal {int(number)}"
    daemon.send(StandDown("committed", "train", "signal", committed=True))
    assert rank.wait(10.0) == 128 + number
    assert _saved_steps(tmp_path / "store") == {f"global_step{saved.step}.partial": {saved.step}}
    assert not daemon.words(Done)


def _trained(daemon: Any) -> None:
    """Until every rank has told of its progress: its handlers are in place, and no rank waits for another."""
    from outlast.wire.messages import Progress

    daemon.all_said(Progress, seconds=30.0)


def test_a_second_signal_is_not_held(
    make_daemon: Callable[[int], Any], processes: Any, tmp_path: Path
) -> None:
    """Whoever signals twice means it: the rank dies of the signal at once."""
    daemon = make_daemon(1)
    daemon.start()
    rank = processes.start(*_rank(tmp_path / "store", "--steps", "10000", "--step-seconds", "0.02"))
    daemon.connected()
    _trained(daemon)
    rank.send_signal(signal.SIGTERM)
    daemon.all_said(Ask)
    assert rank.poll() is None
    rank.send_signal(signal.SIGTERM)
    assert rank.wait(5.0) == -signal.SIGTERM


def test_without_a_daemon_a_signal_does_what_it_did(processes: Any, tmp_path: Path, wait: Any) -> None:
    """No daemon, no holding: SIGTERM ends the rank at once."""
    rank = processes.start(
        *_rank(tmp_path / "store", "--steps", "10000", "--step-seconds", "0.02"),
        OUTLAST_SOCKET=str(tmp_path / "none.sock"),
    )
    wait(lambda: "no Outlast daemon" in processes.output())
    rank.send_signal(signal.SIGTERM)
    assert rank.wait(5.0) == -signal.SIGTERM


@pytest.fixture
def four_ranks(
    make_daemon: Callable[[int], Any], processes: Any, tmp_path: Path, store_port: int
) -> tuple[Any, list[Any]]:
    """Four rank processes in step with each other, and their daemon."""
    daemon = make_daemon(WORLD)
    daemon.start()
    ranks = [
        processes.start(*_rank(
            tmp_path / "store", "--rank", str(rank), "--world", str(WORLD), "--store", str(store_port),
            "--steps", "100000", "--step-seconds", str(0.01 + 0.03 * rank),
        ))
        for rank in range(WORLD)
    ]  # fmt: skip
    daemon.connected(50.0)
    _trained(daemon)
    return daemon, ranks


def test_t9_four_processes_save_the_same_step(four_ranks: tuple[Any, list[Any]], tmp_path: Path) -> None:
    """Ranks that are in different steps save one step, at most one beyond any promise."""
    daemon, ranks = four_ranks
    for number in range(5):
        daemon.flush(f"f{number}", hold=number % 2 == 0)
        saved = daemon.all_said(Saved, f"f{number}")
        promised = {at.step for at in daemon.words(At, f"f{number}").values()}
        assert {word.step for word in saved.values()} == {max(promised)}
        assert max(promised) - min(promised) <= 1
    assert all(len(steps) == 1 for steps in _saved_steps(tmp_path / "store").values())
    assert [rank.poll() for rank in ranks] == [None] * WORLD


def test_t9_a_frozen_rank_keeps_all_from_saving(
    four_ranks: tuple[Any, list[Any]], tmp_path: Path, wait: Any
) -> None:
    """Rank 1 is stopped: nobody saves, the daemon gives up, and all train on when it wakes."""
    daemon, ranks = four_ranks
    os.kill(ranks[1].pid, signal.SIGSTOP)
    daemon.flush("f", 20.0, hold=True)
    wait(lambda: len(daemon.words(At, "f")) == WORLD - 1)
    daemon.send(StandDown("rank 1 did not answer", "train", "f"))
    assert daemon.words(Saved, "f") == {}
    os.kill(ranks[1].pid, signal.SIGCONT)
    daemon.flush("g", hold=True)
    steps = {word.step for word in daemon.all_said(Saved, "g").values()}
    assert len(steps) == 1
    assert list(_saved_steps(tmp_path / "store")) == [f"global_step{steps.pop()}.partial"]


def test_a_signal_to_one_rank_ends_all_ranks_together(
    four_ranks: tuple[Any, list[Any]], tmp_path: Path
) -> None:
    """Only rank 3 is signalled, as some launchers do: all save, and all leave at the saved step."""
    daemon, ranks = four_ranks
    daemon.flush_on_ask = True
    ranks[3].send_signal(signal.SIGTERM)
    assert [rank.wait(20.0) for rank in ranks] == [128 + signal.SIGTERM] * WORLD
    assert len({word.step for word in daemon.words(Saved, "signal").values()}) == 1
    assert len(daemon.words(Saved, "signal")) == WORLD


def test_a_held_signal_is_let_through_when_nobody_answers(
    make_daemon: Callable[[int], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that is connected but silent cannot keep a rank alive: the previous handler gets its turn."""
    monkeypatch.setattr(link, "SIGNAL_ANSWER_S", 0.2)
    daemon = make_daemon(1)
    daemon.start()
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))
    try:
        with build(tmp_path, LocalBallot()) as guard:
            daemon.connected()
            os.kill(os.getpid(), signal.SIGTERM)
            assert guard.step()
            assert seen == []
            until = time.monotonic() + 10.0
            while not seen and time.monotonic() < until:
                time.sleep(0.01)
                assert guard.step()
        assert seen == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is not guard.signals._handle
    finally:
        signal.signal(signal.SIGTERM, before)


LAUNCHER = """
    import signal, subprocess, sys, time

    ranks = [subprocess.Popen(sys.argv[1:])]

    def end(number, frame):
        time.sleep(1.0)
        for rank in ranks:
            rank.kill()
        sys.exit(1)

    signal.signal(signal.SIGTERM, end)
    sys.exit(max(rank.wait() for rank in ranks))
"""


def test_t11_a_launcher_that_kills_is_outlived_by_a_slow_save(
    make_daemon: Callable[[int], Any], processes: Any, tmp_path: Path
) -> None:
    """A save of 3 s under a launcher that kills 1 s after SIGTERM is complete: ranks are asked by socket."""
    daemon = make_daemon(1)
    daemon.then = "exit"
    daemon.start()
    launcher = processes.start(
        sys.executable, "-c", textwrap.dedent(LAUNCHER),
        *_rank(tmp_path / "store", "--steps", "10000", "--step-seconds", "0.02", "--save-seconds", "3"),
    )  # fmt: skip
    daemon.connected()
    _trained(daemon)
    assert daemon.hellos[0].pid != launcher.pid
    daemon.flush("f", hold=True)
    saved = daemon.all_said(Saved, "f")[0]
    assert saved.seconds >= 3.0
    assert launcher.wait(10.0) == 0
    assert _saved_steps(tmp_path / "store") == {f"{saved.tag}.partial": {saved.step}}
