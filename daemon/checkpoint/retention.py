"""Retention: which committed checkpoints may go. The newest and its predecessor never do on a primary.

A receiver keeps as many replicas as its sender asks for, and always the newest.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from outlast.daemon.checkpoint.place import discard
from outlast.wire.store import Committed, proof_of, proven, scan, verify

Order = tuple[int, int]


def prune(store: Path, keep: int = 2, replicated: set[Order] | None = None) -> list[str]:
    """Delete committed checkpoints that are no longer needed; one sentence for each.

    Kept are the newest ``keep`` whole ones (never fewer than two), and everything not older than the newest
    ``(epoch, step)`` in ``replicated``: with nothing replicated nothing is deleted. A job without a peer
    passes its own checkpoints as replicated. Sizes are checked, digests are not; damaged folders stay. Of
    parts those count whose checkpoint is known to be whole; others go once they are older than that.
    """
    return _discard(spare(store, keep, replicated or set()), max(keep, 2))


def spare(store: Path, keep: int, replicated: set[Order]) -> list[Committed]:
    """The checkpoints that ``prune`` would delete, oldest last."""
    return _beyond(store, max(keep, 2), max(replicated)) if replicated else []


def prune_replicas(store: Path, keep: int, sure: Order, held: Collection[tuple[int, str]] = ()) -> list[str]:
    """Delete replicas beyond the newest ``keep`` whole ones (at least one); one sentence for each.

    ``sure`` is the ``(epoch, step)`` whose commit has just read or checked every byte: nothing goes that is
    not older, so whatever else is damaged here, one that verifies stays. ``held`` are epochs and tags that
    somebody counts on: they stay as well.
    """
    gone = [item for item in _beyond(store, max(keep, 1), sure) if (item.epoch, item.tag) not in held]
    return _discard(gone, max(keep, 1))


def _beyond(store: Path, keep: int, sure: Order) -> list[Committed]:
    found = [item for item in scan(store) if not verify(item.path, digests=False, parts=True)]
    usable = dict.fromkeys((item.epoch, item.step) for item in found if item.whole or proven(item))
    # One step may be here twice, as a universal checkpoint too: that is no predecessor.
    kept = list(usable)[:keep]
    return [item for item in found if (order := (item.epoch, item.step)) not in kept and order < sure]


def _discard(items: list[Committed], keep: int) -> list[str]:
    newer = f"{keep} newer ones are" if keep > 1 else "a newer one is"
    deleted = []
    for item in items:
        discard(item.path)
        proof_of(item).unlink(missing_ok=True)
        deleted.append(f"Deleted {item.folder.name}/{item.tag}: {newer} committed.")
    return deleted
