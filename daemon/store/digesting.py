"""The digest of a file whose bytes come by once, in order."""

from __future__ import annotations

import hashlib

from outlast.wire.digests import root
from outlast.wire.manifest import FileEntry


class Running:
    """Takes a file's bytes and gives, at the end, what ``digests.digest`` gives for the file on a disk."""

    def __init__(self, chunk: int) -> None:
        self._chunk = chunk
        self._room = chunk
        self._now = hashlib.sha256()
        self._done: list[bytes] = []
        self.size = 0

    def update(self, data: bytes | memoryview) -> None:
        """The next bytes."""
        self.size += len(data)
        left = memoryview(data)
        while self._chunk and len(left) >= self._room:
            self._now.update(left[: self._room])
            left = left[self._room :]
            self._done.append(self._now.digest())
            self._now, self._room = hashlib.sha256(), self._chunk
        self._now.update(left)
        self._room -= len(left)

    def hexdigest(self) -> str:
        """The digest of all bytes so far; the file has no more."""
        if not self._chunk:
            return self._now.hexdigest()
        partial = self._room < self._chunk or not self._done
        return root([*self._done, self._now.digest()] if partial else self._done)

    def differs_from(self, entry: FileEntry) -> str:
        """What is wrong with the bytes for this entry of a manifest, or an empty text."""
        if self.size != entry.size:
            return f"{self.size} bytes, not {entry.size}"
        return "" if self.hexdigest() == entry.sha256 else "contents differ from the manifest's digest"
