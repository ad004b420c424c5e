"""A fetch that broke off at the peer, is tried at a store, and goes on at the peer: notes and bytes agree."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.destinations.conftest import MIB, Place, saved
from tests.destinations.test_restore_places import damage, source_of

from outlast.daemon.checkpoint import recovery
from outlast.daemon.checkpoint.arriving import CannotLand, from_folder, land
from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.checkpoint.place import STAGING, discard, no_step
from outlast.daemon.ship.arrival import Arrivals, sheets_of
from outlast.daemon.ship.protocol import Chunk
from outlast.wire.digests import CHUNK, chunks_in
from outlast.wire.store import Committed, verify

Make = Callable[..., Any]


def _half_arrived(staging: Path, item: Committed) -> None:
    """What a fetch from the peer leaves where it is cut before the last chunk of the first file."""
    _arrive(staging, item, range(chunks_in(item.manifest.files[0].size) - 1))


def _arrive(staging: Path, item: Committed, indices: range) -> None:
    """These chunks of the first file arrive from the peer."""
    entry, arrivals = item.manifest.files[0], Arrivals(staging, no_step)
    data = (item.path / entry.path).read_bytes()
    staging.mkdir(parents=True, exist_ok=True)
    for index in indices:
        some = data[CHUNK * index : CHUNK * (index + 1)]
        chunk = Chunk(item.epoch, item.tag, entry.path, index, len(some), "")
        arrivals.take(chunk, memoryview(some))


def _arrived_and_damaged(staging: Path, item: Committed) -> None:
    """The first file is here whole, has its name, and then the disk gives back other bytes."""
    entry = item.manifest.files[0]
    _arrive(staging, item, range(chunks_in(entry.size)))
    assert Arrivals(staging, no_step).finish(entry)
    (staging / entry.path).write_bytes(b"x" * entry.size)


async def test_what_a_store_has_begun_anew_is_fetched_whole(make_place: Make, tmp_path: Path) -> None:
    """The store's damaged file took the place of the peer's chunks: none of these is believed to be here."""
    own, item = tmp_path / "own", await saved(tmp_path, 100, shard_bytes=3 * MIB)
    peer, folder = await make_place("peer"), await make_place("folder")
    for place in (peer, folder):
        await place.destination.ship(item)
    await damage(folder, item)
    staging = own / f"epoch-{item.epoch}" / STAGING / item.tag
    await asyncio.to_thread(_half_arrived, staging, item)
    with pytest.raises(Refused):
        await source_of(folder).fetch(item.manifest, own, None, ())
    done, _ = await source_of(peer).fetch(item.manifest, own, None, ())
    assert await asyncio.to_thread(verify, done.path) == []


async def test_a_sweep_that_is_killed_leaves_no_note_without_its_bytes(
    make_place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the first of the two folders: whatever is left, the next fetch is whole."""
    own, item = tmp_path / "own", await saved(tmp_path, 100, shard_bytes=3 * MIB)
    source: Place = await make_place("peer")
    await source.destination.ship(item)
    staging = own / f"epoch-{item.epoch}" / STAGING / item.tag
    await asyncio.to_thread(_half_arrived, staging, item)
    await asyncio.to_thread(_killed_sweep, own, monkeypatch)
    assert not sheets_of(staging).exists() or staging.exists()
    done, _ = await source_of(source).fetch(item.manifest, own, None, ())
    assert await asyncio.to_thread(verify, done.path) == []


async def test_what_a_copy_has_begun_anew_is_fetched_whole(
    make_place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy from another disk takes the place of the peer's chunks, and this one is full in the middle."""
    own, item = tmp_path / "own", await saved(tmp_path, 100, shard_bytes=3 * MIB)
    source: Place = await make_place("peer")
    await source.destination.ship(item)
    await asyncio.to_thread(_half_arrived, own / f"epoch-{item.epoch}" / STAGING / item.tag, item)

    def full(_: Path, part: Path, *, follow_symlinks: bool) -> None:
        part.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", full)
        with pytest.raises(CannotLand):
            await land(item.manifest, own, from_folder(item.path))
    done, _ = await source_of(source).fetch(item.manifest, own, None, ())
    assert await asyncio.to_thread(verify, done.path) == []


async def test_what_was_damaged_after_it_arrived_is_fetched_whole(make_place: Make, tmp_path: Path) -> None:
    """It is dropped, the fetch that brings it anew is cut after a chunk, and the one after that goes on."""
    own, item = tmp_path / "own", await saved(tmp_path, 100, shard_bytes=3 * MIB)
    source: Place = await make_place("peer")
    await source.destination.ship(item)
    staging = own / f"epoch-{item.epoch}" / STAGING / item.tag
    await asyncio.to_thread(_arrived_and_damaged, staging, item)

    async def cut(*_: object) -> int:
        await asyncio.to_thread(_arrive, staging, item, range(1))
        raise Unreachable("cut")

    with pytest.raises(Unreachable):
        await land(item.manifest, own, cut)
    done, _ = await source_of(source).fetch(item.manifest, own, None, ())
    assert await asyncio.to_thread(verify, done.path) == []


def _killed_sweep(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(path: Path) -> None:
        discard(path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(recovery, "discard", one)
        with pytest.raises(KeyboardInterrupt):
            recovery.sweep(store, set())
