"""What a receiver writes for its own daemon to read: the handover and the warning; and the fence.

The fence is the lowest epoch that is still accepted. It only grows: it is the highest epoch that was
committed here or that the job was handed over into.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outlast.daemon.checkpoint.place import DELETED_SUFFIX, STAGING, Step, no_step, write_atomically
from outlast.daemon.ship.protocol import IO, HandOver, ProtocolError, Warn, whole_number
from outlast.wire.manifest import MANIFEST_NAME, PARTIAL_SUFFIX, ManifestError, check_name
from outlast.wire.store import epochs, folders

HANDOVER_NAME = "handover.json"
WARNING_NAME = "warning.json"
_MAX_BYTES = 64 * 1024


class RefusedError(Exception):
    """A request is not carried out. ``in_step``: its bytes were all read, so the session can go on."""

    def __init__(self, code: str, because: str, *, in_step: bool = False) -> None:
        super().__init__(because)
        self.code = code
        self.in_step = in_step


@dataclass(frozen=True)
class Handover:
    """The sender gave the job up: ``epoch`` is the one to go on in. ``at`` is UTC epoch seconds."""

    epoch: int
    tag: str
    step: int
    from_epoch: int
    at: float


@dataclass(frozen=True)
class ProviderWarning:
    """What the sender last said of its provider. ``deadline_wall`` and ``at`` are UTC epoch seconds."""

    kind: str
    deadline_wall: float | None
    step: int
    epoch: int
    at: float


def fence(store: Path) -> int:
    """The lowest epoch accepted in ``store``; 0 where nothing was ever committed."""
    committed = next(
        (epoch for epoch, folder in epochs(store) if any(map(_was_committed, folders(folder)))), 0
    )
    handover = read_handover(store)
    return max(committed, handover.epoch if handover else 0)


def _was_committed(path: Path) -> bool:
    # Asked for every file that arrives, so nothing is parsed; a folder set aside still tells its epoch.
    unfinished = path.name.endswith((PARTIAL_SUFFIX, DELETED_SUFFIX)) or path.name == STAGING
    return not unfinished and (path / MANIFEST_NAME).is_file()


def write_handover(store: Path, request: HandOver, now: float, step: Step = no_step) -> int:
    """Record the handover durably and return the epoch to go on in."""
    epoch = max(request.epoch, request.current) + 1
    words = Handover(epoch, request.tag, request.step, request.epoch, now)
    record(store, words, step)
    return words.epoch


def record(store: Path, handover: Handover, step: Step = no_step) -> None:
    """Raise the fence to ``handover.epoch``, durably: by the sender's word, or by a takeover without it."""
    write_atomically(store / HANDOVER_NAME, _line(asdict(handover)), step)


def read_handover(store: Path) -> Handover | None:
    """The handover recorded in ``store``, if any. Raises RefusedError when it cannot be read."""
    body = _read(store / HANDOVER_NAME)
    if body is None:
        return None
    try:
        tag, at = check_name(body.get("tag"), "tag"), float(body.get("at", 0))
        return Handover(
            whole_number(body, "epoch"), tag, whole_number(body, "step"), whole_number(body, "from_epoch"), at
        )
    except (ProtocolError, ManifestError, TypeError, ValueError, OverflowError) as exc:
        raise RefusedError(IO, f"{HANDOVER_NAME} cannot be read: {exc}") from exc


def write_warning(store: Path, warn: Warn, now: float) -> None:
    """Record what the sender said of its provider, durably."""
    deadline = None if warn.seconds_left is None else now + warn.seconds_left
    words = ProviderWarning(warn.kind, deadline, warn.step, warn.epoch, now)
    write_atomically(store / WARNING_NAME, _line(asdict(words)))


def read_warning(store: Path) -> ProviderWarning | None:
    """The sender's last warning, if any. Raises RefusedError when it cannot be read."""
    body = _read(store / WARNING_NAME)
    if body is None:
        return None
    try:
        wall, at = body.get("deadline_wall"), float(body.get("at", 0))
        deadline = None if wall is None else float(wall)
        step, epoch = whole_number(body, "step"), whole_number(body, "epoch")
        return ProviderWarning(str(body.get("kind")), deadline, step, epoch, at)
    except (ProtocolError, TypeError, ValueError, OverflowError) as exc:
        raise RefusedError(IO, f"{WARNING_NAME} cannot be read: {exc}") from exc


def _line(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode() + b"\n"


def _read(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            body = json.loads(file.read(_MAX_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as exc:
        raise RefusedError(IO, f"{path.name} cannot be read: {exc}") from exc
    if not isinstance(body, dict):
        raise RefusedError(IO, f"{path.name} is not a JSON object")
    return body
