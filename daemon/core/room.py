"""Is there room for the next checkpoints? Decided from the bytes and files that a file system has left."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Fewer checkpoints than this that still fit are worth a warning, and so is a smaller share of the inodes.
FEW = 2
FEW_FILES = 0.05


class State(StrEnum):
    """``LOW`` is a warning; at ``FULL`` the next checkpoint does not fit."""

    OK = "ok"
    LOW = "low"
    FULL = "full"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Size:
    """What one more takes: bytes on the disk, and files with their folders."""

    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Spot:
    """A folder that is written to. ``kind`` is ``checkpoints``, ``replicas`` or ``state`` (of no job)."""

    kind: str
    job: str
    path: str


@dataclass(frozen=True, slots=True)
class RoomFacts:
    """What is known of a folder's file system. ``all_files`` 0: it counts none. ``need`` None: not known yet.

    ``trouble`` says why nothing could be asked.
    """

    spot: Spot
    free_bytes: int = 0
    free_files: int = 0
    all_files: int = 0
    need: Size | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Room:
    """The verdict. ``fits``: how many more do, None if not known. ``free_files`` None: none are counted."""

    spot: Spot
    state: State
    because: str
    fits: int | None = None
    free_bytes: int | None = None
    free_files: int | None = None
    need: Size | None = None


def plan_room(facts: RoomFacts) -> Room:
    """How much room there is, and a sentence of why and what to do. Same facts, same verdict."""
    spot, need = facts.spot, facts.need
    counted = facts.free_files if facts.all_files else None
    if facts.trouble:
        return Room(spot, State.UNKNOWN, f"{spot.path} cannot be looked at: {facts.trouble}", need=need)
    fits, ends = _fits(facts)
    state, because = _judge(facts, fits, ends)
    return Room(spot, state, because, fits, facts.free_bytes, counted, need)


def _fits(facts: RoomFacts) -> tuple[int | None, str]:
    """How many more fit, and what ends first."""
    if facts.need is None:
        return None, "bytes"
    by_bytes = facts.free_bytes // max(1, facts.need.bytes)
    if not facts.all_files:
        return by_bytes, "bytes"
    by_files = facts.free_files // max(1, facts.need.files)
    return (by_files, "inodes") if by_files < by_bytes else (by_bytes, "bytes")


def _judge(facts: RoomFacts, fits: int | None, ends: str) -> tuple[State, str]:
    if fits is None:
        empty = facts.free_bytes == 0 or (facts.all_files and facts.free_files == 0)
        if empty:
            return State.FULL, f"{facts.spot.path} is full; {_advice(facts)}"
    elif fits < 1:
        return State.FULL, f"no room for {_what(facts)}: {_figures(facts, ends)}; {_advice(facts)}"
    elif fits < FEW:
        return (
            State.LOW,
            f"little room is left after {_what(facts)}: {_figures(facts, ends)}; {_advice(facts)}",
        )
    if facts.all_files and facts.free_files < FEW_FILES * facts.all_files:
        left = f"{facts.free_files} of {facts.all_files} inodes are left in {facts.spot.path}"
        return State.LOW, f"{left}; {_advice(facts)}"
    counted = fits is not None and facts.spot.job
    return State.OK, f"room for {fits} more checkpoints" if counted else "room enough so far"


def _what(facts: RoomFacts) -> str:
    return "the next checkpoint" if facts.spot.job else "the daemon's own records"


def _figures(facts: RoomFacts, ends: str) -> str:
    assert facts.need is not None
    need, free = (
        (facts.need.bytes, facts.free_bytes) if ends == "bytes" else (facts.need.files, facts.free_files)
    )
    return f"it takes {need} {ends}, {free} are free in {facts.spot.path}"


def _advice(facts: RoomFacts) -> str:
    if facts.spot.kind == "replicas":
        return "delete what is not Outlast's there, enlarge it, or let the sender keep fewer (peer.keep)"
    return "delete what is not Outlast's there, or enlarge it"
