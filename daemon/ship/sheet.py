"""Which chunks of an arriving file are here: one digest each, in a file of its own beside the staging folder.

A chunk's bytes are written before its digest is noted, so what is noted is here, unless the machine itself
went down in between: notes of another boot are held against the bytes before they are believed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from outlast.wire.digests import CHUNK, root

_MAGIC = b"outlast-chunks-1"
_HEAD = 64
_DIGEST = 32
_NONE = bytes(_DIGEST)
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def note(sheet: Path, index: int, digest: bytes) -> None:
    """Record that the chunk with that index is here. Raises OSError."""
    fd = opened(sheet)
    try:
        if os.fstat(fd).st_size < _HEAD:
            os.pwrite(fd, _head(), 0)
        os.pwrite(fd, digest, _HEAD + _DIGEST * index)
    finally:
        os.close(fd)


def opened(path: Path) -> int:
    """A descriptor of a file that is made where there is none, with its folders. Raises OSError."""
    try:
        return os.open(path, _FLAGS, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, _FLAGS, 0o644)


def forget(sheet: Path, index: int) -> None:
    """Take a note back before other bytes are written in its chunk's place: a kill may come in between."""
    try:
        known = sheet.stat().st_size > _HEAD + _DIGEST * index
    except FileNotFoundError:
        return
    if known:
        note(sheet, index, _NONE)


def cut(sheet: Path, count: int) -> None:
    """Take back the notes of all chunks beyond the first ``count``: the file is going to end there."""
    size = _HEAD + _DIGEST * count
    with suppress(FileNotFoundError):  # an empty file has none
        if sheet.stat().st_size > size:
            os.truncate(sheet, size)


def noted(sheet: Path, part: Path) -> list[bytes]:
    """The digests of the chunks of ``part`` that are here, by index; an empty one for each that is not."""
    try:
        begun = part.lstat().st_size
        data = sheet.read_bytes()
    except OSError:
        return []
    if not begun or not data.startswith(_MAGIC):
        return []
    found = [data[at : at + _DIGEST] for at in range(_HEAD, len(data), _DIGEST)]
    digests = [digest if len(digest) == _DIGEST and digest != _NONE else b"" for digest in found]
    return digests if data[:_HEAD] == _head() else _believed(sheet, part, digests)


def missing(digests: Sequence[bytes], count: int) -> list[tuple[int, int]]:
    """The runs of chunks that are not here, of ``count`` in all: first index and length of each."""
    runs: list[tuple[int, int]] = []
    for index in range(count):
        if index < len(digests) and digests[index]:
            continue
        if runs and sum(runs[-1]) == index:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs


def digest_of(digests: Sequence[bytes], count: int) -> str | None:
    """The digest of a file of ``count`` chunks, or None while not all of them are here.

    Notes beyond them are of a longer file that had this name before.
    """
    here = digests[:count]
    return root(here) if len(here) == count and all(here) else None


def _head() -> bytes:
    try:
        boot = _BOOT.read_bytes().strip()
    except OSError:
        boot = b""
    return (_MAGIC + boot)[:_HEAD].ljust(_HEAD, b"\0")


def _believed(sheet: Path, part: Path, digests: list[bytes]) -> list[bytes]:
    """After a reboot: only what the bytes bear out, which is then noted anew."""
    kept = _borne_out(part, digests)
    sheet.unlink(missing_ok=True)
    for index, digest in enumerate(kept):
        if digest:
            note(sheet, index, digest)
    return kept


def _borne_out(part: Path, digests: list[bytes]) -> list[bytes]:
    try:
        with part.open("rb") as file:
            return [
                digest if digest and _at(file.fileno(), i) == digest else b""
                for i, digest in enumerate(digests)
            ]
    except OSError:
        return []


def _at(fd: int, index: int) -> bytes:
    return hashlib.sha256(os.pread(fd, CHUNK, CHUNK * index)).digest()
