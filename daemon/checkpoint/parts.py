"""The parts of a checkpoint that several nodes have saved, and how they become one at a receiver.

Each part arrives in a staging folder of its own, ``<tag>.part-<index>``; it has arrived once the manifest
that was offered lies in it. The files of all parts are then moved into ``<tag>.parts``, which gets the
tag's name. The merged manifest is written beside that folder first: what a crash cuts off is gone on with.
Whoever calls what changes something holds the store's commit lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from outlast.daemon.checkpoint.place import (
    SHEETS_SUFFIX,
    STAGING,
    Step,
    discard,
    drop_strangers,
    fsync_folders,
    no_step,
    put_in_place,
    write_atomically,
)
from outlast.wire.manifest import MANIFEST_NAME, FileEntry, Manifest, ManifestError, parse, read, tag_of
from outlast.wire.store import check_file, check_files, committed_at, epochs, folders

MERGED_SUFFIX = ".parts"
_MOST_OPEN = 100


class MismatchError(Exception):
    """Parts of one save do not make a checkpoint; the text says why."""


@dataclass(frozen=True)
class Open:
    """A checkpoint of which a part is here or on its way: the nodes that have begun, and those that lack."""

    epoch: int
    tag: str
    step: int
    there: tuple[str, ...]
    lacks: tuple[str, ...]


def offered(staging: Path) -> Manifest | None:
    """The manifest last offered for a staging folder, or None."""
    try:
        return parse(beside(staging).read_bytes())
    except (FileNotFoundError, ManifestError):
        return None


def beside(staging: Path) -> Path:
    """Where the manifest that was offered for a staging folder lies."""
    return staging.parent / f"{staging.name}.offer"


def arrived(staging: Path) -> Manifest | None:
    """The part that has arrived in this staging folder, whole as it was offered; None if none has."""
    try:
        manifest = read(staging)
    except ManifestError:
        return None
    fits = manifest.part is not None and manifest.staged == staging.name and manifest == offered(staging)
    return manifest if fits and not check_files(staging, manifest, digests=False) else None


def covers(whole: Manifest, part: Manifest) -> bool:
    """Whether a checkpoint holds this part: it was saved together with it, and all its files are there."""
    same = _save(whole) == _save(part) and whole.flush_id == part.flush_id and whole.layout == part.layout
    return same and set(part.files) <= set(whole.files)


def merge(parts: Sequence[Manifest]) -> Manifest:
    """The manifest of the checkpoint that all ``parts`` of one save make. Raises MismatchError."""
    for one, other in pairwise(parts):
        _check_alike(one, other)
    files: dict[str, tuple[FileEntry, Manifest]] = {}
    for part in parts:
        for entry in part.files:
            known, of = files.setdefault(entry.path, (entry, part))
            if known != entry:
                raise MismatchError(f"{entry.path} of {_node(of)} and of {_node(part)} differ")
    from outlast.wire import shards  # here: a receiver starts quickly

    entries = tuple(files[path][0] for path in sorted(files))
    created = max(part.created for part in parts)
    whole = replace(parts[0], files=entries, created=created, part=None)
    lacking = shards.expected(whole.layout, set(files))
    if lacking:
        raise MismatchError(f"{lacking[0]} is in no part: not every rank has saved {whole.tag}")
    try:
        return parse(whole.to_bytes())
    except ManifestError as exc:
        raise MismatchError(f"the parts do not fit together: {exc}") from exc


def settle(folder: Path, part: Manifest, step: Step = no_step) -> tuple[str, ...]:
    """Make one of all parts of a save in an epoch folder; returns the nodes whose parts are missing.

    With none missing the checkpoint is committed. Raises MismatchError where the parts do not fit.
    """
    staging = folder / STAGING
    there = _there(staging, part)
    assert part.part is not None
    missing = tuple(node for index, node in enumerate(part.part.nodes) if index not in there)
    if missing:
        return missing
    whole = merge([there[index] for index in sorted(there)])
    merged = staging / (whole.tag + MERGED_SUFFIX)
    if merged.is_dir():
        discard(merged)
    step("parts there")
    write_atomically(beside(merged), whole.to_bytes(), step)
    step("merge decided")
    return () if go_on(folder, part.tag, step) else settle(folder, part, step)


def go_on(folder: Path, tag: str, step: Step = no_step) -> bool:
    """Finish the merge of ``tag`` that was begun in an epoch folder. Whether there was one, and it is done.

    A merge whose files are gone is given up: those parts have not arrived any more.
    """
    merged = folder / STAGING / (tag + MERGED_SUFFIX)
    whole = offered(merged)
    if whole is None:
        return False
    final = folder / tag
    done = committed_at(final, whole.epoch)
    if done is None or done.manifest != whole:
        if not _gather(merged, whole, step):
            discard(merged)
            beside(merged).unlink()
            return False
        put_in_place(merged, final, step)
    _forget(merged, whole, step)
    return True


def finish_parts(store: Path, step: Step = no_step) -> list[str]:
    """Commit every checkpoint whose parts are all in ``store``; one sentence for each."""
    begun = [(folder, tag) for _, folder in epochs(store) for tag in _begun(folder)]
    done = [place for place in begun if go_on(*place, step) or _settled(*place, step)]
    return [
        f"Put the parts of {folder.name}/{tag} together: a crash had cut that off." for folder, tag in done
    ]


def open_parts(store: Path, newer_than: tuple[int, int] | None) -> list[Open]:
    """What is not whole yet and newer than that ``(epoch, step)``, the newest first."""
    found: list[Open] = []
    for epoch, folder in epochs(store):
        for tag in _begun(folder):
            parts = [p for path in _parts(folder / STAGING, tag) if (p := offered(path)) and p.part]
            newest = max(parts, key=lambda part: part.created, default=None)
            if newest is None or newest.part is None or (newer_than and (epoch, newest.step) <= newer_than):
                continue
            same = {p.part.index for p in parts if p.part and p.flush_id == newest.flush_id}
            here, nodes = _there(folder / STAGING, newest), newest.part.nodes
            there = tuple(node for index, node in enumerate(nodes) if index in same)
            lacks = tuple(node for index, node in enumerate(nodes) if index not in here)
            found.append(Open(epoch, tag, newest.step, there, lacks))
    return sorted(found, key=lambda item: (item.epoch, item.step), reverse=True)[:_MOST_OPEN]


def _save(manifest: Manifest) -> tuple[str, str, int, int]:
    return manifest.job, manifest.tag, manifest.step, manifest.epoch


def _node(manifest: Manifest) -> str:
    return manifest.part.node if manifest.part else "?"


def _check_alike(one: Manifest, other: Manifest) -> None:
    pairs = {
        "steps": (one.step, other.step),
        "layouts": (one.layout, other.layout),
        "epochs": (one.epoch, other.epoch),
        "jobs": (one.job, other.job),
        "nodes": (one.part and one.part.nodes, other.part and other.part.nodes),
        "chunks": (one.files[0].chunk, other.files[0].chunk),
    }
    for what, (here, there) in pairs.items():
        if here != there:
            raise MismatchError(f"{one.tag} has other {what} at {_node(one)} than at {_node(other)}")


def _there(staging: Path, like: Manifest) -> dict[int, Manifest]:
    """The parts of the same save that have arrived, by index."""
    assert like.part is not None
    paths = {index: staging / f"{like.tag}.part-{index}" for index in range(len(like.part.nodes))}
    found = {index: arrived(path) for index, path in paths.items()}
    return {index: part for index, part in found.items() if part and part.flush_id == like.flush_id}


def _parts(staging: Path, tag: str) -> list[Path]:
    """The folders in which parts of ``tag`` arrive."""
    return [
        path
        for path in folders(staging)
        if tag_of(path.name) == tag != path.name and path.name != tag + MERGED_SUFFIX
    ]


def _begun(folder: Path) -> list[str]:
    """The tags of which parts are here, or a merge."""
    names = [path.name for path in folders(folder / STAGING) if not path.name.endswith(SHEETS_SUFFIX)]
    try:
        ends = f"{MERGED_SUFFIX}.offer"
        names += [path.name.removesuffix(".offer") for path in (folder / STAGING).glob(f"*{ends}")]
    except OSError:
        return []
    return sorted({tag_of(name) for name in names if tag_of(name) != name})


def _settled(folder: Path, tag: str, step: Step) -> bool:
    for path in _parts(folder / STAGING, tag):
        part = arrived(path)
        try:
            if part is not None and not settle(folder, part, step):
                return True
        except MismatchError:
            continue  # the next one to commit a part is told
    return False


def _gather(merged: Path, whole: Manifest, step: Step) -> bool:
    """Move every file of the parts into one folder and write its manifest. False if some are gone."""
    for path in _parts(merged.parent, whole.tag):
        part = offered(path)
        if part is None or not covers(whole, part):
            continue
        for entry in part.files:
            if not check_file(path, entry, digests=False):
                (merged / entry.path).parent.mkdir(parents=True, exist_ok=True)
                (path / entry.path).replace(merged / entry.path)
                step("file moved")
    if check_files(merged, whole, digests=False):
        return False
    drop_strangers(merged, {entry.path for entry in whole.files})
    fsync_folders(merged)
    write_atomically(merged / MANIFEST_NAME, whole.to_bytes(), step)
    step("merged")
    return True


def _forget(merged: Path, whole: Manifest, step: Step) -> None:
    """The parts are in the checkpoint: what is left of them goes, and the merge last."""
    for path in _parts(merged.parent, whole.tag):
        part = offered(path)
        if part is not None and covers(whole, part):
            forget_part(path)
            step("part forgotten")
    if merged.is_dir():
        discard(merged)
    beside(merged).unlink(missing_ok=True)


def forget_part(path: Path) -> None:
    """A part that is in a checkpoint by now goes, with all that lies beside its folder."""
    for folder in (path, path.with_name(path.name + SHEETS_SUFFIX)):
        if folder.is_dir():
            discard(folder)
    for suffix in ("lock", "offer"):
        (path.parent / f"{path.name}.{suffix}").unlink(missing_ok=True)
