"""What was offered: the manifest beside a staging folder, and files that need not travel."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from outlast.daemon.checkpoint.parts import beside, offered
from outlast.daemon.checkpoint.place import write_atomically
from outlast.daemon.ship.protocol import BAD_REQUEST
from outlast.daemon.ship.words import RefusedError
from outlast.wire.manifest import FileEntry, Manifest
from outlast.wire.store import check_file, scan


class Offers:
    """The offers that one session works on; each is read once, as every file of it asks for it."""

    def __init__(self) -> None:
        self._files: dict[Path, dict[str, FileEntry]] = {}

    def note(self, staging: Path, manifest: Manifest) -> None:
        """Record an offer durably; it replaces an earlier one of that tag."""
        if offered(staging) != manifest:
            write_atomically(beside(staging), manifest.to_bytes())
        self._files.pop(staging, None)

    def files(self, staging: Path) -> dict[str, FileEntry]:
        """The offered files by path. Raises RefusedError if there is no offer."""
        if staging not in self._files:
            manifest = offered(staging)
            if manifest is None:
                raise RefusedError(BAD_REQUEST, f"{staging.name} was not offered in this epoch")
            self._files[staging] = {entry.path: entry for entry in manifest.files}
        return self._files[staging]


def reuse(store: Path, staging: Path, manifest: Manifest) -> list[str]:
    """Link files that did not change since a replica in ``store``, and return which: they need not travel."""
    known = {
        (entry.size, entry.sha256, entry.chunk): item.path / entry.path
        for item in scan(store)
        for entry in item.manifest.files
    }
    linked = []
    for entry in manifest.files:
        source = known.get((entry.size, entry.sha256, entry.chunk))
        if source and not os.path.lexists(staging / entry.path):
            linked += [entry.path] if _link(source, staging / entry.path, entry) else []
    return linked


def _link(source: Path, target: Path, entry: FileEntry) -> bool:
    if check_file(source.parent, replace(entry, path=source.name)):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):  # a file system without links: the file travels
        target.hardlink_to(source)
        return True
    return False


__all__ = ["Offers", "offered", "reuse"]
