"""A checkpoint from a store into a local one: what is missing, digested as it comes, committed at the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from outlast.daemon.checkpoint.arriving import forget_notes, land
from outlast.daemon.checkpoint.destinations import DAMAGED, Progress, Refused
from outlast.daemon.store.receiving import receive
from outlast.daemon.store.target import Target
from outlast.daemon.store.together import each
from outlast.wire.manifest import PART_SUFFIX, FileEntry, Manifest
from outlast.wire.store import Committed

_FILES_AT_ONCE = 3
_TRIES = 2


async def fetch(
    target: Target,
    manifest: Manifest,
    store: Path,
    progress: Progress | None = None,
    near: Sequence[Path] = (),
) -> tuple[Committed, int]:
    """Have a checkpoint that is whole there committed in ``store``; and the bytes that came for it.

    Raises as ``land`` does, and Unreachable and Refused (``damaged``: what the store holds is not what its
    manifest says).
    """

    async def bring(staging: Path, missing: list[FileEntry], count: Callable[[int], None]) -> int:
        async def one(entry: FileEntry) -> None:
            key = target.keys.file(manifest.epoch, manifest.tag, entry.path)
            await _one(target, key, staging, entry)
            count(entry.size)

        await each(sorted(missing, key=lambda entry: -entry.size), _FILES_AT_ONCE, one)
        return sum(entry.size for entry in missing)

    return await land(manifest, store, bring, progress, near=near)


async def _one(target: Target, key: str, staging: Path, entry: FileEntry) -> None:
    """One file, under another name until its digest is right."""
    path = staging / entry.path
    part = path.with_name(path.name + PART_SUFFIX)
    what = ""
    for _ in range(_TRIES):
        descriptor = await asyncio.to_thread(_open, staging, entry)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            what = await receive(target, key, entry, file)
            if not what:
                await asyncio.to_thread(os.fsync, descriptor)
        if not what:
            await asyncio.to_thread(part.replace, path)
            return
        await asyncio.to_thread(part.unlink)
    raise Refused(DAMAGED, f"{target.address} holds a damaged {entry.path}: {what}")


def _open(staging: Path, entry: FileEntry) -> int:
    """The empty part. Chunks that a peer has brought of it are gone with that: their notes go first."""
    part = staging / (entry.path + PART_SUFFIX)
    part.parent.mkdir(parents=True, exist_ok=True)
    forget_notes(staging, entry)
    return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
