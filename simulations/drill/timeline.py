"""The two daemons' records, read as one story that begins with the provider's word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outlast.daemon.history.reading import UnreadableError, read_file_events
from outlast.simulations.drill.nodes import Node

# What the story is told by, in the order of a planned handoff; other events are left out.
WORDS = {
    "hint_seen": "hint seen",
    "notice_seen": "notice seen",
    "notice_withdrawn": "notice withdrawn",
    "flush_asked": "flush asked",
    "step_agreed": "step agreed",
    "saved": "saved",
    "committed": "committed",
    "flush_failed": "flush failed",
    "ship_began": "shipping began",
    "shipped": "shipped",
    "verified": "verified",
    "handed_over": "handed over",
    "released": "released",
    "peer_warned": "standby warned",
    "taken_over": "taken over",
    "trainer_started": "trainer started",
    "first_step": "first step",
}
MOST = 10_000


@dataclass(frozen=True)
class Mark:
    """One event of one node. ``mono`` is seconds of the clock all processes of one boot share."""

    kind: str
    node: str
    mono: float
    episode: str = ""
    fields: dict[str, object] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        """A field, if it is there and a number."""
        value = self.fields.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def whole(self, name: str) -> int | None:
        """A field, if it is there and a whole number."""
        value = self.number(name)
        return int(value) if value is not None and value == int(value) else None


@dataclass(frozen=True)
class Story:
    """All marks of a drill in the order of time. ``zero``: the instant of the provider's word, 0 before it;
    ``zero_wall``: the same in UTC epoch seconds."""

    zero: float
    marks: tuple[Mark, ...]
    zero_wall: float = 0.0

    def at(self, mark: Mark) -> float:
        """Seconds since the provider's word."""
        return mark.mono - self.zero

    def at_wall(self, wall: float) -> float:
        """Seconds since the provider's word of an instant in UTC epoch seconds."""
        return wall - self.zero_wall

    def first(self, kind: str, node: str | None = None) -> Mark | None:
        """The first mark of this kind since the provider's word."""
        return next(iter(self.all(kind, node)), None)

    def all(self, kind: str, node: str | None = None) -> tuple[Mark, ...]:
        """Every mark of this kind since the provider's word."""
        return tuple(
            m for m in self.marks if m.kind == kind and node in (None, m.node) and m.mono >= self.zero
        )

    def told(self) -> tuple[Mark, ...]:
        """What is shown: from the provider's word on, events that say something to a reader."""
        return tuple(mark for mark in self.marks if mark.kind in WORDS and mark.mono >= self.zero)


def read_marks(nodes: Iterable[Node]) -> tuple[Mark, ...]:
    """What the nodes' histories hold by now, in the order of time. Blocking."""
    marks = [mark for node in nodes for mark in _read(node.name, node.history)]
    return tuple(sorted(marks, key=lambda mark: mark.mono))


def _read(name: str, history: Path) -> Sequence[Mark]:
    try:
        events = read_file_events(history, 0.0, MOST)
    except UnreadableError:
        return ()  # not made yet, or being made; whoever waits for an event looks again
    return [Mark(e.kind, name, e.mono, e.episode, e.fields) for e in events]
