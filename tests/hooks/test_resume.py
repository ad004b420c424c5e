"""Where training begins: by the daemon's word, or alone; parked; never silently from scratch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.checkpoint.commit import CommitOrder, commit
from outlast.hooks.ballot import LocalBallot
from outlast.hooks.resume import Origin, ResumeError, preflight
from outlast.simulations.training.plain import build
from outlast.wire.messages import At, Done, Layout, Park, Resume, Saved, StandDown
from outlast.wire.store import Committed


def _checkpoint(store: Path, step: int, epoch: int = 1) -> Committed:
    """A committed checkpoint of one rank."""
    partial = store / f"epoch-{epoch}" / f"global_step{step}.partial"
    partial.mkdir(parents=True)
    (partial / "outlast_rank_00000.pt").write_bytes(b"rank state")
    (partial / "mp_rank_00_model_states.pt").write_bytes(b"model state")
    order = CommitOrder("tune", f"global_step{step}", step, epoch, "f", "operator", Layout(1))
    return commit(store, order, 1_800_000_000.0)


def test_without_a_daemon_it_is_a_no_op_that_resumes_alone(
    short_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No daemon: the newest whole checkpoint counts, damaged ones do not, one warning says what it did."""
    monkeypatch.setenv("OUTLAST_SOCKET", str(short_path / "none.sock"))
    _checkpoint(tmp_path, 20)
    torn = _checkpoint(tmp_path, 40)
    (torn.path / "mp_rank_00_model_states.pt").write_bytes(b"model statE")
    with build(tmp_path, LocalBallot()) as guard:
        assert (guard.step_count, guard.resumed_from, guard.epoch) == (20, "global_step20", 1)
        assert all(guard.step() and guard.check() for _ in range(100))
    warnings = [record for record in caplog.records if "no Outlast daemon" in record.message]
    assert len(warnings) == 1
    assert guard.step_count == 120


