"""A sender in a few calls, for tests of the receiver alone."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable

from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.protocol import Chunk, Commit, Offer
from outlast.wire.digests import CHUNK, chunks_in
from outlast.wire.manifest import FileEntry
from outlast.wire.store import Committed

NOTHING = io.BytesIO()


def chunk_of(item: Committed, entry: FileEntry, index: int) -> tuple[Chunk, bytes]:
    """One chunk of a file as its sender sends it."""
    data = (item.path / entry.path).read_bytes()[CHUNK * index : CHUNK * (index + 1)]
    return Chunk(
        item.epoch, item.manifest.staged, entry.path, index, len(data), hashlib.sha256(data).hexdigest()
    ), data


def put(landing: Landing, item: Committed, entry: FileEntry, indices: Iterable[int] | None = None) -> None:
    """Send a file's chunks to the receiver, all unless ``indices`` are given."""
    for index in range(chunks_in(entry.size)) if indices is None else indices:
        chunk, data = chunk_of(item, entry, index)
        landing.answer(chunk, io.BytesIO(data))


def offer(landing: Landing, item: Committed) -> dict[str, list[tuple[int, int]]]:
    """Offer a checkpoint; the wanted paths with the runs of chunks that are not there."""
    answer = landing.answer(Offer(item.manifest), NOTHING)
    return {want["path"]: want["missing"] for want in answer["want"]}


def deliver(landing: Landing, item: Committed) -> list[str]:
    """Offer, send and commit; the nodes whose parts are missing, where the checkpoint is one of several."""
    wanted = offer(landing, item)
    for entry in item.manifest.files:
        if entry.path in wanted:
            put(landing, item, entry)
    answer = landing.answer(Commit(item.epoch, item.manifest.staged), NOTHING)
    return list(answer.get("waiting", []))
