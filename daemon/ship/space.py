"""Room at the receiver: bytes and files that still fit, asked before a transfer and told when they end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from outlast.daemon.ship.protocol import NO_SPACE
from outlast.daemon.ship.segment import RESERVE_BYTES
from outlast.daemon.ship.words import RefusedError

# What a full disk answers, be it by its own size, by a quota or by a limit of the process.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Names that a transfer makes beside its files: staging folder, notes, offer, lock, manifest and their parts.
SPARE_FILES = 8


@dataclass(frozen=True)
class Need:
    """What has yet to be written of the checkpoint ``tag``."""

    tag: str
    bytes: int
    files: int


def free_bytes(path: Path) -> int:
    """Bytes an unprivileged process may still write on the file system of ``path``."""
    info = os.statvfs(path)
    return info.f_bavail * info.f_frsize


def free_files(path: Path) -> int | None:
    """Files an unprivileged process may still make there; None where the file system counts none."""
    info = os.statvfs(path)
    return info.f_favail if info.f_files else None


def files_for(paths: Iterable[str]) -> int:
    """Names that have to be made to receive these files: each with its notes, and the folders of both."""
    wanted = [PurePosixPath(path) for path in paths]
    folders = {folder for path in wanted for folder in path.parents}
    return 2 * (len(wanted) + len(folders)) + SPARE_FILES if wanted else 0


def check(need: Need, free: int, files: int | None) -> None:
    """Raises RefusedError, with figures, where ``need`` does not fit into what is free."""
    if need.bytes and need.bytes + RESERVE_BYTES > free:
        wanted = f"{need.bytes} bytes more and {RESERVE_BYTES // 2**20} MiB to spare"
        raise RefusedError(NO_SPACE, f"no space: {need.tag} needs {wanted}, {free} are free there")
    if files is not None and need.files > files:
        wanted = f"{need.files} files more"
        raise RefusedError(NO_SPACE, f"no space: {need.tag} needs {wanted}, {files} (inodes) are free there")


def ended(exc: OSError, free: int, files: int | None) -> RefusedError:
    """What to answer where the disk was full in the middle of writing."""
    counted = "" if files is None else f" and {files} files"
    what = f"{exc.strerror}: {exc.filename}" if exc.filename else f"{exc.strerror}"
    left = f"{free} bytes{counted} are free there"
    return RefusedError(NO_SPACE, f"no space: {what}; {left}, or a quota of its user is used up")
