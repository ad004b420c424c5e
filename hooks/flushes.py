"""The values of a flush on a rank: what was asked, how far it has come, and what to do at a boundary."""

from __future__ import annotations

from dataclasses import dataclass

from outlast.wire.messages import Failed, Saved

# The daemon gives up a flush it cannot finish; this bounds the wait for a daemon that says nothing more.
WAIT_AT_LEAST_S = 30.0
WAIT_AT_MOST_S = 60.0


@dataclass(frozen=True)
class Order:
    """A flush as the daemon asked for it. ``deadline`` is monotonic seconds, None where there is none."""

    id: str
    reason: str
    asked_at: float
    deadline: float | None
    hold: bool

    @property
    def patience(self) -> float:
        """Until when (monotonic seconds) to wait for the other ranks and the daemon's word."""
        left = WAIT_AT_MOST_S if self.deadline is None else self.deadline - self.asked_at
        return self.asked_at + min(max(left, WAIT_AT_LEAST_S), WAIT_AT_MOST_S)


@dataclass(frozen=True)
class Save:
    """Save now: every rank that got so far does so at the end of ``step``, if the ballot says so."""

    order: Order
    step: int


@dataclass(frozen=True)
class Leave:
    """The job has moved on: leave the training loop. ``reason`` is the daemon's."""

    reason: str


@dataclass
class OpenFlush:
    """A flush in progress: the step promised, the step agreed, the answer given and since when held."""

    order: Order
    at: int | None = None
    agreed: int | None = None
    answer: Saved | Failed | None = None
    held_since: float = 0.0


@dataclass
class Leaving:
    """The daemon sends this rank home: not before the end of ``at``, alone after ``until``."""

    reason: str
    at: int
    until: float
