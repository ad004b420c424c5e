"""A rank's own state: random numbers and the data's position, saved so that reading it runs no code."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outlast.hooks import state
from outlast.hooks.ballot import LocalBallot
from outlast.hooks.saving import FolderSaver
from outlast.hooks.state import StateError


class Sampler:
    """A data position."""

    def __init__(self, position: int) -> None:
        self.position: Any = position

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, loaded: dict[str, Any]) -> None:
        self.position = loaded["position"]


def _drawn() -> tuple[list[float], list[float], list[float]]:
    """The next numbers of every generator, gaussian ones too: those keep a second number back."""
    python = [random.gauss(0, 1) for _ in range(3)] + [random.random()]
    return python, np.random.standard_normal(3).tolist(), torch.randn(3).tolist()


def test_random_numbers_and_data_go_on_where_they_were(tmp_path: Path) -> None:
    """After restore, Python's, NumPy's and torch's generators give what they would have given."""
    path = tmp_path / state.rank_file(3)
    _drawn()
    state.write(path, state.capture(7, 2, {"sampler": Sampler(41)}))
    expected = _drawn()
    _drawn()
    sampler = Sampler(0)
    state.restore(path, 7, {"sampler": sampler})
    assert _drawn() == expected
    assert sampler.position == 41
    assert path.name == "outlast_rank_00003.pt"


def test_a_state_of_another_step_is_refused(tmp_path: Path) -> None:
    """A rank's file that slipped in from another checkpoint is an error, not a silent jump."""
    state.write(tmp_path / "own.pt", state.capture(7, 2, {}))
    with pytest.raises(StateError, match="step 7, the checkpoint of step 8"):
        state.restore(tmp_path / "own.pt", 8, {})


def test_other_names_than_saved_are_refused(tmp_path: Path) -> None:
    """A sampler that was not saved cannot be restored, and one that was must not be forgotten."""
    state.write(tmp_path / "own.pt", state.capture(7, 2, {"sampler": Sampler(1)}))
    with pytest.raises(StateError, match="sampler"):
        state.restore(tmp_path / "own.pt", 7, {})


def test_what_could_not_be_read_back_is_refused_before_training() -> None:
    """An object in a state_dict is found when protect() is called, not when the node is about to go."""
    sampler = Sampler(0)
    sampler.position = Path("/data")
    with pytest.raises(StateError, match=r"'sampler'.*numbers, strings"):
        state.check_loadable({"sampler": sampler})
    state.check_loadable({"sampler": Sampler(3)})


class _Harm:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return exec, ("open('harm', 'w').close()",)


def test_a_hostile_file_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint from elsewhere that carries a call is refused, and the call is not made."""
    monkeypatch.chdir(tmp_path)
    torch.save({"format": 1, "step": 7, "stateful": {}, "random": _Harm()}, tmp_path / "own.pt")
    with pytest.raises(StateError, match="cannot be read"):
        state.restore(tmp_path / "own.pt", 7, {})
    assert not (tmp_path / "harm").exists()


def test_the_folder_is_open_to_the_group_and_fresh(tmp_path: Path) -> None:
    """What a crash left is cleared; the daemon's group may rename and add; set-group-id is handed down."""
    stale = tmp_path / "epoch-4" / "global_step9.partial"
    stale.mkdir(parents=True)
    (stale / "torn.pt").write_bytes(b"torn")
    tmp_path.chmod(0o2755)
    (tmp_path / "epoch-4").chmod(0o2755)
    old = os.umask(0o077)
    try:
        saver = FolderSaver(LocalBallot(), tmp_path, lambda folder, *_: _touch(folder / "own.pt"))
        assert saver.save("f/9", 9, 4) == "global_step9"
    finally:
        os.umask(old)
    assert sorted(path.name for path in stale.iterdir()) == ["own.pt"]
    for folder in (stale, stale.parent):
        mode = folder.stat().st_mode
        assert mode & 0o070 == 0o070
        assert mode & stat.S_ISGID
    assert (stale / "own.pt").stat().st_mode & 0o060 == 0o060


def _touch(path: Path) -> None:
    path.write_bytes(b"own")
