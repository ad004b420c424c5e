"""Saving: the folder a flush goes into, made once by rank 0, and what each rank does with it."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

from outlast.hooks.ballot import Ballot, wait_for
from outlast.wire.manifest import PARTIAL_SUFFIX
from outlast.wire.store import committed_at, epoch_folder

# Clearing what a crash left and making a folder; minutes only where the file system itself stands still.
FOLDER_S = 300.0

Write = Callable[[Path, int, int], None]


class FolderSaver:
    """Saves to ``<checkpoints>/epoch-<epoch>/global_step<step>.partial`` by ``write(folder, step, epoch)``.

    ``write`` is called on every rank or on none; the folder is there, empty, when it is. ``here`` ranks share
    a node, and maybe no disk with others: the first of them makes the folder for all.
    """

    def __init__(
        self,
        ballot: Ballot,
        checkpoints: Path,
        write: Write,
        clock: Callable[[], float] = time.monotonic,
        *,
        here: int | None = None,
    ) -> None:
        self._ballot = ballot
        self._checkpoints = checkpoints
        self._write = write
        self._clock = clock
        self._here = here or ballot.world
        self.last: tuple[int, int] | None = None  # (epoch, step) that this process saved or resumed from
        self._last_key = ""  # under which it was saved

    def save(self, key: str, step: int, epoch: int) -> str:
        """Save, or do nothing where no step was made since the last committed one. Returns the tag."""
        tag = f"global_step{step}"
        folder = epoch_folder(self._checkpoints, epoch) / f"{tag}{PARTIAL_SUFFIX}"
        word = self._prepared(f"folder/{key}", folder, tag, epoch, step)
        if word == "committed":
            return tag
        if word != "ready":
            raise OSError(f"{folder} could not be made: {word}")
        self._written(key, folder, step, epoch)
        self.last, self._last_key = (epoch, step), key
        return tag

    def _written(self, key: str, folder: Path, step: int, epoch: int) -> None:
        """Where this rank's files are torn, the others know before the next save: theirs are no use."""
        try:
            self._write(folder, step, epoch)
            _share_with_group(folder)
        except Exception:  # raised again: it only leaves word for the others first
            self._ballot.post(f"torn/{key}", str(self._ballot.rank))
            raise

    def _prepared(self, key: str, folder: Path, tag: str, epoch: int, step: int) -> str:
        """What became of the folder on all nodes: nobody writes while one of them still clears its own."""
        ballot, until = self._ballot, self._clock() + FOLDER_S
        if ballot.rank % self._here == 0:
            ballot.post(_key(key, ballot.rank), self._prepare(folder, tag, epoch, step))
        leaders = range(0, ballot.world, self._here)
        said = {leader: wait_for(ballot, _key(key, leader), until, self._clock) for leader in leaders}
        words = {word or f"rank {leader} did not answer" for leader, word in said.items()}
        return words.pop() if len(words) == 1 else "; ".join(sorted(words - {"ready", "committed"}) or words)

    def _prepare(self, folder: Path, tag: str, epoch: int, step: int) -> str:
        try:
            if self.last == (epoch, step) and not self._torn() and self._kept(folder, tag, epoch):
                return "committed"
            if folder.is_symlink() or folder.is_file():
                folder.unlink()
            elif folder.exists():
                shutil.rmtree(folder)
            for path in (folder.parent, folder):
                path.mkdir(parents=True, exist_ok=True)
                _open_to_group(path)
        except OSError as exc:
            return str(exc)
        return "ready"

    def _torn(self) -> bool:
        return self._ballot.read(f"torn/{self._last_key}") is not None

    def _kept(self, folder: Path, tag: str, epoch: int) -> bool:
        """The step was saved already; on several nodes the next save may come before that one's commit."""
        several = self._here < self._ballot.world
        final = folder.with_name(tag)
        found = committed_at(final, epoch) is not None or (several and folder.is_dir())
        return found or committed_at(final, epoch) is not None


def _key(key: str, leader: int) -> str:
    return f"{key}/{leader}" if leader else key


def _share_with_group(folder: Path) -> None:
    """The daemon may be another user of the same group: it reads the files and adds the manifest."""
    for parent, names, files in os.walk(folder):
        for name in [*names, *files]:
            _open_to_group(Path(parent, name))


def _open_to_group(path: Path) -> None:
    try:
        mode = stat.S_IMODE(path.lstat().st_mode)
        group = 0o070 if path.is_dir() else 0o060
        if mode & group != group and not path.is_symlink():
            path.chmod(mode | group)  # keeps the set-group-id bit that hands the group down
    except OSError:
        return  # another rank's file: that rank opens it
