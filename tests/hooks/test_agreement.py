"""Ranks agree on one step, whatever the daemon and the links do: real sockets, ranks as threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.hooks import agreement, flushes, guard, link
from outlast.hooks.ballot import LocalBallot
from outlast.simulations.training.plain import build
from outlast.wire.messages import At, Failed, Flush, Saved, StandDown

QUICK = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Crowd:
    """Ranks as threads that meet in a barrier each step, like a collective; a hang breaks the barrier."""

    def __init__(self, world: int, folder: Path, pauses: list[float]) -> None:
        self.folder = folder
        self.errors: list[BaseException] = []
        self.guards: list[guard.Guard] = []
        self._barrier = threading.Barrier(world, action=self._complete)
        self._pauses = pauses
        self._finish, self._last = False, False
        shared: dict[str, str] = {}
        self._threads = [
            threading.Thread(target=self._rank, args=(LocalBallot(rank, world, shared),), daemon=True)
            for rank in range(world)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """All ranks train on, to one last step, and none is left behind."""
        self._finish = True
        self.ended()
        assert self.errors == []

    def ended(self, seconds: float = 20.0) -> None:
        """All ranks have ended."""
        for thread in self._threads:
            thread.join(seconds)
        alive = [thread for thread in self._threads if thread.is_alive()]
        self._barrier.abort()
        assert not alive, "ranks hang"

    def _complete(self) -> None:
        # Run by one rank while the others wait: all see the same last step.
        self._last = self._finish

    def _rank(self, ballot: LocalBallot) -> None:
        try:
            with build(self.folder, ballot) as own:
                self.guards.append(own)
                pause = self._pauses[ballot.rank % len(self._pauses)]
                while not self._last:
                    time.sleep(pause)
                    self._barrier.wait(15.0)
                    own.step()
        except BaseException as exc:  # noqa: BLE001 - looked at by the test
            self.errors.append(exc)
            if not isinstance(exc, SystemExit):
                self._barrier.abort()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules with waits short enough for a test."""
    monkeypatch.setattr(agreement, "RECONNECT_S", 0.3)
    monkeypatch.setattr(agreement, "HELD_LOST_S", 0.3)
    monkeypatch.setattr(agreement, "WAIT_AT_LEAST_S", 1.0)
    monkeypatch.setattr(flushes, "WAIT_AT_LEAST_S", 1.0)
    monkeypatch.setattr(guard, "READY_S", 1.0)
    monkeypatch.setattr(link, "URGENT_RETRY_S", 0.02)


@pytest.fixture
def counter() -> Iterator[int]:
    """A number for the folder of each example."""
    return iter(range(1_000_000))


def _saved_step(daemon: Any, flush_id: str) -> int | None:
    """The one step at which all ranks saved, or None if none did; anything else is a failure."""
    words = daemon.words(Saved, flush_id)
    if not words:
        return None
    assert len(words) == daemon.world, f"only ranks {sorted(words)} saved"
    steps = {word.step for word in words.values()}
    assert len(steps) == 1, f"ranks saved at steps {steps}"
    return int(steps.pop())


pause = st.floats(0.001, 0.02)


@QUICK
@given(
    st.integers(1, 4),
    st.lists(pause, min_size=1, max_size=4),
    st.lists(st.booleans(), min_size=1, max_size=3),
)
def test_all_ranks_save_the_same_step(
    make_daemon: Callable[[int], Any],
    tmp_path: Path,
    counter: Any,
    world: int,
    pauses: list[float],
    holds: list[bool],
) -> None:
    """Each of several flushes, held or not, is saved by all ranks at one step, and training goes on."""
    daemon = make_daemon(world)
    daemon.start()
    crowd = Crowd(world, tmp_path / str(next(counter)), pauses)
    crowd.start()
    daemon.connected()
    steps = []
    for number, hold in enumerate(holds):
        daemon.flush(f"f{number}", hold=hold)
        daemon.all_said(Saved, f"f{number}")
        steps.append(_saved_step(daemon, f"f{number}"))
    crowd.finish()
    daemon.stop()
    assert None not in steps
    assert steps == sorted(steps)  # type: ignore[type-var]  # None is ruled out above
    for step in steps:
        files = sorted((crowd.folder / "epoch-1" / f"global_step{step}.partial").iterdir())
        assert len(files) == world


