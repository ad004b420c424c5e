"""A checkpoint from a store into a local one: what is missing, digested as it comes, committed at the end."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from outlast.daemon.checkpoint.destinations import DAMAGED, IO, NO_SPACE, Progress, Refused
from outlast.daemon.checkpoint.locks import try_lock
from outlast.daemon.checkpoint.place import (
    STAGING,
    drop_strangers,
    fsync_folders,
    put_in_place,
    side_by_side,
    write_atomically,
)
from outlast.daemon.checkpoint.recovery import COMMIT_LOCK
from outlast.daemon.store.durable import RESERVE_BYTES
from outlast.daemon.store.listing import Tag
from outlast.daemon.store.receiving import receive
from outlast.daemon.store.target import Target
from outlast.daemon.store.together import each
from outlast.wire.manifest import MANIFEST_NAME, PART_SUFFIX, FileEntry, Manifest
from outlast.wire.store import Committed, check_file, committed_at, epoch_folder, scan

_FILES_AT_ONCE = 3
_TRIES = 2
_LOCK_S = 30.0
_FULL = {errno.ENOSPC, errno.EDQUOT}


async def fetch(
    target: Target, tag: Tag, store: Path, progress: Progress | None = None
) -> tuple[Committed, int]:
    """Have ``tag``, which is whole there, committed in ``store``; and the bytes that came for it.

    Files that are here already, in an earlier try or in another checkpoint, are not asked for. Raises
    Unreachable and Refused (``damaged``: what the store holds is not what its manifest says).
    """
    manifest = tag.manifest
    if manifest is None:
        raise Refused(DAMAGED, f"{tag.name} of epoch {tag.epoch} is not committed at {target.address}")
    try:
        return await _fetch(target, manifest, store, progress)
    except OSError as exc:
        code = NO_SPACE if exc.errno in _FULL else IO
        raise Refused(code, f"{store} cannot take {tag.name}: {exc.strerror}") from exc


async def _fetch(
    target: Target, manifest: Manifest, store: Path, progress: Progress | None
) -> tuple[Committed, int]:
    final = epoch_folder(store, manifest.epoch) / manifest.tag
    done = await asyncio.to_thread(_already, final, manifest)
    if done is not None:
        return done, 0
    staging = final.parent / STAGING / manifest.tag
    await asyncio.to_thread(staging.mkdir, parents=True, exist_ok=True)
    async with _held(staging.parent / f"{manifest.tag}.lock", manifest.tag):
        missing = await asyncio.to_thread(_missing, store, staging, manifest)
        await asyncio.to_thread(_check_space, staging, missing)
        came = await _bring(target, manifest, staging, missing, progress)
        await asyncio.to_thread(_commit, store, staging, final, manifest)
    return Committed(final.parent, final.name, manifest), came


async def _bring(
    target: Target, manifest: Manifest, staging: Path, missing: list[FileEntry], progress: Progress | None
) -> int:
    total = manifest.total_bytes
    came = 0

    async def bring(entry: FileEntry) -> None:
        nonlocal came
        key = target.keys.file(manifest.epoch, manifest.tag, entry.path)
        await _one(target, key, staging, entry)
        came += entry.size
        if progress:
            progress(total - sum(e.size for e in missing) + came, total)

    await each(sorted(missing, key=lambda entry: -entry.size), _FILES_AT_ONCE, bring)
    return came


async def _one(target: Target, key: str, staging: Path, entry: FileEntry) -> None:
    """One file, under another name until its digest is right."""
    path = staging / entry.path
    part = path.with_name(path.name + PART_SUFFIX)
    what = ""
    for _ in range(_TRIES):
        descriptor = await asyncio.to_thread(_open, part)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            what = await receive(target, key, entry, file)
            if not what:
                await asyncio.to_thread(os.fsync, descriptor)
        if not what:
            await asyncio.to_thread(part.replace, path)
            return
        await asyncio.to_thread(part.unlink)
    raise Refused(DAMAGED, f"{target.address} holds a damaged {entry.path}: {what}")


def _open(part: Path) -> int:
    part.parent.mkdir(parents=True, exist_ok=True)
    return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _already(final: Path, manifest: Manifest) -> Committed | None:
    found = committed_at(final, manifest.epoch)
    if found is None or found.manifest != manifest:
        return None
    broken = any(check_file(final, entry, digests=False) for entry in manifest.files)
    return None if broken else found


def _missing(store: Path, staging: Path, manifest: Manifest) -> list[FileEntry]:
    """What no earlier try has brought and no other checkpoint here holds. Digests are looked at."""
    _link_known(store, staging, manifest.files)

    def lacks(entry: FileEntry) -> bool:
        return bool(check_file(staging, entry))

    files = manifest.files
    return [entry for entry, gone in zip(files, side_by_side(lacks, files), strict=True) if gone]


def _link_known(store: Path, staging: Path, files: Iterable[FileEntry]) -> None:
    known = {
        (entry.size, entry.sha256, entry.chunk): item.path / entry.path
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
        with suppress(OSError):  # a file system without links: the file is fetched
            (staging / entry.path).hardlink_to(source)


def _check_space(staging: Path, missing: list[FileEntry]) -> None:
    need = sum(entry.size for entry in missing)
    info = os.statvfs(staging)
    free = info.f_bavail * info.f_frsize
    if need and need + RESERVE_BYTES > free:
        raise Refused(NO_SPACE, f"{staging.parent} has {free} bytes free, {need} are needed: make room")


def _commit(store: Path, staging: Path, final: Path, manifest: Manifest) -> None:
    drop_strangers(staging, {entry.path for entry in manifest.files})
    fsync_folders(staging)
    with try_lock(store / COMMIT_LOCK, wait_s=_LOCK_S) as held:
        if not held:
            raise Refused(IO, f"another commit into {store} is still under way")
        write_atomically(staging / MANIFEST_NAME, manifest.to_bytes())
        put_in_place(staging, final)


@asynccontextmanager
async def _held(lock: Path, tag: str) -> AsyncIterator[None]:
    """While this fetch lives, nobody sweeps the folder or fetches into it as well."""
    holder = try_lock(lock)
    if not await asyncio.to_thread(holder.__enter__):
        raise Refused(IO, f"{tag} is arriving in {lock.parent} already")
    try:
        yield
    finally:
        holder.__exit__(None, None, None)
        await asyncio.to_thread(lock.unlink, missing_ok=True)
