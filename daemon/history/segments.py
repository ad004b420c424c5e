"""Segments: a node's history in append-only pieces, ``stats/<node>/<seq>.jsonl.gz``, that can be merged.

The first line is a header, then follows one row a line, under its table's name. A segment holds what is
new or changed since the one before it, never changes once it has its name, and says itself how far it goes:
so there is no second file that a crash could leave behind it. Reading takes every byte for hostile.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outlast.daemon.checkpoint.place import Step, no_step, write_atomically
from outlast.daemon.history.layout import (
    FOLDER,
    MOST_BYTES,
    MOST_SEQ,
    SUFFIX,
    file_name,
    node_folder,
    number_of,
)
from outlast.daemon.history.ledger import Changed
from outlast.daemon.history.merging import merge
from outlast.daemon.history.reading import UnreadableError
from outlast.daemon.history.rows import Rows
from outlast.daemon.history.tables import BY_NAME, TABLES, gathered

FORMAT: Final = 1
MOST_UNPACKED: Final = 64 * 1024 * 1024
MOST_LINE: Final = 64 * 1024
_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class Header:
    """Who wrote a segment. ``rev`` is the change of the writer's file up to which it is complete."""

    node: str
    seq: int
    writer: str
    rev: int


@dataclass(frozen=True, slots=True)
class Segment:
    """What could be read of one. ``notes`` say what could not, a sentence each."""

    header: Header
    rows: Rows
    notes: tuple[str, ...]


def write(folder: Path, node: str, changed: Changed, seq: int, step: Step = no_step) -> Path:
    """Write segment ``seq`` of this node into its folder below ``folder``, durably. Returns its path.

    After a crash there is the whole segment or none of that name. ``rev`` of a segment of last words is
    what it was before: the next one holds everything since. Raises OSError.
    """
    home = folder / node_folder(node, changed.writer)
    home.mkdir(parents=True, exist_ok=True)
    path = home / file_name(seq)
    write_atomically(path, pack(node, changed, seq), step)
    return path


def pack(node: str, changed: Changed, seq: int) -> bytes:
    """The bytes of a segment: the same rows give the same bytes."""
    lines: list[dict[str, Any]] = [
        {"format": FORMAT, "node": node, "seq": seq, "writer": changed.writer, "rev": changed.rev}
    ]
    for table in TABLES:
        lines.extend(table.to_json(row) for row in getattr(changed.rows, table.name))
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    return gzip.compress(text.encode(), mtime=0)


def listed(home: Path) -> list[tuple[int, Path]]:
    """The segments of one node's folder by number, in order; [] where there is no such folder."""
    found = []
    try:
        for path in home.iterdir():
            number = number_of(path.name)
            if number is not None:
                found.append((number, path))
    except FileNotFoundError:
        return []
    return sorted(found)


def read_segment(path: Path) -> Rows:
    """The rows of one segment, as far as it can be read. Raises UnreadableError for what is no segment."""
    return look(path).rows


def look(path: Path) -> Segment:
    """One segment and what is wrong with it. Raises UnreadableError for what is no segment at all."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as exc:
        raise UnreadableError(
            f"{path} cannot be opened: {exc.strerror}. Run this as its owner or root."
        ) from exc
    try:
        return unpack(data)
    except ValueError as exc:
        raise UnreadableError(
            f"{path} is no segment of a history: {exc}. Remove it from the folder."
        ) from exc


def read_folder(folder: Path) -> Segment:
    """All segments anywhere below ``folder``, merged. The header is that of none; notes name the files.

    Raises UnreadableError where there is no such folder.
    """
    if not folder.is_dir():
        raise UnreadableError(f"There is no folder {folder}. Name the folder that holds the nodes' segments.")
    rows: list[Rows] = []
    notes: list[str] = []
    for path in sorted(folder.rglob(f"*{SUFFIX}")):
        try:
            segment = look(path)
        except UnreadableError as exc:
            notes.append(str(exc))
            continue
        rows.append(segment.rows)
        notes += [f"{path}: {note}" for note in segment.notes]
    return Segment(Header("", 0, "", 0), merge(*rows), tuple(notes))


def unpack(data: bytes) -> Segment:
    """A segment of its bytes. Raises ValueError for what has no header."""
    notes: list[str] = []
    lines = _lines(data, notes)
    header = _header(next(lines, b""))
    found: dict[str, list[Any]] = {name: [] for name in BY_NAME}
    refused = 0
    for line in lines:
        try:
            body = json.loads(line)
            table = BY_NAME.get(str(body.get("table")))
            if table is not None:  # else a newer Outlast's
                found[table.name].append(table.from_json(body))
        except (ValueError, AttributeError, RecursionError):  # BadRowError is a ValueError
            refused += 1
    if refused:
        notes.append(f"{refused} lines are no rows and were left out")
    return Segment(header, gathered(found), tuple(notes))


def newest(home: Path) -> tuple[int, Header | None]:
    """The highest number in a node's folder, and the newest header that can be read; (0, None) for none."""
    segments = listed(home)
    for _, path in reversed(segments):
        try:
            return segments[-1][0], look(path).header
        except UnreadableError:
            continue
    return (segments[-1][0] if segments else 0), None


def _header(line: bytes) -> Header:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise ValueError("it has no header")
    if body.get("format") != FORMAT:
        raise ValueError(f"it has format {body.get('format')!r:.20}; this Outlast reads {FORMAT}")
    node, writer, seq, rev = (body.get(name) for name in ("node", "writer", "seq", "rev"))
    if not isinstance(node, str) or not isinstance(writer, str) or len(node) + len(writer) > 512:
        raise ValueError("its header names no writer")
    if not _is_number(seq) or not -1 <= _whole(rev) < 2**63:
        raise ValueError("its header has no number")
    return Header(node, int(str(seq)), writer, _whole(rev))


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_SEQ


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _lines(data: bytes, notes: list[str]) -> Iterator[bytes]:
    """Whole lines, as far as they can be unpacked within bounds."""
    rest = b""
    for chunk in _unpacked(data, notes):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if len(line) <= MOST_LINE:
                yield line
            else:
                notes.append("a line is too long and was left out")
        if len(rest) > MOST_LINE:
            notes.append("a line is too long; the rest was left out")
            return
    if rest:
        notes.append("its last line is torn and was left out")


def _unpacked(data: bytes, notes: list[str]) -> Iterator[bytes]:
    if len(data) > MOST_BYTES:
        notes.append(f"it is larger than {MOST_BYTES // 2**20} MiB; the rest was left out")
    unpacker = zlib.decompressobj(wbits=31)
    left = MOST_UNPACKED
    while data and left > 0 and not unpacker.eof:
        try:
            chunk = unpacker.decompress(data, min(_CHUNK, left))
        except zlib.error:
            notes.append("it is damaged; its good lines were kept")
            return
        data = unpacker.unconsumed_tail
        left -= len(chunk)
        yield chunk
    if not unpacker.eof:
        what = "unpacks to too much" if left <= 0 else "is cut short"
        notes.append(f"it {what}; its good lines were kept")


__all__ = [
    "FOLDER",
    "Header",
    "Segment",
    "listed",
    "look",
    "newest",
    "node_folder",
    "pack",
    "read_folder",
    "read_segment",
    "unpack",
    "write",
]
