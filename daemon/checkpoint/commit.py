"""Commit: from the folder the ranks have saved to, to a checkpoint that counts.

The order of actions is the promise. Files are complete and on disk before the manifest names them, the
manifest is on disk before the folder gets its name; whatever a crash leaves is either finished by
``recover`` or was never a checkpoint.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from outlast.daemon.checkpoint.place import (
    Step,
    entries,
    fsync_folders,
    no_step,
    put_in_place,
    write_atomically,
)
from outlast.daemon.checkpoint.recovery import recover, sweep
from outlast.daemon.checkpoint.retention import prune
from outlast.wire import shards
from outlast.wire.manifest import (
    MANIFEST_NAME,
    PART_SUFFIX,
    PARTIAL_SUFFIX,
    Manifest,
    ManifestError,
    Part,
    check_name,
    check_path,
    parse,
)
from outlast.wire.messages import Layout
from outlast.wire.store import Committed, committed_at, epoch_folder, verify, walk

__all__ = ["CommitError", "CommitOrder", "commit", "prune", "recover", "sweep"]


class CommitError(Exception):
    """The saved files are not a checkpoint. ``path`` is the file at fault, relative to the tag, or empty."""

    def __init__(self, because: str, path: str = "") -> None:
        super().__init__(because)
        self.path = path


@dataclass(frozen=True)
class CommitOrder:
    """What is to be committed: the ranks have all said that ``tag`` is saved at ``step``.

    With ``part`` those are the ``ranks`` of this node, and what they saved is its part of the checkpoint.
    """

    job: str
    tag: str
    step: int
    epoch: int
    flush_id: str
    reason: str
    layout: Layout
    part: Part | None = None
    ranks: tuple[int, ...] = ()


def commit(store: Path, order: CommitOrder, created: float, *, step: Step = no_step) -> Committed:
    """Make ``<tag>.partial`` the committed checkpoint ``<tag>``; blocks for fsync and digests.

    Safe to repeat: a whole checkpoint of the same job, step and epoch under that name is returned as it is.
    Anything else under that name is set aside. Raises CommitError; ``created`` is UTC epoch seconds.
    """
    final = epoch_folder(store, order.epoch) / _checked(order)
    partial = final.with_name(final.name + PARTIAL_SUFFIX)
    done = _already(final, order)
    # The same step may have been saved anew after a restart, and the parts of two saves never go together.
    if done and (order.part is None or not partial.is_dir()):
        return done
    try:
        return _commit(partial, final, order, created, step)
    except OSError as exc:
        raise CommitError(f"{order.tag} could not be committed: {exc}") from exc


def _commit(partial: Path, final: Path, order: CommitOrder, created: float, step: Step) -> Committed:
    sizes = _saved_files(partial)
    _check_complete(sizes, order)
    step("checked")
    files = entries(partial, sizes)
    fsync_folders(partial)
    step("digested")
    manifest = Manifest(
        job=order.job,
        tag=order.tag,
        step=order.step,
        epoch=order.epoch,
        flush_id=order.flush_id,
        reason=order.reason,
        created=created,
        layout=order.layout,
        files=files,
        part=order.part,
    )
    write_atomically(partial / MANIFEST_NAME, _readable(manifest), step)
    step("manifest named")
    put_in_place(partial, final, step, latest=order.part is None)
    return Committed(final.parent, final.name, manifest)


def _readable(manifest: Manifest) -> bytes:
    """The manifest's bytes, once it is seen that who reads them takes them: not with too many files."""
    data = manifest.to_bytes()
    try:
        parse(data)
    except ManifestError as exc:
        raise CommitError(f"{manifest.tag} could not be committed: {exc}") from exc
    return data


def _checked(order: CommitOrder) -> str:
    try:
        check_name(order.job, "job")
        return check_name(order.tag, "tag")
    except ManifestError as exc:
        raise CommitError(str(exc)) from exc


def _already(final: Path, order: CommitOrder) -> Committed | None:
    found = committed_at(final, order.epoch)
    if found is None or (found.manifest.job, found.step) != (order.job, order.step):
        return None
    if found.manifest.part != order.part:
        return None
    return None if verify(final, parts=True) else found


def _saved_files(partial: Path) -> dict[str, int]:
    if partial.is_symlink() or not partial.is_dir():
        raise CommitError(f"there is no folder {partial.parent.name}/{partial.name}: nothing was saved")
    sizes = {}
    for name, info in walk(partial):
        if name == MANIFEST_NAME or name.endswith(PART_SUFFIX):
            continue  # left by a commit that was cut off; this one writes its own
        try:
            check_path(name)
        except ManifestError as exc:
            raise CommitError(str(exc), name) from exc
        if not stat.S_ISREG(info.st_mode):
            raise CommitError(f"{name} is not a regular file", name)
        if info.st_size == 0:
            raise CommitError(f"{name} is empty: the rank that writes it did not finish", name)
        sizes[name] = info.st_size
    return sizes


def _check_complete(sizes: dict[str, int], order: CommitOrder) -> None:
    if order.part is not None:  # whether the shards of all nodes are there is seen where they come together
        lacking = [name for rank in order.ranks if (name := shards.state_name(rank)) not in sizes]
    else:
        lacking = shards.expected(order.layout, set(sizes))
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise CommitError(f"{lacking[0]}{more} is missing: not every rank has saved {order.tag}", lacking[0])