def test_a_daemon_that_comes_later_protects_from_then_on(
    make_daemon: Callable[[int], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon starts after the training: it hears the step reached, sets the epoch, and can flush."""
    monkeypatch.setattr("outlast.hooks.link.FIRST_RETRY_S", 0.05)
    daemon = make_daemon(1)
    daemon.greeting = [Park("looking"), Resume(3, str(tmp_path / "epoch-2"), "global_step7", 7)]
    with build(tmp_path, LocalBallot()) as guard:
        guard.step()
        daemon.start()
        daemon.connected()
        daemon.flush("f")
        while not daemon.words(Saved, "f"):
            guard.step()
        assert guard.epoch == 3
    assert daemon.hellos[0].step >= 1
    saved = daemon.words(Saved, "f")[0]
    assert (tmp_path / "epoch-3" / f"{saved.tag}.partial").is_dir()


def test_a_run_that_cannot_go_on_here_fails_with_what_to_do(
    make_daemon: Callable[[int], Any], tmp_path: Path
) -> None:
    """A refusal is an error, not a quiet exit: a supervisor would take that for a job that is done."""
    daemon = make_daemon(1)
    daemon.greeting = [Park("looking"), StandDown("saved with 8 ranks: convert it", "exit", refused=True)]
    daemon.start()
    with pytest.raises(ResumeError, match="saved with 8 ranks: convert it"):
        build(tmp_path, LocalBallot())


def test_a_universal_checkpoint_passes_whatever_the_run(tmp_path: Path) -> None:
    """The same files converted by DeepSpeed fit any number of ranks; unconverted they are refused."""
    partial = tmp_path / "epoch-1" / "global_step20_universal.partial"
    (partial / "zero" / "weight").mkdir(parents=True)
    for name in ("zero/weight/fp32.pt", "mp_rank_00_model_states.pt", "outlast_rank_00000.pt"):
        (partial / name).write_bytes(b"bytes")
    order = CommitOrder("tune", "global_step20_universal", 20, 1, "f", "universal", Layout(1))
    found = commit(tmp_path, order, 1_800_000_000.0)
    preflight(LocalBallot(), Origin(20, 1, found.folder, found.tag, 1), Layout(8, 4, 2, 1, 3))
    plain = _checkpoint(tmp_path, 20)
    with pytest.raises(ResumeError, match=r"saved with 1 rank .* this run has 8 ranks .* ds_to_universal"):
        preflight(LocalBallot(), Origin(20, 1, plain.folder, plain.tag, 1), Layout(8, 4, 2, 1, 3))


def test_it_resumes_what_the_daemon_says_and_says_when_it_is_done(
    make_daemon: Callable[[int], Any], tmp_path: Path, wait: Any
) -> None:
    """Resume names another store's checkpoint: training goes on after its step, in the new epoch."""
    found = _checkpoint(tmp_path / "replicas", 30)
    daemon = make_daemon(1)
    daemon.greeting = [Resume(2, str(found.folder), found.tag, 30)]
    daemon.start()
    with build(tmp_path / "own", LocalBallot()) as guard:
        assert (guard.step_count, guard.epoch, guard.resumed_from) == (30, 2, "global_step30")
        guard.step()
    wait(lambda: daemon.words(Done))
    assert daemon.words(Done)[0].step == 31


def test_a_loop_left_by_an_error_is_not_done(make_daemon: Callable[[int], Any], tmp_path: Path) -> None:
    """Done is only said of a training that came to its end."""
    daemon = make_daemon(1)
    daemon.start()
    guard = build(tmp_path, LocalBallot())
    daemon.connected()
    with pytest.raises(ZeroDivisionError), guard:
        raise ZeroDivisionError
    daemon.stop()
    assert daemon.words(Done) == {}


def test_a_parked_trainer_waits_until_it_is_needed(
    make_daemon: Callable[[int], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a standby every rank waits, also over a restart of the daemon, and begins when told."""
    monkeypatch.setattr("outlast.hooks.link.URGENT_RETRY_S", 0.02)
    daemon = make_daemon(2)
    daemon.greeting = [Park("standby")]
    daemon.start()
    shared: dict[str, str] = {}
    guards: list[Any] = []
    threads = [
        threading.Thread(target=lambda r=rank: guards.append(build(tmp_path, LocalBallot(r, 2, shared))))
        for rank in range(2)
    ]
    for thread in threads:
        thread.start()
    daemon.connected()
    daemon.stop()
    daemon.start()
    daemon.connected()
    assert guards == []
    daemon.send(Resume(5))
    for thread in threads:
        thread.join(10.0)
    assert [(guard.epoch, guard.step_count) for guard in guards] == [(5, 0)] * 2
    for guard in guards:
        guard.close()


def test_a_trainer_that_is_not_needed_exits(make_daemon: Callable[[int], Any], tmp_path: Path) -> None:
    """StandDown(exit) as the answer ends the process with 0 before anything is trained."""
    daemon = make_daemon(1)
    daemon.greeting = [StandDown("epoch 1 is over", "exit")]
    daemon.start()
    with pytest.raises(SystemExit) as left:
        build(tmp_path, LocalBallot())
    assert left.value.code == 0


def test_a_rank_without_the_daemon_does_not_start_what_the_others_wait_with(
    make_daemon: Callable[[int], Any], tmp_path: Path, wait: Any
) -> None:
    """Rank 0 hears no daemon, rank 1 is parked: rank 0 must not decide to train."""
    shared = {"heard/1": "park"}
    daemon = make_daemon(1)
    daemon.greeting = [StandDown("rank 0 is not expected yet", "train")]
    daemon.start()
    guards: list[Any] = []
    thread = threading.Thread(target=lambda: guards.append(build(tmp_path, LocalBallot(0, 2, shared))))
    thread.start()
    wait(lambda: shared.get("heard/0"))
    thread.join(0.3)
    assert thread.is_alive()
    assert "origin" not in shared
    daemon.send(Resume(4))
    thread.join(10.0)
    assert [guard.epoch for guard in guards] == [4]
    guards[0].close()


@pytest.mark.parametrize("change", [{"world": 2}, {"zero_stage": 3}])
def test_a_checkpoint_of_another_layout_is_refused(tmp_path: Path, change: dict[str, int]) -> None:
    """Another number of ranks or ZeRO stage is an error before anything is loaded."""
    found = _checkpoint(tmp_path, 10)
    origin = Origin(10, 1, found.folder, found.tag, 1)
    with pytest.raises(ResumeError, match="was saved with 1 rank "):
        preflight(LocalBallot(), origin, replace(Layout(1), **change))


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A folder that one rank cannot see is an error that names the rank, not a hang."""
    with pytest.raises(ResumeError, match=r"rank 0: .*not a committed checkpoint"):
        preflight(LocalBallot(), Origin(10, 1, tmp_path / "epoch-1", "global_step10", 1), Layout(1))


def test_no_new_step_means_no_new_files(make_daemon: Callable[[int], Any], tmp_path: Path) -> None:
    """A flush at the very step that was committed in this epoch is answered with its tag."""
    daemon = make_daemon(1)
    daemon.answers_saved = False
    daemon.start()
    with build(tmp_path, LocalBallot()) as guard:
        daemon.connected()
        daemon.flush("f", hold=True)
        daemon.all_said(At, "f")
        holder = threading.Thread(target=guard.step)
        holder.start()
        saved = daemon.all_said(Saved, "f")[0]
        partial = tmp_path / "epoch-1" / f"{saved.tag}.partial"
        (partial / "mp_rank_00_model_states.pt").write_bytes(b"model")
        commit(tmp_path, CommitOrder("tune", saved.tag, 1, 1, "f", "notice", Layout(1)), 1.0)
        daemon.flush("g", hold=True)
        again = daemon.all_said(Saved, "g")[0]
        assert (again.tag, again.step) == (saved.tag, 1)
        assert not partial.exists()
        daemon.send(StandDown("done", "train", "g", committed=True))
        holder.join(10.0)
        assert not holder.is_alive()
