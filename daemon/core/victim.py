"""Who the primary was that went without a handover: its own last segment says it. Blocking."""

from __future__ import annotations

from pathlib import Path

from outlast.daemon.history import segments
from outlast.daemon.history.layout import FOLDER
from outlast.daemon.history.reading import UnreadableError
from outlast.daemon.history.rows import Spell


def last_heard_of(store: Path) -> Spell | None:
    """The running stay with the latest heartbeat among the newest segments sent here; None for none."""
    try:
        homes = [path for path in (store / FOLDER).iterdir() if path.is_dir()]
    except OSError:
        return None
    spells = [spell for home in homes for spell in _newest(home)]
    running = [spell for spell in spells if spell.ended is None]
    return max(running, key=lambda spell: (spell.heartbeat, spell.id), default=None)


def _newest(home: Path) -> tuple[Spell, ...]:
    for _, path in reversed(segments.listed(home)):
        try:
            return segments.read_segment(path).spells
        except UnreadableError:
            continue
    return ()
