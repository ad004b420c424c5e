"""What must outlive the daemon for each job: its epoch and role. One small fsynced JSON file a job."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from outlast.daemon.core.facts import Role

# Two errands of one job may end at once, as a handover and the fence that follows from it.
_writing = threading.Lock()


# Why a node has the state it has where no earlier life has left one.
FIRST_START = "first start"


@dataclass(frozen=True, slots=True)
class JobState:
    """``epoch``: the last this node held itself, 0 for none. ``highest``: the highest it knows to exist.

    ``started_epoch``: the epoch a trainer was last started for by this node; 0 for none.
    """

    epoch: int
    role: Role
    started_epoch: int = 0
    because: str = ""
    highest: int = 0


def load(path: Path) -> JobState | None:
    """The state a previous life left. None if there is none; a damaged file is set aside."""
    try:
        body = json.loads(path.read_bytes())
        return JobState(
            epoch=int(body["epoch"]),
            role=Role(body["role"]),
            started_epoch=int(body["started_epoch"]),
            because=str(body["because"]),
            highest=int(body["highest"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        path.replace(path.with_suffix(".damaged"))
        return None


def save(path: Path, state: JobState) -> None:
    """Durable when it returns: the decision it records may be acted on."""
    write_durably(path, json.dumps(asdict(state)).encode())


def lock_state(folder: Path) -> BinaryIO:
    """Hold the state folder for this process; closing the file gives it back, as does dying.

    Raises OSError with what to do where another daemon holds it: two would recover the same stores.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / "daemon.lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise OSError(f"another daemon uses {folder}: stop it, or set another node.state") from None
    return file


def write_durably(path: Path, data: bytes) -> None:
    """Replace a small file atomically; file and folder are on disk when this returns."""
    with _writing:
        _write_durably(path, data)


def _write_durably(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.new")
    with scratch.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    scratch.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
