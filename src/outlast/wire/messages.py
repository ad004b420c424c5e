"""The trainer protocol: newline-delimited JSON over a Unix stream socket, one connection a rank.

The hook speaks first with :class:`Hello`; the daemon answers with :class:`Resume`. Every message is one
line of at most ``MAX_LINE`` bytes, an object with ``"type"``; unknown keys are ignored (additive protocol),
unknown types, missing keys and wrong types raise :class:`WireError`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, get_args, get_type_hints

PROTOCOL = 1
MAX_LINE = 64 * 1024


class WireError(ValueError):
    """A line from the other side is not a message of this protocol."""


@dataclass(frozen=True)
class Layout:
    """How the job is spread over ranks: world size, parallel sizes, ZeRO stage (0 to 3)."""

    world: int
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero_stage: int = 0


# ---- hook to daemon


@dataclass(frozen=True)
class Hello:
    """First line of a connection: who this rank is. ``step`` is the last step completed."""

    type: ClassVar[str] = "hello"
    job: str
    rank: int
    pid: int
    checkpoints: str
    layout: Layout
    step: int = 0
    epoch: int = 0  # the epoch this process already trains in; 0 before the first Resume
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class Progress:
    """At most once a second: the last completed step and how long one takes, in seconds.

    ``pause_s``: send no bulk for so long, 0 for go on; None, as in most, says nothing of it.
    """

    type: ClassVar[str] = "progress"
    step: int
    step_s: float = 0.0
    loss: float | None = None
    grad_norm: float | None = None
    pause_s: float | None = None


@dataclass(frozen=True)
class Ask:
    """The rank wants a flush of its own accord: it was sent a signal."""

    type: ClassVar[str] = "ask"
    reason: str


@dataclass(frozen=True)
class At:
    """Answer to Flush: this rank will not pass the end of ``step`` before it hears Agree.

    On several nodes the flush may have been asked for on another one: then the other fields say, as in Flush,
    what was asked, and the ranks agree among themselves.
    """

    type: ClassVar[str] = "at"
    id: str
    step: int
    reason: str = ""
    seconds_left: float | None = None
    hold: bool = False


@dataclass(frozen=True)
class Saved:
    """This rank's part of the checkpoint is written to ``<checkpoints>/epoch-N/<tag>.partial``.

    Sent again after a reconnect until the daemon has answered, so a daemon killed in between can commit.
    """

    type: ClassVar[str] = "saved"
    id: str
    step: int
    tag: str
    seconds: float
    hold: bool = False  # the rank waits at this step's end, as Flush.hold asked


@dataclass(frozen=True)
class Failed:
    """This rank could not save; the last committed checkpoint counts."""

    type: ClassVar[str] = "failed"
    id: str
    reason: str


@dataclass(frozen=True)
class Done:
    """Training ended by itself after ``step``; the connection closes."""

    type: ClassVar[str] = "done"
    step: int


# ---- daemon to hook


@dataclass(frozen=True)
class Resume:
    """Answer to Hello. Save under ``<checkpoints>/epoch-<epoch>``; load ``folder/tag`` if given.

    ``folder`` is an epoch folder, so that DeepSpeed's ``load_checkpoint(folder, tag)`` finds the tag.
    """

    type: ClassVar[str] = "resume"
    epoch: int
    folder: str | None = None
    tag: str | None = None
    step: int = 0


@dataclass(frozen=True)
class Park:
    """Answer to Hello on a standby: stay initialised and wait; Resume or StandDown follows."""

    type: ClassVar[str] = "park"
    reason: str


@dataclass(frozen=True)
class Flush:
    """Save one checkpoint at one agreed step. ``hold``: then wait at the boundary for StandDown."""

    type: ClassVar[str] = "flush"
    id: str
    reason: str
    seconds_left: float | None = None
    hold: bool = False


@dataclass(frozen=True)
class Agree:
    """All ranks of the job have answered: save at the end of ``step``."""

    type: ClassVar[str] = "agree"
    id: str
    step: int


@dataclass(frozen=True)
class StandDown:
    """A flush is over, or the job has moved on. ``then`` is ``train`` (go on) or ``exit``.

    ``committed`` says that the checkpoint of flush ``id`` is safe in this node's folder. ``refused``: this
    run cannot go on here, and a person has to do what ``reason`` says.
    """

    type: ClassVar[str] = "stand_down"
    reason: str
    then: str
    id: str = ""
    committed: bool = False
    refused: bool = False


FromHook = Hello | Progress | Ask | At | Saved | Failed | Done
ToHook = Resume | Park | Flush | Agree | StandDown
Message = FromHook | ToHook

_FROM_HOOK: dict[str, Any] = {c.type: c for c in get_args(FromHook)}
_TO_HOOK: dict[str, Any] = {c.type: c for c in get_args(ToHook)}


def encode(message: Message) -> bytes:
    """One line, newline included."""
    body = {"type": message.type, **asdict(message)}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def decode_from_hook(line: bytes) -> FromHook:
    """Parse a line a trainer sent. Raises WireError."""
    message: FromHook = _decode(line, _FROM_HOOK)
    return message


def decode_to_hook(line: bytes) -> ToHook:
    """Parse a line the daemon sent. Raises WireError."""
    message: ToHook = _decode(line, _TO_HOOK)
    return message


def _decode(line: bytes, known: dict[str, Any]) -> Any:
    if len(line) > MAX_LINE:
        raise WireError(f"line of {len(line)} bytes; at most {MAX_LINE} are allowed")
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise WireError(f"not JSON: {exc}") from exc
    if not isinstance(body, dict):
        raise WireError("not a JSON object")
    cls = known.get(str(body.get("type")))
    if cls is None:
        raise WireError(f"unknown message type {body.get('type')!r}")
    return _build(cls, body)


def _build(cls: Any, body: dict[str, Any]) -> Any:
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for item in fields(cls):
        if item.name in body:
            values[item.name] = _value(cls, item.name, hints[item.name], body[item.name])
    try:
        return cls(**values)
    except TypeError as exc:
        raise WireError(f"{getattr(cls, 'type', cls.__name__)}: {exc}") from exc


def _value(cls: Any, name: str, hint: Any, value: Any) -> Any:
    if hint is Layout:
        if not isinstance(value, dict):
            raise WireError(f"{cls.type}: {name} is not an object")
        return _build(Layout, value)
    allowed = get_args(hint) or (hint,)
    if isinstance(value, bool) and bool not in allowed:
        raise WireError(f"{name} must not be a boolean")
    if float in allowed and isinstance(value, int):
        return _as_float(name, value)
    if isinstance(value, allowed):
        return value
    raise WireError(f"{name} is {type(value).__name__}")


def _as_float(name: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError as exc:
        raise WireError(f"{name} is too large") from exc
