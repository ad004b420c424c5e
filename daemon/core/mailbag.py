"""The courier's files: which segments lie here, which of them a peer has, which may go. Blocking.

``<state>/stats/sent.json`` says how far each peer has them; it may be lost, as sending again changes nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlast.daemon.checkpoint.place import write_atomically
from outlast.daemon.history import segments
from outlast.daemon.history.layout import MOST_SEQ

SENT_NAME = "sent.json"
# One session's letters: what is small enough to hold in memory.
MOST_LETTERS = 64
MOST_BYTES = 1024 * 1024
# Segments kept here once every peer has them; the file that they were made of has all rows anyway.
KEPT = 1000
_MOST_FILE = 1024 * 1024


@dataclass(slots=True)
class Sent:
    """What ``peer`` has: by a node's folder, the number up to which it has every segment."""

    peer: str
    upto: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bag:
    """Segments of one node's folder for one session. ``waiting`` counts all that the peer lacks.

    Where they are not ``in_order``, the peer still lacks earlier ones.
    """

    node: str
    letters: tuple[tuple[int, bytes], ...]
    waiting: int
    in_order: bool


def pack(folder: Path, sent: Sent, newest_of: str | None, reading: bool) -> Bag:
    """The next letters: the oldest that the peer lacks, or the newest alone of the folder ``newest_of``.

    Without ``reading`` they are only counted.
    """
    lacking = [
        (home.name, number, path)
        for home in _homes(folder)
        for number, path in segments.listed(home)
        if number > sent.upto.get(home.name, 0)
    ]
    chosen = [each for each in lacking if each[0] == newest_of][-1:] if newest_of else lacking[:MOST_LETTERS]
    if not chosen or not reading:
        return Bag("", (), len(lacking), in_order=True)
    node, first, _ = chosen[0]
    letters = _read((number, path) for name, number, path in chosen if name == node)
    oldest = min(number for name, number, _ in lacking if name == node)
    return Bag(node, tuple(letters), len(lacking), in_order=first == oldest)


def load(folder: Path) -> dict[str, Sent]:
    """What each job's peer has; what cannot be read is sent again."""
    try:
        with (folder / SENT_NAME).open("rb") as file:
            body = json.loads(file.read(_MOST_FILE))
        return {str(job): _sent(said) for job, said in body.items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return {}


def save(folder: Path, sent: Mapping[str, Sent]) -> None:
    """Keep what each job's peer has. Raises OSError."""
    body = {job: {"peer": one.peer, "upto": one.upto} for job, one in sent.items()}
    data = json.dumps(body).encode() + b"\n"
    path = folder / SENT_NAME
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return
    write_atomically(path, data)


def tidy(folder: Path, peers: Iterable[Sent]) -> None:
    """Drop the oldest segments here that every peer has, but for the newest thousand of each folder."""
    known = list(peers)
    for home in _homes(folder):
        everywhere = min((one.upto.get(home.name, 0) for one in known), default=MOST_SEQ)
        for number, path in segments.listed(home)[:-KEPT]:
            if number <= everywhere:
                path.unlink(missing_ok=True)


def _homes(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except FileNotFoundError:
        return []


def _read(chosen: Iterable[tuple[int, Path]]) -> Iterable[tuple[int, bytes]]:
    total = 0
    for number, path in chosen:
        try:
            data = path.read_bytes()
        except OSError:
            return  # those before it still go
        total += len(data)
        yield number, data
        if total > MOST_BYTES:
            return


def _sent(said: Any) -> Sent:
    upto = {str(name): int(number) for name, number in said["upto"].items()}
    return Sent(str(said["peer"]), upto)
