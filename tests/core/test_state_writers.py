"""Several parts of the daemon may write a job's state at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from outlast.daemon.core import state
from outlast.daemon.core.facts import Role


def test_two_errands_may_write_the_state_at_once(tmp_path: Path) -> None:
    """A handover and the fence that follows from it end at one time: neither fails, one of them stands."""
    file = tmp_path / "gpt.json"
    states = [state.JobState(2, Role.FENCED, highest=epoch, because="x" * 4000) for epoch in range(3, 11)]
    with ThreadPoolExecutor(len(states)) as pool:
        for _ in range(5):
            for done in [pool.submit(state.save, file, one) for one in states]:
                done.result()
            assert state.load(file) in states
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
