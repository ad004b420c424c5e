"""What a receiver gives back of what it has committed: a list, a manifest, pieces of the files it names.

Standard library only, as the receiver is. Only what a manifest names can be read, and no link is followed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from outlast.daemon.ship.protocol import (
    BAD_REQUEST,
    DAMAGED,
    IO,
    MAX_ANSWER,
    MOST_PLACES,
    Fetch,
    List,
    Reading,
    Show,
    encode,
)
from outlast.daemon.ship.words import RefusedError, fence
from outlast.wire.manifest import FileEntry
from outlast.wire.store import Committed, check_file, committed_at, epoch_folder, scan, verify


class Serving:
    """The reading side of one session. ``store`` is the job's folder of replicas; None gives nothing."""

    def __init__(self, store: Path | None) -> None:
        self._store = store
        self._place: tuple[int, str] | None = None
        self._files: dict[str, tuple[Path, FileEntry]] = {}

    def answer(self, request: Reading) -> tuple[dict[str, Any], bytes]:
        """The ``ok`` answer and the bytes that follow it. Raises RefusedError."""
        if self._store is None:
            raise RefusedError(BAD_REQUEST, "this receiver only takes: it was started with --write-only")
        try:
            if isinstance(request, List):
                return self._list(self._store), b""
            if isinstance(request, Show):
                return self._show(self._store, request), b""
            data = self._fetch(self._store, request)
            return {"ok": True, "size": len(data)}, data
        except OSError as exc:
            raise RefusedError(IO, f"{exc.strerror}: {exc.filename or self._store}") from exc

    def _list(self, store: Path) -> dict[str, Any]:
        places = [
            {
                "epoch": item.epoch,
                "tag": item.tag,
                "step": item.step,
                "whole": not verify(item.path, digests=False),
            }
            for item in scan(store)[:MOST_PLACES]
        ]
        return {"ok": True, "fence": fence(store), "places": places}

    def _show(self, store: Path, request: Show) -> dict[str, Any]:
        body = {"ok": True, "manifest": _committed(store, request).manifest.as_dict()}
        if len(encode(body)) > MAX_ANSWER:
            raise RefusedError(BAD_REQUEST, f"the manifest of {request.tag} is too large for one answer")
        return body

    def _fetch(self, store: Path, request: Fetch) -> bytes:
        if self._place != (request.epoch, request.tag):
            found = _committed(store, request)
            self._files = {entry.path: (found.path, entry) for entry in found.manifest.files}
            self._place = (request.epoch, request.tag)
        if request.path not in self._files:
            raise RefusedError(BAD_REQUEST, f"{request.tag} has no file {request.path!r:.200}")
        folder, entry = self._files[request.path]
        if request.offset + request.size > entry.size:
            raise RefusedError(BAD_REQUEST, f"{entry.path} has {entry.size} bytes, more are asked for")
        if what := check_file(folder, entry, digests=False):
            raise RefusedError(DAMAGED, f"{entry.path}: {what}")
        return _read(folder / entry.path, request)


def _committed(store: Path, request: Show | Fetch) -> Committed:
    found = committed_at(epoch_folder(store, request.epoch) / request.tag, request.epoch)
    if found is None:
        raise RefusedError(BAD_REQUEST, f"{request.tag} of epoch {request.epoch} is not committed here")
    return found


def _read(path: Path, request: Fetch) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        data = os.pread(fd, request.size, request.offset)
    finally:
        os.close(fd)
    if len(data) != request.size:
        raise RefusedError(DAMAGED, f"{request.path} has become shorter")
    return data
