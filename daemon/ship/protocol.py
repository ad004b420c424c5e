"""The peer protocol: newline-delimited JSON over one SSH channel, parsed into values on both sides.

Both sides may be hostile. Requests and answers are bounded lines; unknown keys are ignored, everything else
that does not fit raises ProtocolError. Of requests ``chunk`` and ``stats`` are followed by raw bytes, of
answers that to ``fetch``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from outlast.daemon.checkpoint.parts import Open
from outlast.daemon.history.layout import MOST_BYTES, MOST_SEQ
from outlast.wire.digests import CHUNK, chunks_in
from outlast.wire.manifest import (
    MAX_BYTES,
    MAX_FILES,
    MAX_NUMBER,
    MAX_SIZE,
    MAX_TEXT,
    MOST_NODES,
    Manifest,
    ManifestError,
    check_name,
    check_node,
    check_path,
    check_staged,
    from_dict,
)

MAX_LINE: Final = MAX_BYTES + 1024
MAX_ANSWER: Final = 16 * 1024 * 1024
# As many digests as one answer holds.
MOST_DIGESTS: Final = 65_536
BULK_COMMAND: Final = "outlast-rsync"
# As many bytes of a file as one answer to ``fetch`` carries, and as many places as one to ``list`` names.
MOST_FETCH: Final = 4 * CHUNK
MOST_PLACES: Final = 64
# Replicas that stay at the receiver where the sender does not say, and the most it may ask for.
KEEP: Final = 2
MOST_KEEP: Final = 1000
# Checkpoints that lack parts, in one answer.
MOST_OPEN: Final = 1000

FENCED: Final = "fenced"
NO_SPACE: Final = "no_space"
DAMAGED: Final = "damaged"
BAD_REQUEST: Final = "bad_request"
WRONG_JOB: Final = "wrong_job"
IO: Final = "io"
CODES: Final = frozenset({FENCED, NO_SPACE, DAMAGED, BAD_REQUEST, WRONG_JOB, IO})
_SHA256 = re.compile(r"[0-9a-f]{64}")
KINDS: Final = frozenset({"hint", "notice", "withdrawn"})


class ProtocolError(ValueError):
    """A line is not of this protocol, or lies outside its bounds."""


@dataclass(frozen=True)
class State:
    """Ask for the fence and the newest committed checkpoint."""


@dataclass(frozen=True)
class Offer:
    """Ask which files of a checkpoint are wanted."""

    manifest: Manifest


@dataclass(frozen=True)
class Chunk:
    """``size`` raw bytes of one file follow: its chunk with this index, of ``digests.CHUNK`` bytes.

    Only a file's last chunk is shorter. It may come before the checkpoint is offered. ``sha256`` may be
    empty: SSH lets no altered byte through, and what the receiver makes of the bytes is held against the
    manifest in any case.
    """

    epoch: int
    tag: str
    path: str
    index: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Digests:
    """Ask for the digests of the chunks of a file that are there, from index ``first`` on."""

    epoch: int
    tag: str
    path: str
    first: int


@dataclass(frozen=True)
class Commit:
    """Verify all files of the last offer of this tag and give it its name. Idempotent.

    ``keep`` replicas are wanted from then on: older ones may go.
    """

    epoch: int
    tag: str
    keep: int = KEEP


@dataclass(frozen=True)
class Warn:
    """Tell the peer of a hint, a notice, or that it was withdrawn. ``seconds_left`` from now, or None."""

    kind: str
    seconds_left: float | None
    step: int
    epoch: int


@dataclass(frozen=True)
class HandOver:
    """The job is the peer's from here on, beginning with this committed checkpoint. Idempotent.

    ``current`` is the epoch that the sender itself is in: later than ``epoch`` where it has committed nothing
    since its own takeover.
    """

    epoch: int
    tag: str
    step: int
    current: int = 0


@dataclass(frozen=True)
class Stats:
    """``size`` raw bytes of one segment of a node's history follow. Idempotent; no fence keeps it out."""

    node: str
    seq: int
    size: int
    sha256: str


