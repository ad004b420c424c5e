"""A checkpoint from elsewhere into a store of this node: whatever brings the bytes, it lands in one way.

Only what is missing is brought, into a staging folder; a try that broke off is taken up where it stopped.
Everything has been held against the manifest before the rename that commits.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from outlast.daemon.checkpoint.destinations import DAMAGED, IO, NO_SPACE, TAKEN, Progress, Refused
from outlast.daemon.checkpoint.locks import try_lock
from outlast.daemon.checkpoint.place import (
    SHEETS_SUFFIX,
    STAGING,
    Step,
    below,
    discard,
    drop_strangers,
    fsync,
    fsync_folders,
    no_step,
    put_in_place,
    share,
    side_by_side,
    write_atomically,
)
from outlast.daemon.checkpoint.recovery import COMMIT_LOCK
from outlast.wire.manifest import MANIFEST_NAME, PART_SUFFIX, FileEntry, Manifest
from outlast.wire.store import Committed, check_file, committed_at, epoch_folder, scan

RESERVE_BYTES = 64 * 1024 * 1024
_LOCK_S = 30.0
_FULL = {errno.ENOSPC, errno.EDQUOT}

# Have these files in the folder, each under its name once its digest is right and its bytes are on the disk;
# tell how many bytes are there, and return how many came. Raises Unreachable and Refused.
Bring = Callable[[Path, list[FileEntry], Callable[[int], None]], Awaitable[int]]


class CannotLand(Refused):
    """This node cannot take the checkpoint: its disk is full or broken, or another fetch is at it."""


async def land(
    manifest: Manifest,
    store: Path,
    bring: Bring,
    progress: Progress | None = None,
    *,
    near: Sequence[Path] = (),
    step: Step = no_step,
) -> tuple[Committed, int]:
    """Have the checkpoint committed in ``store``; and the bytes that came for it.

    A file that another checkpoint has, here or in the stores ``near``, is not brought. Raises CannotLand, and
    what ``bring`` raises.
    """
    try:
        return await _land(manifest, store, bring, progress, near, step)
    except OSError as exc:
        code = NO_SPACE if exc.errno in _FULL else IO
        raise CannotLand(code, f"{store} cannot take {manifest.tag}: {exc.strerror}") from exc


async def _land(
    manifest: Manifest,
    store: Path,
    bring: Bring,
    progress: Progress | None,
    near: Sequence[Path],
    step: Step,
) -> tuple[Committed, int]:
    final = epoch_folder(store, manifest.epoch) / manifest.tag
    done = await asyncio.to_thread(_already, final, manifest)
    if done is not None:
        return done, 0
    staging = final.parent / STAGING / manifest.tag
    lock = staging.parent / f"{manifest.tag}.lock"
    await asyncio.to_thread(staging.mkdir, parents=True, exist_ok=True)
    async with _held(lock, manifest.tag):
        # The trainer saves in the epoch's folder next, and another user may take up what breaks off.
        await asyncio.to_thread(share, store, final.parent, staging.parent, lock)
        try:
            missing = await asyncio.to_thread(_missing, (store, *near), staging, manifest)
            await asyncio.to_thread(_check_space, staging, missing)
            came = await bring(staging, missing, _counter(manifest, missing, progress)) if missing else 0
            step("brought")
            await asyncio.to_thread(_commit, store, staging, final, manifest, step)
        finally:
            await asyncio.to_thread(_share_begun, store, staging)
    return Committed(final.parent, final.name, manifest), came


def _share_begun(store: Path, staging: Path) -> None:
    share(store, *below(staging), *below(staging.with_name(staging.name + SHEETS_SUFFIX)))


def from_folder(source: Path) -> Bring:
    """Brings files from a folder of this node, which another file system may hold."""

    async def bring(staging: Path, missing: list[FileEntry], count: Callable[[int], None]) -> int:
        for entry in missing:
            await asyncio.to_thread(_copy, source, staging, entry)
            count(entry.size)
        return sum(entry.size for entry in missing)

    return bring


def _copy(source: Path, staging: Path, entry: FileEntry) -> None:
    path = staging / entry.path
    part = path.with_name(path.name + PART_SUFFIX)
    path.parent.mkdir(parents=True, exist_ok=True)
    forget_notes(staging, entry)
    shutil.copyfile(source / entry.path, part, follow_symlinks=False)
    fsync(part)
    part.replace(path)
    if what := check_file(staging, entry):
        raise Refused(DAMAGED, f"{source} holds a damaged {entry.path}: {what}")


def _counter(
    manifest: Manifest, missing: list[FileEntry], progress: Progress | None
) -> Callable[[int], None]:
    total = manifest.total_bytes
    there = total - sum(entry.size for entry in missing)

    def count(more: int) -> None:
        nonlocal there
        there = min(total, there + more)
        if progress:
            progress(there, total)

    return count


def _already(final: Path, manifest: Manifest) -> Committed | None:
    """The same checkpoint, if it is here and whole: one with a damaged file is brought anew.

    Raises CannotLand where another job's has that name: it would be set aside, and its job would miss it.
    """
    found = committed_at(final, manifest.epoch)
    if found is not None and found.manifest.job != manifest.job:
        raise CannotLand(TAKEN, f"{final} is a checkpoint of job {found.manifest.job}: take another folder")
    if found is None or found.manifest != manifest:
        return None
    broken = any(side_by_side(lambda entry: check_file(final, entry), manifest.files))
    return None if broken else found


def _missing(stores: Sequence[Path], staging: Path, manifest: Manifest) -> list[FileEntry]:
    """What no earlier try has brought and no other checkpoint here holds. Digests are looked at."""
    _link_known(stores, staging, manifest.files)
    bad = side_by_side(lambda entry: check_file(staging, entry), manifest.files)
    missing = [entry for entry, what in zip(manifest.files, bad, strict=True) if what]
    for entry in missing:
        if os.path.lexists(staging / entry.path):
            forget_notes(staging, entry)
            # It may be a link to another checkpoint's file: never written to in place.
            (staging / entry.path).unlink()
    return missing


def forget_notes(staging: Path, entry: FileEntry) -> None:
    """Before bytes that chunks have brought go: notes of them would be believed of what comes next."""
    (staging.with_name(staging.name + SHEETS_SUFFIX) / entry.path).unlink(missing_ok=True)


def _link_known(stores: Sequence[Path], staging: Path, files: Sequence[FileEntry]) -> None:
    known = {
        (entry.size, entry.sha256, entry.chunk): item.path / entry.path
        for store in stores
        for item in scan(store)
        for entry in item.manifest.files
    }
    for entry in files:
        source = known.get((entry.size, entry.sha256, entry.chunk))
        if source is None or os.path.lexists(staging / entry.path):
            continue
        if check_file(source.parent, replace(entry, path=source.name), digests=False):
            continue
        (staging / entry.path).parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # another file system, or one without links: the file is brought
            (staging / entry.path).hardlink_to(source)


def _check_space(staging: Path, missing: list[FileEntry]) -> None:
    need = sum(max(0, entry.size - _begun(staging, entry)) for entry in missing)
    info = os.statvfs(staging)
    free = info.f_bavail * info.f_frsize
    if need and need + RESERVE_BYTES > free:
        raise CannotLand(NO_SPACE, f"{staging.parent} has {free} bytes free, {need} are needed: make room")


def _begun(staging: Path, entry: FileEntry) -> int:
    """What an earlier try has on the disk already."""
    try:
        return (staging / (entry.path + PART_SUFFIX)).stat().st_blocks * 512
    except OSError:
        return 0


def _commit(store: Path, staging: Path, final: Path, manifest: Manifest, step: Step) -> None:
    drop_strangers(staging, {entry.path for entry in manifest.files})
    fsync_folders(staging)
    with try_lock(store / COMMIT_LOCK, wait_s=_LOCK_S) as held:
        if not held:
            raise CannotLand(IO, f"another commit into {store} is still under way")
        step("checked")
        write_atomically(staging / MANIFEST_NAME, manifest.to_bytes(), step)
        share(store, *below(staging), store / COMMIT_LOCK)
        put_in_place(staging, final, step)
    sheets = staging.with_name(staging.name + SHEETS_SUFFIX)
    if sheets.is_dir():
        discard(sheets)


@asynccontextmanager
async def _held(lock: Path, tag: str) -> AsyncIterator[None]:
    """While this fetch lives, nobody sweeps the folder or fetches into it as well."""
    holder = try_lock(lock)
    if not await asyncio.to_thread(holder.__enter__):
        raise CannotLand(IO, f"{tag} is arriving in {lock.parent} already: wait for that to end")
    try:
        yield
    finally:
        try:
            # While it is held: after that it may be another's, and a third would be given a new one.
            await asyncio.to_thread(lock.unlink, missing_ok=True)
        finally:
            holder.__exit__(None, None, None)
