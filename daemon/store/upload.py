"""A checkpoint into a store: what is not there yet, several files at once, the manifest last.

What makes an object count is the digest that its bytes had on the way (``sending``), and that the object is
still the one that was written then: its mark is recorded in the claim and compared before the manifest goes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

from outlast.daemon.checkpoint.destinations import (
    DAMAGED,
    TAKEN,
    Count,
    Progress,
    Refused,
    Unreachable,
)
from outlast.daemon.store import claim as claims
from outlast.daemon.store import durable
from outlast.daemon.store.claim import Claim, fingerprint
from outlast.daemon.store.errors import asked
from outlast.daemon.store.listing import Tag, look, mark_of, read_object
from outlast.daemon.store.receiving import differs_there
from outlast.daemon.store.sending import send
from outlast.daemon.store.target import Target
from outlast.daemon.store.together import each
from outlast.wire.manifest import MAX_BYTES, FileEntry, Manifest, ManifestError, parse
from outlast.wire.store import Committed, check_files

FILES_AT_ONCE = 3
_ROUNDS = 3
# What has arrived is recorded no more often than this; a cut costs so much of small files at most.
_RECORD_S = 2.0


@dataclass(frozen=True, slots=True)
class Known:
    """Objects of older whole checkpoints by digest: what did not change is copied inside the store."""

    keys: dict[tuple[int, str, int], str]

    @classmethod
    def of(cls, target: Target, tags: Iterable[Tag]) -> Known:
        """From what lies there."""
        return cls(
            {
                (entry.size, entry.sha256, entry.chunk): target.keys.file(tag.epoch, tag.name, entry.path)
                for tag in tags
                if tag.whole and tag.manifest
                for entry in tag.manifest.files
            }
        )


async def upload(target: Target, committed: Committed, now: float, progress: Progress | None = None) -> int:
    """Have the checkpoint committed there; returns the bytes that were sent. ``now``: UTC epoch seconds.

    Raises Unreachable and Refused; can be cancelled at any time, and goes on where it stopped.
    """
    manifest = committed.manifest
    await _check_here(committed)
    tags = await look(target, manifest.epoch)
    seen = next((tag for tag in tags if tag.name == manifest.tag), Tag(manifest.epoch, manifest.tag))
    count = Count(manifest.total_bytes, progress)
    if _is_there(target, seen, manifest):
        count.finish()
        return 0
    claim = await claims.take(target, manifest, seen, now)
    work = _Upload(target, committed, claim, Known.of(target, tags), count)
    await work.until_all_there(seen)
    await _commit(target, manifest)
    await claims.drop(target, manifest.epoch, manifest.tag)
    count.finish()
    return count.sent


class _Upload:
    """The files of one checkpoint, until the store holds them all."""

    def __init__(
        self, target: Target, committed: Committed, claim: Claim, known: Known, count: Count
    ) -> None:
        self._target = target
        self._committed = committed
        self._claim = claim
        self._known = known
        self._count = count
        self._recorded_at = time.monotonic()
        self._seen = Tag(committed.epoch, committed.tag)

    async def until_all_there(self, seen: Tag) -> None:
        """Send what is missing, and look again: an object that changed meanwhile is sent once more."""
        read: set[str] = set()
        self._seen = seen
        for _ in range(_ROUNDS):
            await self._send_all(self._missing())
            self._seen = await self._look()
            if self._missing():
                continue
            wrong = await self._wrong_there(read)
            if not wrong:
                await asyncio.to_thread(durable.fsync_tag, self._target, self._committed.manifest)
                return
            for entry in wrong:
                self._claim.arrived.pop(entry.path, None)
        await claims.write(self._target, self._committed.manifest, self._claim)
        raise Unreachable(
            f"{self._target.address} does not hold what was sent: {self._committed.tag} was altered on the"
            " way, or another writer is at it"
        )

    def _missing(self) -> list[FileEntry]:
        missing = [
            entry
            for entry in self._committed.manifest.files
            if not self._claim.holds(entry.path, self._seen.objects.get(entry.path))
        ]
        self._count.left(sum(entry.size for entry in missing))
        return missing

    async def _send_all(self, missing: list[FileEntry]) -> None:
        need = sum(entry.size for entry in missing)
        await asyncio.to_thread(durable.check_space, self._target, need)
        try:
            # The largest first, so that none is left to itself at the end.
            largest_first = sorted(missing, key=lambda entry: -entry.size)
            await each(largest_first, FILES_AT_ONCE, self._send)
        finally:
            if missing:
                await self._record_in_the_end()

    async def _send(self, entry: FileEntry) -> None:
        manifest = self._committed.manifest
        key = self._target.keys.file(manifest.epoch, manifest.tag, entry.path)
        there = await self._twin(entry, key) or await self._copied(entry, key)
        if there is None:
            there = await send(self._target, key, self._committed.path, entry, self._count.add)
        self._claim.arrived[entry.path] = there
        if time.monotonic() - self._recorded_at > _RECORD_S:
            self._recorded_at = time.monotonic()
            await claims.write(self._target, manifest, self._claim)

    async def _twin(self, entry: FileEntry, key: str) -> tuple[int, str] | None:
        """What we sent and somebody has written over: with the same bytes it is as good as ours."""
        seen = self._seen.objects.get(entry.path)
        if entry.path not in self._claim.arrived or seen is None or seen.size != entry.size:
            return None
        if await differs_there(self._target, key, entry):
            return None
        self._count.there(entry.size)
        return seen.size, seen.mark

    async def _copied(self, entry: FileEntry, key: str) -> tuple[int, str] | None:
        """Copy the same bytes from an older checkpoint inside the store; None where that cannot be."""
        import obstore

        source = self._known.keys.get((entry.size, entry.sha256, entry.chunk))
        if source is None or source == key:
            return None
        try:
            await asked(self._target.address, obstore.copy_async(self._target.store, source, key))
            meta = await asked(self._target.address, obstore.head_async(self._target.store, key))
        except (Refused, Unreachable):
            return None
        if meta["size"] != entry.size:
            return None
        self._count.there(entry.size)
        return meta["size"], mark_of(meta["e_tag"])

    async def _record_in_the_end(self) -> None:
        """Also after a failure or a cut, if the store still listens."""
        try:
            async with asyncio.timeout(_RECORD_S):
                await claims.write(self._target, self._committed.manifest, self._claim)
        except (Refused, Unreachable, TimeoutError):
            return

    async def _look(self) -> Tag:
        manifest = self._committed.manifest
        tags = await look(self._target, manifest.epoch)
        return next((tag for tag in tags if tag.name == manifest.tag), Tag(manifest.epoch, manifest.tag))

    async def _wrong_there(self, read: set[str]) -> list[FileEntry]:
        """Where nothing else protects the way: the files whose bytes over there have another digest."""
        if not self._target.settings.reads_back:
            return []
        manifest = self._committed.manifest
        wrong: list[FileEntry] = []

        async def check(entry: FileEntry) -> None:
            key = self._target.keys.file(manifest.epoch, manifest.tag, entry.path)
            if await differs_there(self._target, key, entry):
                wrong.append(entry)
            else:
                read.add(entry.path)

        await each([e for e in manifest.files if e.path not in read], FILES_AT_ONCE, check)
        return wrong


async def _commit(target: Target, manifest: Manifest) -> None:
    """The manifest, if nobody has written one: of two writers, one wins."""
    import obstore
    from obstore.exceptions import AlreadyExistsError

    key = target.keys.manifest(manifest.epoch, manifest.tag)
    try:
        await asked(target.address, obstore.put_async(target.store, key, manifest.to_bytes(), mode="create"))
    except AlreadyExistsError:
        found = await read_object(target, key, MAX_BYTES)
        if found is None or not _same(found.data, manifest):
            raise _taken(target, manifest) from None
    await asyncio.to_thread(durable.fsync_tag, target, manifest)


def _is_there(target: Target, seen: Tag, manifest: Manifest) -> bool:
    """Whether it is committed there and whole. Raises Refused where something else has that name."""
    if seen.manifest is None:
        return False
    if fingerprint(seen.manifest) != fingerprint(manifest):
        raise _taken(target, manifest)
    return seen.whole


def _same(data: bytes, manifest: Manifest) -> bool:
    try:
        return fingerprint(parse(data)) == fingerprint(manifest)
    except ManifestError:
        return False


def _taken(target: Target, manifest: Manifest) -> Refused:
    return Refused(
        TAKEN,
        f"another {manifest.tag} of epoch {manifest.epoch} is committed at {target.address}, with other"
        " contents: it stays, and this one is not sent",
    )


async def _check_here(committed: Committed) -> None:
    problems = await asyncio.to_thread(check_files, committed.path, committed.manifest, digests=False)
    if problems:
        first = problems[0]
        raise Refused(DAMAGED, f"not sent, {committed.tag} is damaged here: {first.path}: {first.what}")
