"""Chunks at the receiver: in any order, early, altered, of two senders, across a reboot."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ship.deliver import NOTHING, chunk_of, deliver, offer, put

from outlast.daemon.ship.arrival import SenderGoneError
from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.protocol import Chunk, Commit, Digests, Offer
from outlast.daemon.ship.words import RefusedError
from outlast.providers.base import SystemClock
from outlast.simulations.saved import committed
from outlast.wire.digests import CHUNK, chunk_digests, chunks_in, digest
from outlast.wire.store import newest_whole, scan, verify


def test_only_missing_chunks_are_wanted_again(landing: Landing, tmp_path: Path) -> None:
    """After a break a file that is there is not wanted, and of a part only what it lacks, in any order."""
    item = committed(tmp_path / "store", 100, shard_bytes=5 * CHUNK)
    first, second = sorted(item.manifest.files, key=lambda entry: -entry.size)[:2]
    offer(landing, item)
    put(landing, item, first)
    put(landing, item, second, [4, 1])
    chunk, data = chunk_of(item, second, 2)
    with pytest.raises(SenderGoneError):
        landing.answer(chunk, io.BytesIO(data[:1000]))
    wanted = offer(landing, item)
    assert first.path not in wanted
    assert wanted[second.path] == [(0, 1), (2, 2), (5, chunks_in(second.size) - 5)]
    put(landing, item, second, [0, 2, 3, 5])
    assert second.path not in offer(landing, item)


def test_chunks_may_come_before_the_offer(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """What was sent while the checkpoint was saved is lacking no more, and counts only once committed."""
    item = committed(tmp_path / "store", 100, shard_bytes=2 * CHUNK)
    for entry in item.manifest.files:
        put(landing, item, entry)
    assert scan(replicas) == []
    assert offer(landing, item) == {}
    landing.answer(Commit(1, item.tag), NOTHING)
    assert verify(replicas / "epoch-1" / item.tag) == []


def test_what_changed_after_it_was_sent_is_found_by_its_chunk(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """A chunk sent too early differs: digests tell which, and that one is enough."""
    item = committed(tmp_path / "store", 100, shard_bytes=3 * CHUNK)
    entry = max(item.manifest.files, key=lambda each: each.size)
    for each in item.manifest.files:
        put(landing, item, each)
    early = bytes(CHUNK)
    stale = Chunk(1, item.tag, entry.path, 1, CHUNK, hashlib.sha256(early).hexdigest())
    landing.answer(stale, io.BytesIO(early))
    assert offer(landing, item) == {entry.path: []}
    with pytest.raises(RefusedError, match=entry.path):
        landing.answer(Commit(1, item.tag), NOTHING)
    here = landing.answer(Digests(1, item.tag, entry.path, 0), NOTHING)["digests"]
    ours = [digest.hex() for digest in chunk_digests(item.path / entry.path)]
    assert [at for at, (one, other) in enumerate(zip(here, ours, strict=True)) if one != other] == [1]
    put(landing, item, entry, [1])
    landing.answer(Commit(1, item.tag), NOTHING)
    assert verify(replicas / "epoch-1" / item.tag) == []


def test_a_tag_that_is_saved_anew_is_not_mixed_with_the_old_one(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """Files that had arrived whole for another content of the tag are opened again, chunk by chunk."""
    old = committed(tmp_path / "old", 100, shard_bytes=3 * CHUNK, seed=1)
    new = committed(tmp_path / "new", 100, shard_bytes=2 * CHUNK, seed=2)
    offer(landing, old)
    for entry in old.manifest.files:
        put(landing, old, entry)
    assert offer(landing, old) == {}
    deliver(landing, new)
    assert verify(replicas / "epoch-1" / new.tag) == []
    assert newest_whole(replicas) == replace(new, folder=replicas / "epoch-1")


def test_after_a_reboot_only_what_is_on_the_disk_counts(
    landing: Landing, replicas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may keep the note of a chunk and lose its bytes."""
    item = committed(tmp_path / "store", 100, shard_bytes=3 * CHUNK)
    entry = max(item.manifest.files, key=lambda each: each.size)
    offer(landing, item)
    put(landing, item, entry, [0, 1])
    part = replicas / "epoch-1" / ".staging" / item.tag / f"{entry.path}.outlast-part"
    with part.open("r+b") as file:
        file.seek(CHUNK)
        file.write(bytes(1000))
    boot = tmp_path / "boot_id"
    boot.write_text("another boot\n")
    monkeypatch.setattr("outlast.daemon.ship.sheet._BOOT", boot)
    for _ in range(2):
        assert offer(landing, item)[entry.path] == [(1, chunks_in(entry.size) - 1)]


