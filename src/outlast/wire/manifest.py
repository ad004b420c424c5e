"""The manifest of a checkpoint: every file with size and digest, the step, the layout and the epoch.

A folder is a checkpoint because its manifest says so and verifies; nothing else makes it one. A manifest
may come from another machine, so ``parse`` believes nothing: a path can never lead out of the folder.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outlast.wire.digests import CHUNK
from outlast.wire.messages import Layout

MANIFEST_NAME = "outlast.manifest.json"
FORMAT = 2
# Format 1 had the SHA-256 of each whole file; it is read, and never written anew.
WHOLE_FILES = 1
# One node's part of a checkpoint of several: a format of its own, so that who does not know parts refuses it.
ONE_PART = 3
PART_SUFFIX = ".outlast-part"
PARTIAL_SUFFIX = ".partial"
MAX_BYTES = 16 * 1024 * 1024
MAX_FILES = 50_000
MAX_SIZE = 1 << 50
MAX_NUMBER = 1 << 53
MAX_TEXT = 4096
LEAST_CHUNK = 64 * 1024
MOST_CHUNK = 64 * 1024 * 1024
MOST_NODES = 1024

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_RESERVED = re.compile(r".*\.(partial|deleted|chunks|damaged-[0-9]+|part-[0-9]+|parts)")
_STAGED = re.compile(r"(.*)\.part-(?:0|[1-9][0-9]{0,3})")
_MERGED = ".parts"
_NODE = re.compile(r"[A-Za-z0-9._-]{1,253}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ManifestError(ValueError):
    """The manifest is missing, unreadable or not acceptable; the text says which and where."""


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint: ``path`` relative and ``/``-separated, ``size`` in bytes.

    ``sha256`` is ``digests.digest`` with ``chunk``, 0 for the plain digest of the whole file.
    """

    path: str
    size: int
    sha256: str
    chunk: int = CHUNK


@dataclass(frozen=True)
class Part:
    """Which part of a checkpoint a manifest tells of: what ``nodes[index]`` has saved, of all ``nodes``."""

    index: int
    nodes: tuple[str, ...]

    @property
    def node(self) -> str:
        """The node that has saved it."""
        return self.nodes[self.index]


@dataclass(frozen=True)
class Manifest:
    """What one checkpoint consists of. ``created`` is UTC epoch seconds.

    With ``part`` it is one node's share alone, and no checkpoint until all shares have come together.
    """

    job: str
    tag: str
    step: int
    epoch: int
    flush_id: str
    reason: str
    created: float
    layout: Layout
    files: tuple[FileEntry, ...]
    part: Part | None = None

    @property
    def staged(self) -> str:
        """The name under which it arrives at a receiver: the tag, or one for each part of it."""
        return self.tag if self.part is None else f"{self.tag}.part-{self.part.index}"

    @property
    def total_bytes(self) -> int:
        """The sum of all sizes, in bytes."""
        return sum(entry.size for entry in self.files)

    def as_dict(self) -> dict[str, Any]:
        """The manifest as plain JSON values, ``format`` included; ``parse`` reads it back."""
        body = asdict(self)
        keys = ("path", "size", "sha256")
        body["files"] = [{key: getattr(entry, key) for key in keys} for entry in self.files]
        if self.part is None:
            del body["part"]
        chunk = self.files[0].chunk
        form = FORMAT if self.part is None else ONE_PART
        return {"format": form, "chunk": chunk, **body} if chunk else {"format": WHOLE_FILES, **body}

    def to_bytes(self) -> bytes:
        """The manifest as the bytes of its file."""
        return json.dumps(self.as_dict(), indent=1).encode() + b"\n"


