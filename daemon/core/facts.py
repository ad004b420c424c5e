"""What is known at one instant about one job, and what can be done about it: plain frozen values.

All times are monotonic seconds of the injected clock unless a name ends in ``_wall`` (UTC epoch seconds).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from outlast.daemon.core.deadline import Verdict


class Role(StrEnum):
    """What this node is to the job. ``FENCED``: it was primary, and a higher epoch exists elsewhere."""

    PRIMARY = "primary"
    STANDBY = "standby"
    FENCED = "fenced"


class Cause(StrEnum):
    """Why a flush is asked for. A notice outranks all else. ``NODE``: another node of the job asked."""

    NOTICE = "notice"
    NODE = "node"
    SIGNAL = "signal"
    OPERATOR = "operator"
    HINT = "hint"
    INTERVAL = "interval"


@dataclass(frozen=True, slots=True)
class RankFact:
    """One connected rank. ``at`` to ``saved_step`` speak of the flush in progress only.

    ``saved`` is the tag and ``saved_step`` the step whose end it holds: it is the rank's word that counts,
    since a flush that outlives a daemon may have been agreed upon twice.
    """

    rank: int
    pid: int
    step: int
    at: int | None = None
    saved: str | None = None
    failed: str | None = None
    saved_step: int | None = None


@dataclass(frozen=True, slots=True)
class NoticeFact:
    """The most urgent live notice. ``episode`` names this sighting: a later one has another episode."""

    id: str
    episode: str
    action: str
    deadline: float


@dataclass(frozen=True, slots=True)
class FlushFact:
    """The flush in progress. ``give_up_at``: when waiting for its ranks ends; ``deadline``: the notice's."""

    id: str
    cause: Cause
    asked_at: float
    give_up_at: float
    hold: bool
    agreed: int | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """A flush that somebody wants and that has not been asked for yet."""

    id: str
    cause: Cause
    reason: str


@dataclass(frozen=True, slots=True)
class Place:
    """A committed checkpoint, here or at the peer. ``created``: UTC epoch seconds, where known."""

    epoch: int
    tag: str
    step: int
    flush_id: str = ""
    size: int = 0
    created: float | None = field(default=None, compare=False)

    @property
    def order(self) -> tuple[int, int]:
        """Newer is greater."""
        return (self.epoch, self.step)


@dataclass(frozen=True, slots=True)
class PeerFact:
    """The peer as last heard. ``reachable`` None: not tried yet. ``fence``: lowest epoch it accepts.

    ``waiting``: the nodes whose parts it lacks, where this node's part is there.
    """

    reachable: bool | None = None
    because: str = ""
    newest: Place | None = None
    fence: int = 0
    retry_at: float = 0.0
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the primary's plan looks at. ``given_up`` holds ids of flushes that will not come.

    ``incomplete_since``: when a rank was first missed; None while all are connected. ``flush_s``: from the
    request of a flush to its commit. ``flush_bytes``: what the last whole transfer had to send, and
    ``early_bytes`` how much of that had left before the commit; ``unsent``: what the transfer of ``shipping``
    still has to send. Of several ``nodes`` all counts of ranks are this node's.
    """

    now: float
    epoch: int
    role: Role = Role.PRIMARY
    world: int = 0
    ranks: tuple[RankFact, ...] = ()
    notice: NoticeFact | None = None
    wishes: tuple[Wish, ...] = ()
    flush: FlushFact | None = None
    committing: bool = False
    commit_failed: str | None = None
    newest: Place | None = None
    peer: PeerFact | None = None
    shipping: Place | None = None
    handing_over: bool = False
    given_up: frozenset[str] = frozenset()
    incomplete_since: float | None = None
    held: bool = False
    can_stand_by: bool = False
    flush_s: float | None = None
    ship_bytes_s: float | None = None
    flush_bytes: int | None = None
    early_bytes: int = 0
    unsent: int | None = None
    nodes: int = 1

    @property
    def complete(self) -> bool:
        """All ranks of the job that train on this node are connected."""
        return self.world > 0 and len(self.ranks) == self.world


# ---- actions


@dataclass(frozen=True, slots=True)
class AskFlush:
    """Send Flush to every rank."""

    id: str
    cause: Cause
    reason: str
    give_up_at: float
    deadline: float | None
    hold: bool


@dataclass(frozen=True, slots=True)
class SayAgree:
    """Send Agree to every rank."""

    id: str
    step: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the flush without a checkpoint; the last committed one counts."""

    id: str
    because: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the tag all ranks have saved."""

    flush_id: str
    tag: str
    step: int


@dataclass(frozen=True, slots=True)
class Ship:
    """Send a committed checkpoint to the peer."""

    place: Place


@dataclass(frozen=True, slots=True)
class StopShip:
    """Cut a transfer that a newer checkpoint has overtaken."""

    place: Place


@dataclass(frozen=True, slots=True)
class HandOver:
    """Give the job to the peer at this checkpoint."""

    place: Place


@dataclass(frozen=True, slots=True)
class Release:
    """Let held ranks train on."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fence:
    """A higher epoch exists: stop the trainer here and commit nothing more."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StandDownAll:
    """Tell every rank to leave: the job lives elsewhere."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retire:
    """The trainer is gone: wait as a standby for the job to come back."""


Action = (
    Retire
    | AskFlush
    | SayAgree
    | GiveUp
    | Commit
    | Ship
    | StopShip
    | HandOver
    | Release
    | Fence
    | StandDownAll
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now, and the one sentence of why. ``verdict``: the deadline plan that a notice makes."""

    actions: tuple[Action, ...]
    because: str
    verdict: Verdict | None = None