@QUICK
@given(st.sets(st.integers(0, 3), min_size=1, max_size=3), st.lists(pause, min_size=1, max_size=4))
def test_an_agreement_that_reaches_only_some_reaches_all(
    make_daemon: Callable[[int], Any], tmp_path: Path, counter: Any, told: set[int], pauses: list[float]
) -> None:
    """The daemon dies after it told some ranks the step: all save that step, or all train on; none hangs."""
    daemon = make_daemon(4)
    daemon.agree_with = told
    daemon.start()
    crowd = Crowd(4, tmp_path / str(next(counter)), pauses)
    crowd.start()
    daemon.connected()
    daemon.flush("f", hold=False)
    daemon.all_said(At, "f")
    daemon.stop()
    crowd.finish()
    folders = sorted((crowd.folder / "epoch-1").glob("*")) if (crowd.folder / "epoch-1").exists() else []
    assert len(folders) <= 1
    for folder in folders:
        assert len(list(folder.iterdir())) == 4


def test_ranks_cut_off_learn_the_step_from_the_others(
    make_daemon: Callable[[int], Any], tmp_path: Path
) -> None:
    """Only rank 2 hears the agreed step before the links of the others are cut: all save it."""
    daemon = make_daemon(4)
    daemon.agree_with = {2}
    daemon.start()
    crowd = Crowd(4, tmp_path, [0.003, 0.001])
    crowd.start()
    daemon.connected()
    daemon.flush("f", hold=True)
    daemon.all_said(At, "f")
    for rank in (0, 1, 3):
        daemon.cut(rank)
    daemon.all_said(Saved, "f", 5.0)
    crowd.finish()
    assert _saved_step(daemon, "f") == max(at.step for at in daemon.words(At, "f").values())


@QUICK
@given(st.lists(pause, min_size=1, max_size=4))
def test_a_daemon_lost_before_the_agreement_saves_nothing(
    make_daemon: Callable[[int], Any], tmp_path: Path, counter: Any, pauses: list[float]
) -> None:
    """Every rank has promised, nobody heard a step, the daemon is gone: all train on within the bound."""
    daemon = make_daemon(3)
    daemon.agree_with = set()
    daemon.start()
    crowd = Crowd(3, tmp_path / str(next(counter)), pauses)
    crowd.start()
    daemon.connected()
    daemon.flush("f")
    daemon.all_said(At, "f")
    daemon.stop()
    crowd.finish()
    assert not (crowd.folder / "epoch-1").exists()


def test_a_flush_given_up_lets_the_ranks_train_on(make_daemon: Callable[[int], Any], tmp_path: Path) -> None:
    """A rank never answers, so the daemon gives the flush up: nobody has saved, the next flush works."""
    daemon = make_daemon(3)
    daemon.agree_with = set()
    daemon.start()
    crowd = Crowd(3, tmp_path, [0.01])
    crowd.start()
    daemon.connected()
    daemon.flush("f1", hold=True)
    daemon.all_said(At, "f1")
    daemon.send(StandDown("rank 2 did not answer", "train", "f1"))
    daemon.agree_with = None
    daemon.flush("f2", hold=True)
    daemon.all_said(Saved, "f2")
    crowd.finish()
    assert _saved_step(daemon, "f1") is None
    assert _saved_step(daemon, "f2") is not None