@dataclass(frozen=True)
class List:
    """Ask which checkpoints are committed there."""


@dataclass(frozen=True)
class Show:
    """Ask for the manifest of a committed checkpoint."""

    epoch: int
    tag: str


@dataclass(frozen=True)
class Fetch:
    """Ask for ``size`` bytes, from ``offset`` on, of one file of a committed checkpoint."""

    epoch: int
    tag: str
    path: str
    offset: int
    size: int


Reading = List | Show | Fetch
Request = State | Offer | Chunk | Digests | Commit | Warn | HandOver | Stats


@dataclass(frozen=True)
class Wanted:
    """A file the receiver lacks: runs of chunks that are not there (first index, how many).

    None is missing where all are there and some of them differ: ask for their digests.
    """

    path: str
    missing: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Newest:
    """The newest checkpoint committed at the receiver."""

    epoch: int
    tag: str
    step: int


@dataclass(frozen=True)
class Listed:
    """A checkpoint committed at the receiver. ``whole``: every file is there in its size."""

    epoch: int
    tag: str
    step: int
    whole: bool


@dataclass(frozen=True)
class Refusal:
    """A request was not carried out. ``code`` says what kind of reason, ``because`` is one line."""

    code: str
    because: str


def encode(body: dict[str, Any]) -> bytes:
    """One line, newline included."""
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def request_body(request: Request | Reading) -> dict[str, Any]:
    """The JSON object of a request."""
    if isinstance(request, Offer):
        return {"op": "offer", "manifest": request.manifest.as_dict()}
    return {"op": request.__class__.__name__.lower(), **vars(request)}


def refusal_body(refusal: Refusal) -> dict[str, Any]:
    """The JSON object of a refusal; the reason is cut to one bounded line."""
    because = " ".join(refusal.because.split())[:MAX_TEXT]
    return {"ok": False, "code": refusal.code, "because": because}


def parse_request(line: bytes) -> Request | Reading:
    """Read one request line. Raises ProtocolError, and nothing else."""
    body = _object(line, MAX_LINE)
    make = _REQUESTS.get(str(body.get("op")))
    if make is None:
        raise ProtocolError(f"unknown request {body.get('op')!r:.100}")
    try:
        return make(body)
    except ManifestError as exc:
        raise ProtocolError(str(exc)) from exc


def parse_answer(line: bytes) -> dict[str, Any] | Refusal:
    """Read one answer line: the object of an ``ok``, still to be read by kind, or a refusal."""
    body = _object(line, MAX_ANSWER)
    if body.get("ok") is True:
        return body
    code, because = body.get("code"), body.get("because")
    known = isinstance(code, str) and code in CODES
    if body.get("ok") is not False or not known or not isinstance(because, str):
        raise ProtocolError("answer is neither ok nor a refusal")
    return Refusal(str(code), because[:MAX_TEXT])


def parse_state(body: dict[str, Any]) -> tuple[int, Newest | None]:
    """The fence and the newest checkpoint out of an answer to ``state``. Raises ProtocolError."""
    newest = body.get("newest")
    if newest is None:
        return whole_number(body, "fence"), None
    if not isinstance(newest, dict):
        raise ProtocolError("newest is not an object")
    found = Newest(whole_number(newest, "epoch"), _tag(newest), whole_number(newest, "step"))
    return whole_number(body, "fence"), found


def parse_parts(body: dict[str, Any]) -> tuple[Open, ...]:
    """What an answer to ``state`` says of checkpoints that lack parts. Raises ProtocolError."""
    items = body.get("parts", [])
    if not isinstance(items, list) or len(items) > MOST_OPEN or not all(isinstance(i, dict) for i in items):
        raise ProtocolError("parts is not a list of objects")
    return tuple(
        Open(
            whole_number(item, "epoch"),
            _tag(item),
            whole_number(item, "step"),
            _nodes(item.get("there")),
            _nodes(item.get("lacks")),
        )
        for item in items
    )