def test_a_format_of_whole_digests_is_still_taken(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """A manifest of an earlier release has the digest of each whole file: the bytes are read once more."""
    item = committed(tmp_path / "store", 100, shard_bytes=2 * CHUNK)
    files = tuple(
        replace(entry, sha256=digest(item.path / entry.path, 0), chunk=0) for entry in item.manifest.files
    )
    old = replace(item, manifest=replace(item.manifest, files=files))
    assert old.manifest.as_dict()["format"] == 1
    deliver(landing, old)
    assert newest_whole(replicas) == replace(old, folder=replicas / "epoch-1")


def test_two_senders_of_one_tag_do_not_mix(replicas: Path, tmp_path: Path) -> None:
    """Two senders bring other bytes under one tag, chunk by chunk in turn: only one whole content commits."""
    items = [committed(tmp_path / f"store-{seed}", 100, shard_bytes=2 * CHUNK, seed=seed) for seed in (1, 2)]
    landings = [Landing(replicas, "gpt", SystemClock()) for _ in items]
    for landing, item in zip(landings, items, strict=True):
        offer(landing, item)
    for at, entry in enumerate(items[0].manifest.files):
        for index in range(chunks_in(entry.size)):
            for turn in ((0, 1), (1, 0))[at % 2]:
                put(landings[turn], items[turn], entry, [index])
    for landing, item in zip(landings, items, strict=True):
        with pytest.raises(RefusedError):
            landing.answer(Commit(1, item.tag), NOTHING)
    deliver(landings[0], items[0])
    assert newest_whole(replicas) == replace(items[0], folder=replicas / "epoch-1")


def test_transfers_that_were_overtaken_are_swept(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """A dead transfer of an older step goes with the next commit; a newer one, or a busy one, stays."""
    items = [committed(tmp_path / "store", step, shard_bytes=2 * CHUNK) for step in (90, 95, 100, 110)]
    dead, busy, whole, newer = items
    for item in (dead, busy, newer):
        put(Landing(replicas, "gpt", SystemClock()), item, item.manifest.files[0])
    working = Landing(replicas, "gpt", SystemClock())
    offer(working, busy)
    deliver(landing, whole)
    landing.tidy()
    staging = replicas / "epoch-1" / ".staging"
    assert {path.name.removesuffix(".chunks") for path in staging.iterdir() if path.is_dir()} == {
        busy.tag,
        newer.tag,
    }
    working.close()
    landing.tidy()
    assert not (staging / busy.tag).exists()
    first = newer.manifest.files[0].path
    assert first not in offer(landing, newer)


def test_a_kill_between_other_bytes_and_their_note_is_not_believed(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """A chunk that is there is overwritten by another, and the receiver dies before it has noted that."""
    item = committed(tmp_path / "store", 100, shard_bytes=3 * CHUNK)
    entry = max(item.manifest.files, key=lambda each: each.size)
    for each in item.manifest.files:
        put(landing, item, each, range(chunks_in(each.size)))

    def die(name: str) -> None:
        if name == "chunk written":
            raise KeyboardInterrupt

    stale = Landing(replicas, "gpt", SystemClock(), step=die)
    other = Chunk(1, item.tag, entry.path, 1, CHUNK, "")
    with pytest.raises(KeyboardInterrupt):
        stale.answer(other, io.BytesIO(bytes(CHUNK)))
    assert offer(landing, item) == {entry.path: [(1, 1)]}
    put(landing, item, entry, [1])
    landing.answer(Commit(1, item.tag), NOTHING)
    assert verify(replicas / "epoch-1" / item.tag) == []


@pytest.mark.parametrize("early", [True, False])
def test_a_file_that_was_linked_from_an_older_replica_is_never_written_to(
    landing: Landing, replicas: Path, tmp_path: Path, early: bool
) -> None:
    """A tag is saved anew after a cut transfer, and a file that was as in the replica before no longer is."""
    old = committed(tmp_path / "store", 100, shard_bytes=CHUNK)
    deliver(landing, old)
    linked = old.manifest.files[0]
    first = replace(old.manifest, tag="global_step200", step=200, files=(linked,))
    landing.answer(Offer(first), NOTHING)
    anew = committed(tmp_path / "anew", 200, shard_bytes=2 * CHUNK)
    if early:
        put(landing, anew, anew.manifest.files[0], [0])
    deliver(landing, anew)
    assert verify(replicas / "epoch-1" / old.tag) == []
    assert verify(replicas / "epoch-1" / anew.tag) == []