def test_saved_is_said_again_until_the_daemon_has_answered(
    make_daemon: Callable[[int], Any], tmp_path: Path
) -> None:
    """A daemon killed after the ranks saved hears Saved again from each when it is back."""
    daemon = make_daemon(2)
    daemon.answers_saved = False
    daemon.start()
    crowd = Crowd(2, tmp_path, [0.02])
    crowd.start()
    daemon.connected()
    daemon.flush("f")
    first = daemon.all_said(Saved, "f")
    daemon.stop()
    daemon.said.clear()
    daemon.start()
    assert daemon.all_said(Saved, "f") == first
    daemon.send(StandDown("committed", "train", "f", committed=True))
    daemon.stop()
    daemon.said.clear()
    daemon.start()
    daemon.connected()
    daemon.flush("g")
    daemon.all_said(Saved, "g")
    crowd.finish()
    assert daemon.words(Saved, "f") == {}


def test_held_ranks_wait_and_leave_together(make_daemon: Callable[[int], Any], tmp_path: Path) -> None:
    """Held ranks make no step until the daemon sends them home, and then they exit with 0."""
    daemon = make_daemon(3)
    daemon.answers_saved = False
    daemon.start()
    crowd = Crowd(3, tmp_path, [0.005])
    crowd.start()
    daemon.connected()
    daemon.flush("f", hold=True)
    step = daemon.all_said(Saved, "f")[0].step
    assert {own.step_count for own in crowd.guards} == {step}
    daemon.send(StandDown("handed over", "exit", "f", committed=True))
    crowd.ended()
    assert [exc.code for exc in crowd.errors if isinstance(exc, SystemExit)] == [0, 0, 0]
    assert {own.step_count for own in crowd.guards} == {step}


def test_ranks_sent_home_in_the_middle_leave_at_one_step(
    make_daemon: Callable[[int], Any], tmp_path: Path
) -> None:
    """A lost epoch ends training at one common step, so that no rank waits for another that has left."""
    daemon = make_daemon(4)
    daemon.start()
    crowd = Crowd(4, tmp_path, [0.001, 0.004, 0.002, 0.0])
    crowd.start()
    daemon.connected()
    daemon.send(StandDown("epoch 1 is over", "exit"))
    crowd.ended()
    assert [exc.code for exc in crowd.errors if isinstance(exc, SystemExit)] == [0, 0, 0, 0]
    assert len({own.step_count for own in crowd.guards}) == 1


def test_a_disk_that_is_full_fails_the_flush_and_not_the_training(
    make_daemon: Callable[[int], Any], tmp_path: Path
) -> None:
    """A folder that cannot be made is told to the daemon by every rank, and training goes on."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "epoch-1").write_text("in the way")
    daemon = make_daemon(2)
    daemon.start()
    crowd = Crowd(2, tmp_path / "store", [0.01])
    crowd.start()
    daemon.connected()
    daemon.flush("f", hold=True)
    failed = daemon.all_said(Failed, "f")
    crowd.finish()
    assert "epoch-1" in failed[1].reason


def test_a_long_phase_saves_in_check(make_daemon: Callable[[int], Any], tmp_path: Path) -> None:
    """A flush in a phase that calls check() is saved at the step before it, without waiting for the next."""
    daemon = make_daemon(1)
    daemon.start()
    own = build(tmp_path, LocalBallot())
    with own:
        daemon.connected()
        own.step()
        assert own.check()
        daemon.flush("f", hold=True)
        until = threading.Event()
        while not daemon.words(Saved, "f"):
            assert own.check()
            until.wait(0.01)
    assert daemon.words(Saved, "f")[0].step == 1
    assert daemon.words(At, "f")[0].step == 1


def test_a_phase_that_ends_without_check_saves_after_the_next_step(tmp_path: Path) -> None:
    """check() is not called again: the promise becomes the end of the next step once its time is over."""
    now = [100.0]
    own = agreement.Agreement(LocalBallot(), clock=lambda: now[0])
    own.step_count = own.phase = 7
    own.hear(Flush("f", "test", 8.0))
    assert not own.outbox
    assert own.promise_when_due() == pytest.approx(2.0)
    now[0] += 2.1
    own.promise_when_due()
    assert list(own.outbox) == [At("f", 8)]