def parse_waiting(body: dict[str, Any]) -> tuple[str, ...]:
    """The nodes whose parts are missing yet, out of an answer to ``commit``. Raises ProtocolError."""
    return _nodes(body.get("waiting", []))


def _nodes(items: object) -> tuple[str, ...]:
    if not isinstance(items, list) or len(items) > MOST_NODES:
        raise ProtocolError("nodes is not a list")
    try:
        return tuple(check_node(item) for item in items)
    except ManifestError as exc:
        raise ProtocolError(str(exc)) from exc


def parse_wanted(body: dict[str, Any], offered: Manifest) -> tuple[Wanted, ...]:
    """The files the peer wants, each of them one of ``offered``. Raises ProtocolError."""
    items = body.get("want")
    if not isinstance(items, list) or len(items) > MAX_FILES:
        raise ProtocolError("want is not a list")
    sizes = {entry.path: entry.size for entry in offered.files}
    wanted = []
    for item in items:
        path = item.get("path") if isinstance(item, dict) else None
        if not isinstance(path, str) or path not in sizes:
            raise ProtocolError(f"the peer wants {path!r:.200}, which was not offered")
        wanted.append(Wanted(path, _runs(item.get("missing"), chunks_in(sizes.pop(path)))))
    return tuple(wanted)


def parse_digests(body: dict[str, Any]) -> tuple[bytes, ...]:
    """The digests out of an answer to ``digests``; an empty one for a chunk that is not there."""
    found = body.get("digests")
    if not isinstance(found, list) or len(found) > MOST_DIGESTS:
        raise ProtocolError("digests is not a list")
    return tuple(bytes.fromhex(_sha256(item)) if item else b"" for item in found)


def parse_listed(body: dict[str, Any]) -> tuple[Listed, ...]:
    """What is committed there, out of an answer to ``list``. Raises ProtocolError."""
    items = body.get("places")
    if not isinstance(items, list) or len(items) > MOST_PLACES:
        raise ProtocolError(f"places is not a list of at most {MOST_PLACES}")
    return tuple(_listed(item) for item in items)


def parse_shown(body: dict[str, Any], asked: Show) -> Manifest:
    """The manifest out of an answer to ``show``, which must be the one asked for. Raises ProtocolError."""
    try:
        manifest = from_dict(body.get("manifest"))
    except ManifestError as exc:
        raise ProtocolError(str(exc)) from exc
    if (manifest.epoch, manifest.tag) != (asked.epoch, asked.tag):
        raise ProtocolError(f"the manifest is of {manifest.tag!r:.200}, not of {asked.tag}")
    return manifest


def _listed(item: object) -> Listed:
    if not isinstance(item, dict) or not isinstance(item.get("whole"), bool):
        raise ProtocolError("places holds something that is no place")
    return Listed(whole_number(item, "epoch"), _tag(item), whole_number(item, "step"), item["whole"])


def _runs(items: object, count: int) -> tuple[tuple[int, int], ...]:
    """Runs of chunks in rising order, none beyond ``count``."""
    if not isinstance(items, list) or len(items) > count:
        raise ProtocolError("missing is not a list of runs of chunks")
    runs: list[tuple[int, int]] = []
    for item in items:
        first, many = item if isinstance(item, list) and len(item) == 2 else (None, None)
        pair = {"first": first, "many": many}
        run = (whole_number(pair, "first", count - 1), whole_number(pair, "many", count))
        if sum(run) > count or (runs and run[0] < sum(runs[-1])):
            raise ProtocolError(f"the run {run} of missing chunks does not fit")
        runs.append(run)
    return tuple(runs)


def whole_number(body: dict[str, Any], key: str, most: int = MAX_NUMBER) -> int:
    """``body[key]`` if it is a whole number from 0 to ``most``. Raises ProtocolError."""
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ProtocolError(f"{key} {value!r:.50} is not a whole number from 0 to {most}")
    return value


