"""The board of live notices: what the provider's views add up to, and what survives a restart.

A deadline is fixed when a notice is first seen and can only move earlier. A notice that is missing from a
complete view has been withdrawn. Errors (``Unknown``) change nothing.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from outlast.daemon.core.facts import NoticeFact
from outlast.daemon.core.state import write_durably
from outlast.providers.base import Clock, Hint, Notice, View


@dataclass(frozen=True, slots=True)
class Live:
    """A notice as first seen. ``episode`` is its id and first sighting: names its flush, across restarts."""

    id: str
    episode: str
    action: str
    source: str
    first_seen_wall: float
    deadline: float
    deadline_wall: float
    boot_id: str

    @property
    def fact(self) -> NoticeFact:
        return NoticeFact(self.id, self.episode, self.action, self.deadline)


@dataclass(frozen=True, slots=True)
class Change:
    """What one view changed: each entry happens once."""

    appeared: tuple[Live, ...] = ()
    earlier: tuple[Live, ...] = ()
    withdrawn: tuple[Live, ...] = ()
    hints: tuple[Hint, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.appeared or self.earlier or self.withdrawn or self.hints)


class Board:
    """Applies views; ``urgent`` is the notice with the earliest deadline."""

    def __init__(self, clock: Clock, boot_id: str, *, hints: bool = True) -> None:
        self._clock = clock
        self._boot_id = boot_id
        self._hints = hints
        self.live: dict[str, Live] = {}
        self._seen_hints: set[str] = set()

    @property
    def urgent(self) -> Live | None:
        return min(self.live.values(), key=lambda n: n.deadline, default=None)

    def apply(self, view: View) -> Change:
        """Take one complete view and say what it changed."""
        # One id twice in a view is one notice, with the deadline that comes first.
        shown = {n.id: n for n in sorted(view.notices, key=lambda n: n.deadline, reverse=True)}
        appeared = tuple(self._new(n) for n in shown.values() if n.id not in self.live)
        earlier = tuple(self._moved(n) for n in shown.values() if self._is_earlier(n))
        withdrawn = tuple(old for key, old in self.live.items() if key not in shown)
        for gone in withdrawn:
            del self.live[gone.id]
        for item in (*appeared, *earlier):
            self.live[item.id] = item
        return Change(appeared, earlier, withdrawn, self._fresh_hints(view))

    def _new(self, notice: Notice) -> Live:
        wall = self._clock.wall()
        return Live(
            id=notice.id,
            episode=f"{notice.id}@{wall:.3f}",
            action=notice.action.value,
            source=notice.source,
            first_seen_wall=wall,
            deadline=notice.deadline,
            deadline_wall=wall + notice.deadline - self._clock.monotonic(),
            boot_id=self._boot_id,
        )

    def _is_earlier(self, notice: Notice) -> bool:
        old = self.live.get(notice.id)
        # Half a second of slack: providers give whole seconds, and wall and monotonic clocks drift apart.
        return old is not None and notice.deadline < old.deadline - 0.5

    def _moved(self, notice: Notice) -> Live:
        old = self.live[notice.id]
        shift = old.deadline - notice.deadline
        return replace(old, deadline=notice.deadline, deadline_wall=old.deadline_wall - shift)

    def _fresh_hints(self, view: View) -> tuple[Hint, ...]:
        if not self._hints:
            return ()
        fresh = tuple(h for h in view.hints if h.id not in self._seen_hints)
        # A hint that vanished may come back later as news.
        self._seen_hints = {h.id for h in view.hints}
        return fresh

    # ---- across restarts

    def dump(self) -> bytes:
        """The live notices, for the next life."""
        return json.dumps([asdict(n) for n in self.live.values()]).encode()

    def restore(self, data: bytes) -> None:
        """Take up what the previous life left; after a reboot the deadline comes from the wall clock.

        Raises ValueError, TypeError or RecursionError for what is not a board's dump; then nothing is taken.
        """
        for live in [_live(body) for body in json.loads(data)]:
            self.live[live.id] = live if live.boot_id == self._boot_id else self._after_boot(live)

    def _after_boot(self, live: Live) -> Live:
        left = live.deadline_wall - self._clock.wall()
        return replace(live, deadline=self._clock.monotonic() + left, boot_id=self._boot_id)


def _live(body: Any) -> Live:
    live = Live(**body)
    times = (live.first_seen_wall, live.deadline, live.deadline_wall)
    words = (live.id, live.episode, live.action, live.source, live.boot_id)
    if not all(isinstance(word, str) for word in words) or not all(math.isfinite(t) for t in times):
        raise ValueError("not a notice")
    return live


def load(board: Board, path: Path) -> None:
    """Restore a board from its file. A missing file is none; a damaged one is set aside."""
    try:
        board.restore(path.read_bytes())
    except FileNotFoundError:
        return
    except (ValueError, TypeError, RecursionError):
        path.replace(path.with_suffix(".damaged"))


def save(board: Board, path: Path) -> None:
    """Durable when it returns."""
    write_durably(path, board.dump())
