"""The job's state file: durable, never half-written, and survives what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.core import state
from outlast.daemon.core.facts import Role
from outlast.daemon.core.state import JobState

PRIMARY = JobState(3, Role.PRIMARY, started_epoch=3, because="handed over by us-east-1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a job's state lies; its folder is not made yet."""
    return tmp_path / "jobs" / "tune.json"


@given(
    st.builds(
        JobState, st.integers(0, 10**9), st.sampled_from(Role), st.integers(0, 10**9), st.text(max_size=80)
    )
)
def test_what_is_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, kept: JobState) -> None:
    """Every state comes back equal."""
    path = tmp_path_factory.getbasetemp() / "round-trip.json"
    state.save(path, kept)
    assert state.load(path) == kept


def test_no_file_is_no_state(file: Path) -> None:
    """A first start finds nothing, and makes nothing."""
    assert state.load(file) is None
    assert not file.parent.exists()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b'{"epoch": 3, "role": "prim',
        b"\xff\x00\x12",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"epoch": 3, "role": "captain", "started_epoch": 3, "because": ""}',
        b'{"epoch": 3, "role": "primary"}',
        b'{"epoch": null, "role": "primary", "started_epoch": 3, "because": ""}',
        b'{"epoch": Infinity, "role": "primary", "started_epoch": 3, "because": ""}',
    ],
    ids=lambda data: repr(data[:40]),
)
def test_a_damaged_file_is_set_aside(file: Path, damage: bytes) -> None:
    """The daemon starts without it, and the damaged bytes are kept for whoever wants to know."""
    file.parent.mkdir()
    file.write_bytes(damage)
    assert state.load(file) is None
    assert not file.exists()
    assert file.with_suffix(".damaged").read_bytes() == damage
    state.save(file, PRIMARY)
    assert state.load(file) == PRIMARY


def test_a_kill_before_the_rename_leaves_the_old_state(file: Path) -> None:
    """What a killed write leaves beside the file is never read, and the next save goes over it."""
    state.save(file, PRIMARY)
    (file.parent / ".tune.json.new").write_bytes(b'{"epoch": 4, "ro')
    assert state.load(file) == PRIMARY
    fenced = JobState(4, Role.FENCED, 3, "handed over")
    state.save(file, fenced)
    assert state.load(file) == fenced
    assert [p.name for p in file.parent.iterdir()] == ["tune.json"]


def test_the_bytes_are_on_disk_before_the_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync of the file, then the rename, then fsync of the folder: in this order."""
    seen: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(fd: int) -> None:
        seen.append("folder" if Path(f"/proc/self/fd/{fd}").resolve().is_dir() else "file")
        fsync(fd)

    def note_replace(self: Path, target: Path) -> Path:
        seen.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    state.save(file, PRIMARY)
    assert seen == ["file", "rename", "folder"]


WRITER = """
import sys
from pathlib import Path
from outlast.daemon.core import state
from outlast.daemon.core.facts import Role
epoch = 1
while True:
    state.save(Path(sys.argv[1]), state.JobState(epoch, Role.PRIMARY, epoch, "x" * 2000))
    print(epoch, flush=True)
    epoch += 1
"""


@pytest.mark.parametrize("saves", [1, 3, 10, 25])
def test_kill_9_leaves_a_whole_state(file: Path, saves: int) -> None:
    """A daemon killed while it saves leaves the last state it reported, or the next; never a half."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(saves):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
    reported = int(rest[-1]) if rest else saves
    left = state.load(file)
    assert left is not None
    assert left.epoch in {reported, reported + 1}


def test_one_daemon_a_state_folder(tmp_path: Path) -> None:
    """A second daemon on the same folder is told so before it touches anything; a dead one holds nothing."""
    with state.lock_state(tmp_path), pytest.raises(OSError, match=r"another daemon uses .*node\.state"):
        state.lock_state(tmp_path)
    state.lock_state(tmp_path).close()