def _object(line: bytes, limit: int) -> dict[str, Any]:
    if len(line) > limit:
        raise ProtocolError(f"line of more than {limit} bytes")
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise ProtocolError(f"not JSON: {exc}") from exc
    if not isinstance(body, dict):
        raise ProtocolError("not a JSON object")
    return body


def _tag(body: dict[str, Any]) -> str:
    try:
        return check_name(body.get("tag"), "tag")
    except ManifestError as exc:
        raise ProtocolError(str(exc)) from exc


def _chunk(body: dict[str, Any]) -> Chunk:
    index, size = whole_number(body, "index", MAX_SIZE // CHUNK), whole_number(body, "size", CHUNK)
    if not size:
        raise ProtocolError("size of a chunk is 0")
    epoch, path = whole_number(body, "epoch"), check_path(body.get("path"))
    sha256 = body.get("sha256")
    return Chunk(epoch, check_staged(body.get("tag")), path, index, size, _sha256(sha256) if sha256 else "")


def _digests(body: dict[str, Any]) -> Digests:
    epoch, path = whole_number(body, "epoch"), check_path(body.get("path"))
    return Digests(epoch, check_staged(body.get("tag")), path, whole_number(body, "first", MAX_SIZE // CHUNK))


def _hand_over(body: dict[str, Any]) -> HandOver:
    """Senders of earlier releases do not say which epoch they are in."""
    current = whole_number(body, "current") if "current" in body else 0
    return HandOver(whole_number(body, "epoch"), _tag(body), whole_number(body, "step"), current)


def _fetch(body: dict[str, Any]) -> Fetch:
    epoch, path = whole_number(body, "epoch"), check_path(body.get("path"))
    offset, size = whole_number(body, "offset", MAX_SIZE), whole_number(body, "size", MOST_FETCH)
    if not size:
        raise ProtocolError("size of a fetch is 0")
    return Fetch(epoch, _tag(body), path, offset, size)


def _sha256(value: object) -> str:
    if not isinstance(value, str) or _SHA256.fullmatch(value) is None:
        raise ProtocolError("sha256 is not 64 hexadecimal digits")
    return value


def _keep(body: dict[str, Any]) -> int:
    """Senders of earlier releases do not say."""
    keep = whole_number(body, "keep", MOST_KEEP) if "keep" in body else KEEP
    if keep < 1:
        raise ProtocolError("keep is 0: one replica at least stays")
    return keep


def _stats(body: dict[str, Any]) -> Stats:
    node, sha256 = check_name(body.get("node"), "node"), _sha256(body.get("sha256"))
    return Stats(node, whole_number(body, "seq", MOST_SEQ), whole_number(body, "size", MOST_BYTES), sha256)


def _warn(body: dict[str, Any]) -> Warn:
    kind, seconds = body.get("kind"), body.get("seconds_left")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ProtocolError(f"kind {kind!r:.50} is not one of {', '.join(sorted(KINDS))}")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float))):
        raise ProtocolError("seconds_left is not a number")
    if seconds is not None and not abs(seconds) <= MAX_NUMBER:
        raise ProtocolError("seconds_left is not a finite number")
    left = None if seconds is None else float(seconds)
    return Warn(str(kind), left, whole_number(body, "step"), whole_number(body, "epoch"))


_REQUESTS: dict[str, Callable[[dict[str, Any]], Request | Reading]] = {
    "state": lambda _: State(),
    "offer": lambda body: Offer(from_dict(body.get("manifest"))),
    "chunk": _chunk,
    "digests": _digests,
    "commit": lambda body: Commit(whole_number(body, "epoch"), check_staged(body.get("tag")), _keep(body)),
    "warn": _warn,
    "handover": _hand_over,
    "stats": _stats,
    "list": lambda _: List(),
    "show": lambda body: Show(whole_number(body, "epoch"), _tag(body)),
    "fetch": _fetch,
}
