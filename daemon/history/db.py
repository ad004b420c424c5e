"""The history of one node: one SQLite file, written by one daemon, readable by anyone at any time."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from outlast.daemon.history.ledger import Ledger
from outlast.providers.base import Clock


class History(Ledger):
    """Spells, notices, hints, losses, flushes, ships, restores, launches, prices and events.

    Calls block on the disk (use ``Recorder`` in a loop), never raise for the disk's sake, and are
    idempotent under the ids they are given. ``degraded`` says when the record is not on the disk.
    """

    @classmethod
    def open(cls, path: Path, clock: Clock) -> Self:
        """Open or make the file. What is no history of ours is renamed, and ``set_aside`` says so."""
        return cls(path, clock)
