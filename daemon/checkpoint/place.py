"""The few ways in which a store changes, each durable before the next one starts.

Every function can be interrupted by kill -9 after any action and repeated afterwards.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from outlast.daemon.checkpoint.locks import hold_file
from outlast.wire.digests import digest
from outlast.wire.manifest import PART_SUFFIX, FileEntry
from outlast.wire.store import Committed, proof_of, proven, walk

LATEST = "latest"
DELETED_SUFFIX = ".deleted"
STAGING = ".staging"
# Beside a staging folder: the digests of what has arrived in it.
SHEETS_SUFFIX = ".chunks"
# A writer of a small file that takes longer has been stopped: whoever waits for it is told.
_WRITER_S = 10.0

A = TypeVar("A")
B = TypeVar("B")
Step = Callable[[str], None]


def no_step(_name: str) -> None:
    """The hook between two actions that does nothing: tests put a crash there."""


def fsync(path: Path) -> None:
    """Make a file's bytes, or a folder's names, survive a power cut. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_folders(path: Path) -> None:
    """Make the names in ``path`` and in every folder below it survive a power cut."""
    for folder, _, _ in os.walk(path, topdown=False):
        fsync(Path(folder))


def write_atomically(path: Path, data: bytes, step: Step = no_step, *, mode: int | None = None) -> None:
    """Replace ``path`` by ``data``: a reader sees the old bytes or the new ones, also after a crash.

    Several may write at once: one after another, and the last one's bytes stay. ``mode``: who may read it,
    whatever the umask.
    """
    part = path.with_name(path.name + PART_SUFFIX)
    with hold_file(part, 0o644, _WRITER_S) as fd:
        try:
            os.ftruncate(fd, 0)
            with os.fdopen(fd, "wb", closefd=False) as file:
                file.write(data)
            if mode is not None:
                os.fchmod(fd, mode)
            os.fsync(fd)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        step(f"{path.name} written")
        part.replace(path)
    fsync(path.parent)


def entries(folder: Path, sizes: dict[str, int]) -> tuple[FileEntry, ...]:
    """Fsync and digest the named files of ``folder``, several at a time. Raises OSError."""

    def entry(name: str) -> FileEntry:
        fsync(folder / name)
        return FileEntry(name, sizes[name], digest(folder / name))

    return tuple(side_by_side(entry, sorted(sizes)))


def side_by_side(work: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Apply ``work`` to all items on a few threads (digests and file calls release the interpreter)."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max(2, min(8, os.cpu_count() or 2)), "outlast-digest") as pool:
        return list(pool.map(work, items))


def put_in_place(source: Path, final: Path, step: Step = no_step, *, latest: bool = True) -> None:
    """Give a complete folder its final name. What has that name already is set aside, never deleted.

    With ``latest`` DeepSpeed's pointer goes there too; a part alone is nothing to point at.
    """
    if os.path.lexists(final):
        set_aside(final)
        step("set aside")
    source.rename(final)
    step("renamed")
    fsync(final.parent)
    if source.parent != final.parent:
        fsync(source.parent)
    step("folder synced")
    if latest:
        point_latest(final.parent, final.name)
        step("latest written")


def set_aside(path: Path) -> Path:
    """Rename ``path`` to the first free ``<name>.damaged-N`` and return that."""
    number = 1
    while os.path.lexists(target := path.with_name(f"{path.name}.damaged-{number}")):
        number += 1
    path.rename(target)
    fsync(path.parent)
    return target


def point_latest(folder: Path, tag: str) -> bool:
    """Write DeepSpeed's ``latest`` in an epoch folder, so that it loads without us. True if it changed."""
    path = folder / LATEST
    try:
        if not path.is_symlink() and path.read_bytes() == tag.encode():
            return False
    except OSError:
        pass
    write_atomically(path, tag.encode())
    return True


def share(store: Path, *paths: Path) -> None:
    """Open what this process has made in ``store`` to the group, if the store is.

    Trainer and daemon are two users there: one saves, commits and deletes where the other has begun.
    """
    if store.stat().st_mode & stat.S_IWGRP:
        for path in paths:
            _open_to_group(path)


def below(path: Path) -> Iterator[Path]:
    """A folder and all that is in it; nothing where there is none."""
    for folder, _, files in os.walk(path):
        yield from (Path(folder), *(Path(folder, name) for name in files))


def _open_to_group(path: Path) -> None:
    with suppress(OSError):  # gone, another user's, or a link that somebody of the group has put there
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            info = os.fstat(fd)
            bits = 0o070 if stat.S_ISDIR(info.st_mode) else 0o060 if info.st_nlink == 1 else 0o040
            if info.st_mode & bits != bits:
                os.fchmod(fd, stat.S_IMODE(info.st_mode) | bits)
        finally:
            os.close(fd)


def prove(item: Committed) -> None:
    """Record that the checkpoint of this part is whole at the receiver, and point DeepSpeed there."""
    if not proven(item):
        write_atomically(proof_of(item), item.manifest.flush_id.encode())
    point_latest(item.folder, item.tag)


def discard(path: Path) -> None:
    """Delete a folder or file that nobody counts on. A folder loses its name first, so none is seen half."""
    if path.is_dir() and not path.is_symlink():
        target = path
        if not path.name.endswith(DELETED_SUFFIX):
            target = _free(path)
            path.rename(target)
        shutil.rmtree(target)
    else:
        path.unlink(missing_ok=True)


def drop_strangers(folder: Path, names: set[str]) -> None:
    """Delete every file and link below ``folder`` that is not in ``names``: leftovers of broken transfers."""
    for name, _ in list(walk(folder)):
        if name not in names:
            (folder / name).unlink()


def _free(path: Path) -> Path:
    number = 1
    while os.path.lexists(target := path.with_name(f"{path.name}.{number}{DELETED_SUFFIX}")):
        number += 1
    return target
