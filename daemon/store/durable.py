"""What a folder needs that an object store does by itself: that bytes and names survive a power cut."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from outlast.daemon.checkpoint.destinations import BAD_REQUEST, NO_SPACE, Refused
from outlast.daemon.checkpoint.place import fsync, fsync_folders
from outlast.daemon.store.target import Target, no_folder
from outlast.wire.manifest import Manifest
from outlast.wire.store import epoch_folder, epochs

RESERVE_BYTES = 64 * 1024 * 1024
# How the client calls a file that is still being written.
_UNFINISHED = re.compile(r".*#[0-9]+")


def check_folder(target: Target) -> None:
    """A folder that is gone is a mount that is gone. Raises Refused; object stores tell it themselves."""
    root = target.address.folder
    if root is not None and not root.is_dir():
        raise Refused(BAD_REQUEST, no_folder(root))


def check_space(target: Target, need: int) -> None:
    """Whether a folder has room for ``need`` bytes more and some to spare. Raises Refused."""
    root = target.address.folder
    if root is None:
        return
    info = os.statvfs(root)
    free = info.f_bavail * info.f_frsize
    if need and need + RESERVE_BYTES > free:
        raise Refused(NO_SPACE, f"{root} has {free} bytes free, {need} are needed: make room there")


def fsync_tag(target: Target, manifest: Manifest) -> None:
    """Bytes and names of a checkpoint in a folder are on its disk. Raises Refused."""
    if target.folder is None:
        return
    place = epoch_folder(target.folder, manifest.epoch) / manifest.tag
    try:
        for entry in manifest.files:
            fsync(place / entry.path)
        fsync_folders(place)
        for folder in (place.parent, target.folder, target.folder.parent):
            fsync(folder)
    except OSError as exc:
        raise Refused(BAD_REQUEST, f"{place} cannot be made durable: {exc.strerror}") from exc


def sweep_unfinished(target: Target, older_s: float) -> int:
    """Delete what a process that died was writing into a folder; no listing shows it. How many files."""
    if target.folder is None:
        return 0
    gone = 0
    for _, epoch in epochs(target.folder):
        for path in epoch.rglob("*#*"):
            gone += _drop_if_old(path, older_s)
    return gone


def _drop_if_old(path: Path, older_s: float) -> int:
    try:
        if not _UNFINISHED.fullmatch(path.name) or time.time() - path.lstat().st_mtime < older_s:
            return 0
        path.unlink()
    except OSError:
        return 0
    return 1
