"""The values that leave the history. Times are UTC epoch seconds, durations monotonic seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Cause = Literal[
    "running",
    "interruption",
    "silent-loss",
    "outbid",
    "user-stop",
    "job-done",
    "failover",
    "max-life",
    "host",
]
FlushStep = Literal["asked", "agreed", "saved", "committed", "failed"]
ShipStep = Literal["began", "shipped", "verified", "done", "failed"]
RestoreStep = Literal["began", "stepped", "failed"]
Seer = Literal["victim", "peer"]
PriceKind = Literal["spot", "min_bid", "on_demand"]

# The causes that say the provider took the node; all others only end the time at risk.
TAKEN: frozenset[str] = frozenset({"interruption", "silent-loss", "outbid"})


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on both clocks."""

    wall: float
    mono: float


@dataclass(frozen=True, slots=True)
class Degraded:
    """The history is not being written as it should be; ``because`` is one sentence with what to do."""

    because: str


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """What capacity is bought from. ``zone`` is the zone id where the provider has one."""

    provider: str
    region: str
    zone: str
    instance_type: str


@dataclass(frozen=True, slots=True)
class Spell:
    """One continuous stay of one instance. ``alive_s`` is the time at risk, up to the last heartbeat.

    ``up_s`` is how long the machine had been up when the stay was first observed; None where not known.
    """

    id: int
    pool: Pool
    instance_id: str
    node: str
    boot_id: str
    drill: bool
    began: float
    heartbeat: float
    alive_s: float
    ended: float | None
    cause: str
    up_s: float | None = None

    @property
    def victim(self) -> str:
        """What a peer knows this instance by."""
        return self.instance_id or self.node


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """One notice of one spell; ``episode`` tells apart the same notice withdrawn and given again."""

    spell: int
    id: str
    episode: int
    action: str
    source: str
    first_seen: float
    deadline: float
    withdrawn: float | None
    drill: bool


@dataclass(frozen=True, slots=True)
class OpenNotice:
    """A notice that was not withdrawn. ``deadline`` is monotonic seconds of ``boot_id``'s boot."""

    id: str
    action: str
    source: str
    first_seen: float
    deadline: float
    deadline_wall: float
    boot_id: str


@dataclass(frozen=True, slots=True)
class HintRow:
    """One hint of one spell."""

    spell: int
    id: str
    kind: str
    source: str
    first_seen: float


@dataclass(frozen=True, slots=True)
class LossRow:
    """A node found gone: by itself at its next start (``victim``) or by its peer."""

    pool: Pool
    victim: str
    seen_by: str
    at: float
    drill: bool


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the timeline. ``mono`` orders events of one boot; ``fields`` are JSON values."""

    id: int
    wall: float
    mono: float
    job: str
    kind: str
    episode: str
    fields: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians of a job's latest flushes (seconds) and ships (bytes a second); None before the first."""

    flush_s: float | None
    ship_bytes_s: float | None


@dataclass(frozen=True, slots=True)
class FlushRow:
    """One flush: when it came to each step (UTC), and ``seconds`` from the request to the commit."""

    job: str
    id: str
    boot_id: str = ""
    reason: str | None = None
    asked: float | None = None
    asked_mono: float | None = None
    agreed: float | None = None
    saved: float | None = None
    committed: float | None = None
    failed: float | None = None
    seconds: float | None = None
    step: int | None = None
    tag: str | None = None
    bytes: int | None = None
    outcome: str | None = None
    because: str | None = None


@dataclass(frozen=True, slots=True)
class ShipRow:
    """One transfer of one checkpoint to one peer, its latest attempt. ``bytes`` were really sent.

    ``seconds`` is what they take on the way; 0 where that was not measured, as for those of an early start.
    """

    job: str
    epoch: int
    tag: str
    peer: str
    boot_id: str = ""
    began: float | None = None
    began_mono: float | None = None
    ended: float | None = None
    seconds: float | None = None
    bytes: int | None = None
    outcome: str | None = None
    because: str | None = None


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """One attempt to get ``asked`` instances; ``got`` of them came. ``id`` is the caller's, or made up."""

    id: str
    pool: Pool
    at: float
    asked: int
    got: int
    by: str = ""


@dataclass(frozen=True, slots=True)
class PriceRow:
    """What an instance-hour costs from ``at`` on, millionths of a US dollar for the whole instance."""

    pool: Pool
    kind: str
    at: float
    micro_usd: int


@dataclass(frozen=True, slots=True)
class RestoreRow:
    """One return to training from a committed checkpoint.

    ``place`` says whose store it came from: "own", or "replica" after a takeover. ``seconds`` are monotonic,
    from the takeover, or from the trainer's first word after a gap, to the first new step. ``outcome`` is
    "done", "failed", or None while it goes on.
    """

    job: str
    id: str
    epoch: int
    tag: str
    place: str
    began: float
    seconds: float | None = None
    step: int | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """All of one or several files that counting needs, and what was measured beside."""

    spells: tuple[Spell, ...] = ()
    notices: tuple[NoticeRow, ...] = ()
    hints: tuple[HintRow, ...] = ()
    losses: tuple[LossRow, ...] = ()
    launches: tuple[LaunchRow, ...] = ()
    prices: tuple[PriceRow, ...] = ()
    flushes: tuple[FlushRow, ...] = ()
    ships: tuple[ShipRow, ...] = ()
    restores: tuple[RestoreRow, ...] = ()
