"""What lies in a store: by names and sizes alone, and the manifests that commit them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from outlast.daemon.store.errors import asked, sought
from outlast.daemon.store.layout import epoch_of
from outlast.daemon.store.target import Target
from outlast.daemon.store.together import each
from outlast.wire.manifest import MANIFEST_NAME, MAX_BYTES, Manifest, ManifestError, parse

if TYPE_CHECKING:
    from obstore import ObjectMeta

T = TypeVar("T")
_AT_ONCE = 8
# Whole checkpoints worth knowing of: the newest may yet turn out to be damaged.
_ENOUGH = 2


@dataclass(frozen=True, slots=True)
class Stored:
    """An object: ``mark`` changes whenever it is written, ``at`` is when (UTC epoch seconds)."""

    size: int
    mark: str
    at: float


@dataclass
class Tag:
    """What lies below one tag. ``manifest`` is None without one that reads and fits; ``claim``: its claim."""

    epoch: int
    name: str
    objects: dict[str, Stored] = field(default_factory=dict)
    manifest: Manifest | None = None
    claim: Stored | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Newer is greater; only of a committed one."""
        assert self.manifest is not None
        return (self.epoch, self.manifest.step)

    @property
    def whole(self) -> bool:
        """Committed, and every file is there in its size."""
        return self.manifest is not None and all(
            entry.path in self.objects and self.objects[entry.path].size == entry.size
            for entry in self.manifest.files
        )

    @property
    def touched(self) -> float:
        """When something of it was last written."""
        return max((seen.at for seen in (*self.objects.values(), self.claim) if seen), default=0.0)


async def epochs(target: Target) -> list[int]:
    """The epochs that the job has anything in, highest first. Raises Unreachable and Refused."""
    import obstore

    answer = obstore.list_with_delimiter_async(target.store, f"{target.keys.root}/")
    found = await _listed(target, answer)
    numbers = (epoch_of(prefix) for prefix in found["common_prefixes"]) if found else ()
    return sorted((number for number in numbers if number is not None), reverse=True)


async def look(target: Target, epoch: int) -> list[Tag]:
    """Everything of an epoch, with the manifests read. Raises Unreachable and Refused."""
    import obstore

    tags: dict[str, Tag] = {}
    stream = obstore.list(target.store, f"{target.keys.epoch(epoch)}/")
    while chunk := await _listed(target, anext(stream, None)):
        for meta in chunk:
            _sort_in(target, epoch, tags, meta)
    held = [tag for tag in tags.values() if MANIFEST_NAME in tag.objects]
    await each(held, _AT_ONCE, lambda tag: _read(target, tag))
    return sorted(tags.values(), key=lambda tag: tag.name)


async def everything(target: Target) -> list[Tag]:
    """All epochs, the highest first. Raises Unreachable and Refused."""
    return [tag for epoch in await epochs(target) for tag in await look(target, epoch)]


async def newest(target: Target) -> Tag | None:
    """The newest whole checkpoint. Raises Unreachable and Refused."""
    for epoch in await epochs(target):
        whole = [tag for tag in await look(target, epoch) if tag.whole]
        if whole:
            return max(whole, key=lambda tag: tag.order)
    return None


async def held(target: Target) -> list[tuple[Manifest, str]]:
    """The newest committed checkpoints, each with what is wrong with it. Raises Unreachable and Refused.

    Epochs below one with whole checkpoints enough are not looked at.
    """
    found: list[tuple[Manifest, str]] = []
    for epoch in await epochs(target):
        found += [(tag.manifest, _wrong(tag)) for tag in await look(target, epoch) if tag.manifest]
        if sum(not what for _, what in found) >= _ENOUGH:
            break
    return sorted(found, key=lambda one: (one[0].epoch, one[0].step), reverse=True)


def _wrong(tag: Tag) -> str:
    if tag.manifest and tag.manifest.part is not None:
        return "one node's part of a checkpoint"
    files = tag.manifest.files if tag.manifest else ()
    bad = [
        entry.path
        for entry in files
        if entry.path not in tag.objects or tag.objects[entry.path].size != entry.size
    ]
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{bad[0]}{more} missing or of another size" if bad else ""


@dataclass(frozen=True, slots=True)
class Read:
    """A small object, and when it was written (UTC epoch seconds)."""

    data: bytes
    at: float


async def read_object(target: Target, key: str, most: int) -> Read | None:
    """A small object, None if there is none or it is larger. Raises Unreachable and Refused."""
    import obstore

    answer = await sought(target.address, obstore.get_async(target.store, key))
    if answer is None or answer.meta["size"] > most:
        return None
    data = await asked(target.address, answer.bytes_async())
    return Read(bytes(data), answer.meta["last_modified"].timestamp())


def stored(meta: ObjectMeta) -> Stored:
    """An object as a listing tells of it."""
    when: dt.datetime = meta["last_modified"]
    return Stored(meta["size"], mark_of(meta["e_tag"]), when.timestamp())


def mark_of(e_tag: str | None) -> str:
    """An object's mark; stores differ in the quotes around it."""
    return (e_tag or "").strip('"')


def _sort_in(target: Target, epoch: int, tags: dict[str, Tag], meta: ObjectMeta) -> None:
    claimed = target.keys.claimed(epoch, meta["path"])
    inside = target.keys.inside(epoch, meta["path"])
    if claimed is not None:
        tags.setdefault(claimed, Tag(epoch, claimed)).claim = stored(meta)
    elif inside is not None:
        name, path = inside
        tags.setdefault(name, Tag(epoch, name)).objects[path] = stored(meta)


async def _listed(target: Target, answer: Awaitable[T]) -> T | None:
    """A folder that nothing was ever put into cannot be listed; a bucket can, or it is not there."""
    return await (sought if target.address.folder else asked)(target.address, answer)


async def _read(target: Target, tag: Tag) -> None:
    found = await read_object(target, target.keys.manifest(tag.epoch, tag.name), MAX_BYTES)
    try:
        manifest = parse(found.data if found else b"")
    except ManifestError:
        return
    if (manifest.job, manifest.epoch, manifest.tag) == (target.job, tag.epoch, tag.name):
        tag.manifest = manifest
