"""Notices and hints as they were first seen: one row each, however often they are polled."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from outlast.daemon.history.deadlines import Deadline, settle
from outlast.daemon.history.rows import Moment, OpenNotice
from outlast.daemon.history.spells import Spells
from outlast.providers.base import Clock, Hint, Notice

_OPEN = (
    "SELECT id, action, source, first_seen, deadline_mono, deadline, boot_id FROM notices"
    " WHERE spell = ? AND withdrawn IS NULL"
)


class Notices(Spells):
    """Deadlines survive a restart of the daemon; a withdrawn notice that comes back is a new episode."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock)
        # What this process knows already: polls cost no disk, and a failing disk loses no deadline.
        self._deadlines: dict[tuple[int, str], Deadline] = {}

    def notice_seen(
        self, spell: int, notice: Notice, deadline_wall: float, boot_id: str, drill: bool = False
    ) -> float:
        """Record a sighting and return the monotonic deadline to go by.

        The first sighting fixes it; it may move earlier, never later, and holds even while the disk fails.
        """
        now = self._now()
        key = (spell, notice.id)
        known = self._deadlines.get(key) or self._stored(spell, notice.id)
        held = settle(known, Deadline(notice.deadline, deadline_wall, boot_id), now)
        if held != self._deadlines.get(key):
            self._write(lambda db: _sighted(db, spell, notice, held, now, drill))
            self._deadlines[key] = held
        return held.mono

    def notice_withdrawn(self, spell: int, notice_id: str) -> None:
        """The notice vanished while the node lives on; it counts as withdrawn, not as an interruption."""
        now = self._now()
        self._deadlines.pop((spell, notice_id), None)
        self._write(
            lambda db: db.execute(
                "UPDATE notices SET withdrawn = max(first_seen, ?)"
                " WHERE spell = ? AND id = ? AND withdrawn IS NULL",
                (now.wall, spell, notice_id),
            )
        )

    def open_notices(self, spell: int) -> list[OpenNotice]:
        """The notices of this spell that were not withdrawn, the earliest deadline first."""
        none: list[tuple[Any, ...]] = []
        rows = self._read(lambda db: db.execute(_OPEN, (spell,)).fetchall(), none)
        return sorted((OpenNotice(*row) for row in rows), key=lambda notice: notice.deadline_wall)

    def hint_seen(self, spell: int, hint: Hint) -> None:
        """Record a hint once, at its first sighting."""
        now = self._now()
        self._write(
            lambda db: db.execute(
                "INSERT OR IGNORE INTO hints (spell, id, kind, source, detail, first_seen)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (spell, hint.id, hint.kind, hint.source, hint.detail, now.wall),
            )
        )

    def _stored(self, spell: int, notice_id: str) -> Deadline | None:
        rows = self.open_notices(spell)
        return next(
            (Deadline(n.deadline, n.deadline_wall, n.boot_id) for n in rows if n.id == notice_id), None
        )


def _sighted(
    db: sqlite3.Connection, spell: int, notice: Notice, held: Deadline, now: Moment, drill: bool
) -> None:
    last, withdrawn = db.execute(
        "SELECT coalesce(max(episode), 0), coalesce(sum(withdrawn IS NOT NULL), 0) FROM notices"
        " WHERE spell = ? AND id = ?",
        (spell, notice.id),
    ).fetchone()
    episode = last + 1 if last == withdrawn else last
    db.execute(
        "INSERT INTO notices (spell, id, episode, source, action, detail, first_seen, deadline,"
        " deadline_mono, boot_id, drill) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
        " max(?, coalesce((SELECT drill FROM spells WHERE id = ?), 0)))"
        " ON CONFLICT (spell, id, episode) DO UPDATE SET deadline = excluded.deadline,"
        " deadline_mono = excluded.deadline_mono, boot_id = excluded.boot_id, action = excluded.action",
        (
            *(spell, notice.id, episode, notice.source, notice.action.value, notice.detail, now.wall),
            *(held.wall, held.mono, held.boot_id, int(drill), spell),
        ),
    )
