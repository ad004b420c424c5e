"""Retention: which committed checkpoints may go. The newest and its predecessor never do."""

from __future__ import annotations

from pathlib import Path

from outlast.daemon.checkpoint.place import discard
from outlast.wire.store import Committed, scan, verify


def prune(store: Path, keep: int = 2, replicated: set[tuple[int, int]] | None = None) -> list[str]:
    """Delete committed checkpoints that are no longer needed; one sentence for each.

    Kept are the newest ``keep`` whole ones (never fewer than two), and everything not older than the newest
    ``(epoch, step)`` in ``replicated``: with nothing replicated nothing is deleted. A job without a peer
    passes its own checkpoints as replicated. Sizes are checked, digests are not; damaged folders stay.
    """
    deleted = []
    for item in spare(store, keep, replicated or set()):
        discard(item.path)
        deleted.append(f"Deleted {item.folder.name}/{item.tag}: {max(keep, 2)} newer ones are committed.")
    return deleted


def spare(store: Path, keep: int, replicated: set[tuple[int, int]]) -> list[Committed]:
    """The checkpoints that ``prune`` would delete, oldest last."""
    whole = [item for item in scan(store) if not verify(item.path, digests=False)]
    if not replicated:
        return []
    newest = max(replicated)
    return [item for item in whole[max(keep, 2) :] if (item.epoch, item.step) < newest]
