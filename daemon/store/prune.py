"""Retention in a store: the newest whole ones stay, leftovers of dead uploads go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from outlast.daemon.store.claim import STALE_S
from outlast.daemon.store.durable import sweep_unfinished
from outlast.daemon.store.errors import sought
from outlast.daemon.store.listing import Tag, everything
from outlast.daemon.store.target import Target
from outlast.daemon.store.together import each
from outlast.wire.manifest import MANIFEST_NAME

_AT_ONCE = 8
LEAST = 2


async def prune(target: Target, keep: int, busy: str | None, now: float) -> list[str]:
    """Delete what is no longer needed; one sentence for each. ``now``: UTC epoch seconds.

    Kept are the newest ``keep`` whole ones (never fewer than two), everything newer than those, everything
    damaged, and the tag ``busy``, which is being sent. A dead upload goes once nothing of it was written for
    an hour. Raises Unreachable and Refused.
    """
    tags = await everything(target)
    said = []
    for tag in spare(tags, keep):
        await _delete(target, tag)
        said.append(f"Deleted epoch-{tag.epoch}/{tag.name}: {max(keep, LEAST)} newer ones are committed.")
    for tag in dead(tags, busy, now):
        await _delete(target, tag)
        said.append(f"Deleted epoch-{tag.epoch}/{tag.name}: it was never sent whole.")
    if await asyncio.to_thread(sweep_unfinished, target, STALE_S):
        said.append("Deleted files that were never written to their end.")
    return said


def spare(tags: Sequence[Tag], keep: int) -> list[Tag]:
    """The whole checkpoints that are not needed any more, oldest first."""
    whole = sorted((tag for tag in tags if tag.whole), key=lambda tag: tag.order)
    return whole[: -max(keep, LEAST)]


def dead(tags: Sequence[Tag], busy: str | None, now: float) -> list[Tag]:
    """What an upload left that will not go on: without a manifest, and long untouched."""
    return [
        tag
        for tag in tags
        if MANIFEST_NAME not in tag.objects and tag.name != busy and now - tag.touched >= STALE_S
    ]


async def _delete(target: Target, tag: Tag) -> None:
    """The manifest first: what is half deleted is no checkpoint."""
    keys = target.keys
    if MANIFEST_NAME in tag.objects:
        await _gone(target, keys.manifest(tag.epoch, tag.name))
    rest = [keys.file(tag.epoch, tag.name, path) for path in tag.objects if path != MANIFEST_NAME]
    await each(rest, _AT_ONCE, lambda key: _gone(target, key))
    if tag.claim is not None:
        await _gone(target, keys.claim(tag.epoch, tag.name))


async def _gone(target: Target, key: str) -> None:
    import obstore

    await sought(target.address, obstore.delete_async(target.store, key))