def check_name(value: object, what: str) -> str:
    """``value`` if it may name a job or a tag (and so a folder). Raises ManifestError."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise ManifestError(f"{what} {value!r:.200} is not a name of letters, digits, '.', '_' and '-'")
    if _RESERVED.fullmatch(value):
        raise ManifestError(f"{what} {value!r} ends like a folder that is not committed")
    return value


def check_node(value: object) -> str:
    """``value`` if it may name a node. Raises ManifestError."""
    if not isinstance(value, str) or _NODE.fullmatch(value) is None:
        raise ManifestError(f"node {value!r:.200} is not a name of letters, digits, '.', '_' and '-'")
    return value


def check_staged(value: object) -> str:
    """``value`` if it may name what arrives at a receiver: a tag, or a part of one. Raises ManifestError."""
    part = _STAGED.fullmatch(value) if isinstance(value, str) else None
    return f"{check_name(part[1], 'tag')}{part[0][len(part[1]) :]}" if part else check_name(value, "tag")


def tag_of(staged: str) -> str:
    """The tag that the name of a part belongs to, or of the folder in which parts are put together."""
    part = _STAGED.fullmatch(staged)
    return part[1] if part else staged.removesuffix(_MERGED)


def check_path(value: object) -> str:
    """``value`` if it is a relative, normalised path that stays inside its folder. Raises ManifestError."""
    if not isinstance(value, str) or not value or len(value) > MAX_TEXT:
        raise ManifestError(f"file path {value!r:.200} is not a text of 1 to {MAX_TEXT} characters")
    if "\\" in value or not value.isprintable():
        raise ManifestError(f"file path {value!r:.200} has a backslash or an unprintable character")
    for part in value.split("/"):
        if part in {"", ".", ".."} or len(part.encode()) > 255:
            raise ManifestError(f"file path {value!r:.200} is not a plain relative path")
    if value == MANIFEST_NAME or value.endswith(PART_SUFFIX):
        raise ManifestError(f"file path {value!r:.200} is reserved")
    return value


def parse(data: bytes) -> Manifest:
    """Read a manifest that anybody may have written. Raises ManifestError, and nothing else."""
    if len(data) > MAX_BYTES:
        raise ManifestError(f"manifest of {len(data)} bytes; at most {MAX_BYTES} are allowed")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise ManifestError(f"manifest is not JSON: {exc}") from exc
    return from_dict(body)


def from_dict(body: object) -> Manifest:
    """Read a manifest from JSON values, as ``parse`` does from bytes. Raises ManifestError."""
    if not isinstance(body, dict):
        raise ManifestError("manifest is not a JSON object")
    form = body.get("format")
    if isinstance(form, bool) or form not in (WHOLE_FILES, FORMAT, ONE_PART):
        raise ManifestError(
            f"manifest has format {form!r:.50}; this version reads {WHOLE_FILES} to {ONE_PART}"
        )
    chunk = _number(body, "chunk", most=MOST_CHUNK, least=LEAST_CHUNK) if form != WHOLE_FILES else 0
    return Manifest(
        job=check_name(body.get("job"), "job"),
        tag=check_name(body.get("tag"), "tag"),
        step=_number(body, "step"),
        epoch=_number(body, "epoch"),
        flush_id=_text(body, "flush_id"),
        reason=_text(body, "reason"),
        created=_instant(body),
        layout=_layout(body.get("layout")),
        files=_files(body.get("files"), chunk),
        part=_part(body.get("part")) if form == ONE_PART else None,
    )


def read(folder: Path) -> Manifest:
    """The manifest in ``folder``. Raises ManifestError, also where there is none; follows no link."""
    try:
        fd = os.open(folder / MANIFEST_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ManifestError(f"{folder.name}/{MANIFEST_NAME} is not a regular file")
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as exc:
        raise ManifestError(f"{folder.name} has no {MANIFEST_NAME}: it is not committed") from exc
    except OSError as exc:
        raise ManifestError(f"{folder.name}/{MANIFEST_NAME} cannot be read: {exc.strerror}") from exc
    return parse(data)


def _number(body: dict[str, Any], key: str, most: int = MAX_NUMBER, least: int = 0) -> int:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ManifestError(f"{key} {value!r:.50} is not a whole number from {least} to {most}")
    return value


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ManifestError(f"{key} is not a text of at most {MAX_TEXT} characters")
    return value


def _instant(body: dict[str, Any]) -> float:
    value = body.get("created")
    # NaN fails the comparison as well.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MAX_NUMBER:
        raise ManifestError(f"created {value!r:.50} is not an instant")
    return float(value)


def _layout(body: object) -> Layout:
    if not isinstance(body, dict):
        raise ManifestError("layout is not a JSON object")
    stage = _number(body, "zero_stage", most=3) if "zero_stage" in body else 0
    world = _number(body, "world", least=1)
    sizes = {key: _number(body, key, least=1) for key in ("data", "tensor", "pipeline") if key in body}
    return Layout(world, **sizes, zero_stage=stage)


def _part(body: object) -> Part:
    if not isinstance(body, dict):
        raise ManifestError("part is not a JSON object")
    nodes = body.get("nodes")
    if not isinstance(nodes, list) or not 2 <= len(nodes) <= MOST_NODES:
        raise ManifestError(f"part.nodes is not a list of 2 to {MOST_NODES} names")
    names = tuple(check_node(item) for item in nodes)
    if len(set(names)) != len(names):
        raise ManifestError("part.nodes names a node twice")
    return Part(_number(body, "index", most=len(names) - 1), names)


def _files(body: object, chunk: int) -> tuple[FileEntry, ...]:
    if not isinstance(body, list) or not 0 < len(body) <= MAX_FILES:
        raise ManifestError(f"files is not a list of 1 to {MAX_FILES} entries")
    entries = tuple(_entry(item, chunk) for item in body)
    paths = {entry.path for entry in entries}
    if len(paths) != len(entries):
        raise ManifestError("files names a path twice")
    for path in paths:
        parts = path.split("/")
        if any("/".join(parts[:depth]) in paths for depth in range(1, len(parts))):
            raise ManifestError(f"file path {path!r:.200} lies below another file")
    return entries


def _entry(body: object, chunk: int) -> FileEntry:
    if not isinstance(body, dict):
        raise ManifestError("files holds something that is not an object")
    path = check_path(body.get("path"))
    size = _number(body, "size", most=MAX_SIZE, least=1)
    sha256 = body.get("sha256")
    if not isinstance(sha256, str) or _SHA256.fullmatch(sha256) is None:
        raise ManifestError(f"sha256 of {path!r:.200} is not 64 hexadecimal digits")
    return FileEntry(path, size, sha256, chunk)
