"""What the core tells the history: a narrow face, so that the record can fail without the core noticing."""

from __future__ import annotations

from typing import Protocol

from outlast.daemon.core.notices import Live
from outlast.daemon.history.rows import FlushStep, RestoreStep, ShipStep, Spell
from outlast.providers.base import Hint, Identity


class Record(Protocol):
    """Never raises and never waits: what cannot be written now is written later or counted as lost."""

    def event(self, kind: str, job: str = "", episode: str = "", **fields: object) -> None:
        """One line of the timeline."""
        ...

    def flush(self, job: str, flush_id: str, what: FlushStep, **fields: object) -> None:
        """A flush was asked, agreed, saved, committed or failed."""
        ...

    def ship(self, job: str, epoch: int, tag: str, peer: str, what: ShipStep, **fields: object) -> None:
        """A transfer began, shipped, verified or failed."""
        ...

    def restore(self, job: str, restore_id: str, what: RestoreStep, **fields: object) -> None:
        """A restore began (epoch, tag, place), came to its first step, or failed (seconds, step)."""
        ...

    def lost(self, victim: Spell) -> None:
        """Another node's stay ended without a handover, now, as far as can be told from here."""
        ...

    def hint(self, hint: Hint) -> None: ...

    async def identified(self, identity: Identity) -> None:
        """Where this node is: its spell begins, or goes on."""
        ...

    def notice_seen(self, live: Live, *, seconds_left: float) -> None: ...

    def notice_known(self, live: Live) -> None:
        """A notice of an earlier life, which may have ended before it was written: still one notice."""
        ...

    def notice_withdrawn(self, live: Live) -> None: ...
