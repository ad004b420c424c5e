"""After a crash: finish the commits that were all but done, and clear away what never was a checkpoint."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from pathlib import Path

from outlast.daemon.checkpoint.locks import hold_folder, try_lock
from outlast.daemon.checkpoint.parts import finish_parts
from outlast.daemon.checkpoint.place import (
    DELETED_SUFFIX,
    LATEST,
    SHEETS_SUFFIX,
    STAGING,
    Step,
    discard,
    no_step,
    point_latest,
    put_in_place,
)
from outlast.wire.manifest import PART_SUFFIX, PARTIAL_SUFFIX, Manifest, ManifestError, read, tag_of
from outlast.wire.store import check_files, committed_at, epochs, folders, proven, scan, scan_epoch, verify

COMMIT_LOCK = ".commit.lock"
_STEP = re.compile(r"global_step([0-9]{1,15})")


def recover(store: Path, *, step: Step = no_step) -> list[str]:
    """Finish every commit that a crash cut off after its manifest was written; one sentence for each.

    A ``.partial`` folder whose manifest does not verify is left for ``sweep`` and spoken of.
    """
    said = []
    for epoch, folder in epochs(store):
        for partial in folders(folder):
            if partial.name.endswith(PARTIAL_SUFFIX):
                said += _finish(partial, partial.name.removesuffix(PARTIAL_SUFFIX), epoch, step)
        said += _finish_staged(store, folder, epoch, step)
        said += _mend_latest(folder, epoch)
    return said + _finish_parts(store, step)


def sweep(store: Path, keep_partial: set[str]) -> list[str]:
    """Delete what unfinished saves and transfers left, except for the tags in ``keep_partial``.

    Committed and damaged folders stay, and so does a transfer that is under way. One sentence for each.
    """
    said = []
    for epoch, folder in epochs(store):
        for path in folders(folder):
            tag = path.name.removesuffix(PARTIAL_SUFFIX)
            unfinished = tag != path.name and tag not in keep_partial and not _complete(path, epoch)
            if unfinished or path.name.endswith(DELETED_SUFFIX):
                discard(path)
                said.append(f"Deleted {folder.name}/{path.name}: it was never finished.")
        (folder / (LATEST + PART_SUFFIX)).unlink(missing_ok=True)
        said += _sweep_staging(folder / STAGING, keep_partial)
    return said


def left_behind(store: Path, order: tuple[int, int]) -> list[str]:
    """Delete unfinished saves older than ``order``, which all ranks have just saved; one sentence for each.

    A trainer that died while it saved leaves one, and goes on from an older step: no rank comes back to it.
    What a killed deletion left goes as well.
    """
    said = []
    for epoch, folder in epochs(store):
        for path in folders(folder):
            tag = path.name.removesuffix(PARTIAL_SUFFIX)
            past = tag != path.name and (epoch, _step_of(tag)) < order
            if past or path.name.endswith(DELETED_SUFFIX):
                with suppress(OSError):  # the trainer's user may have kept a folder in it to itself
                    discard(path)
                    said.append(f"Deleted {folder.name}/{path.name}: it was never finished.")
    return said


def overtaken(store: Path, offered: tuple[int, int] | None = None) -> list[str]:
    """Delete transfers that a newer commit has made needless; one sentence for each.

    Of another epoch or a lower step than the newest committed checkpoint, and nobody is at it: its sender
    never comes back to it. A tag that tells no step is kept. With ``offered``, an epoch and step that its
    sender has gone on to, what is older than that is needless too; but not a part, whose checkpoint other
    nodes may still be at.
    """
    newest = next((item for item in scan(store) if item.whole), None)
    orders = [offered] if offered is not None else []
    orders += [(newest.epoch, newest.step)] if newest is not None else []
    if not orders:
        return []
    least, sure = max(orders), orders[-1] if newest is not None else (0, 0)
    said = []
    for epoch, folder in epochs(store):
        tags = {path.name.removesuffix(SHEETS_SUFFIX) for path in folders(folder / STAGING)}
        keep = {tag for tag in tags if (epoch, _step_of(tag)) > least or (epoch, _step_of(tag)) == offered}
        keep -= {tag for tag in tags if tag_of(tag) != tag}
        keep |= {tag for tag in tags if tag_of(tag) != tag and (epoch, _step_of(tag_of(tag))) >= sure}
        said += _sweep_staging(folder / STAGING, keep)
    return said


def _step_of(tag: str) -> float:
    match = _STEP.fullmatch(tag)
    return int(match[1]) if match else math.inf


def _finish(partial: Path, tag: str, epoch: int, step: Step) -> list[str]:
    where = f"{partial.parent.name}/{partial.name}"
    manifest = _fitting_manifest(partial, tag, epoch)
    if manifest is None:
        return []
    problems = check_files(partial, manifest)
    if problems:
        return [f"{where} stays uncommitted: {problems[0].path}: {problems[0].what}."]
    final = epoch_folder_of(partial) / tag
    found = committed_at(final, epoch)
    if found and not verify(final):
        return [f"{where} is superseded: {tag} is already committed."]
    put_in_place(partial, final, step, latest=manifest.part is None)
    return [f"Finished the commit of {final.parent.name}/{tag} that a crash had cut off."]


def _finish_staged(store: Path, folder: Path, epoch: int, step: Step) -> list[str]:
    """A receiver writes the manifest last, too; whoever commits there just now is left alone."""
    staged = folders(folder / STAGING)
    if not staged:
        return []
    with try_lock(store / COMMIT_LOCK) as held:
        return [said for path in staged if held for said in _finish_unwritten(path, epoch, step)]


def _finish_unwritten(path: Path, epoch: int, step: Step) -> list[str]:
    with hold_folder(path) as alone:
        return _finish(path, path.name, epoch, step) if alone else []


def _finish_parts(store: Path, step: Step) -> list[str]:
    if not any(folders(folder / STAGING) for _, folder in epochs(store)):
        return []
    with try_lock(store / COMMIT_LOCK) as held:
        return finish_parts(store, step) if held else []


def epoch_folder_of(partial: Path) -> Path:
    """The epoch folder that an unfinished folder, saved or staged, will be named in."""
    return partial.parent.parent if partial.parent.name == STAGING else partial.parent


def _fitting_manifest(partial: Path, tag: str, epoch: int) -> Manifest | None:
    try:
        manifest = read(partial)
    except ManifestError:
        return None
    return manifest if manifest.tag == tag and manifest.epoch == epoch else None


def _complete(partial: Path, epoch: int) -> bool:
    manifest = _fitting_manifest(partial, partial.name.removesuffix(PARTIAL_SUFFIX), epoch)
    if manifest is None or committed_at(partial.with_name(manifest.tag), epoch):
        return False
    return not check_files(partial, manifest, digests=False)


def _mend_latest(folder: Path, epoch: int) -> list[str]:
    """A crash between the rename and ``latest`` leaves DeepSpeed's pointer behind."""
    known = [item for item in scan_epoch(folder, epoch) if item.whole or proven(item)]
    usable = [item for item in known if not verify(item.path, digests=False, parts=True)]
    if not usable:
        return []
    tag = max(usable, key=lambda item: item.step).tag
    return [f"Pointed {folder.name}/{LATEST} at {tag}."] if point_latest(folder, tag) else []


def _sweep_staging(staging: Path, keep: set[str]) -> list[str]:
    said = []
    for tag in dict.fromkeys(path.name.removesuffix(SHEETS_SUFFIX) for path in folders(staging)):
        if not keep.isdisjoint({tag, tag_of(tag)}):
            continue
        lock = staging / f"{tag}.lock"
        with try_lock(lock) as held:
            if held:
                _drop_staged(staging / tag)
                lock.unlink(missing_ok=True)
                said.append(f"Deleted {staging.parent.name}/{STAGING}/{tag}: it never arrived whole.")
    return said


def _drop_staged(path: Path) -> None:
    """The notes go first: left behind without the bytes they would be believed of the next transfer's."""
    (path.parent / f"{path.name}.offer").unlink(missing_ok=True)
    for folder in (path.with_name(path.name + SHEETS_SUFFIX), path):
        if folder.is_dir():
            discard(folder)
