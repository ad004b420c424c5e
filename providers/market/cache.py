"""Answers kept on disk, so that sources are asked seldom and an old answer is there when they are down.

One file a question in a folder of mode 0700, written whole or not at all. A file that cannot be read is as
good as none. The folder holds at most ``MOST_BYTES``; the oldest files go first.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from outlast.providers.base import Clock, ProviderError
from outlast.providers.market.base import Answer, Source, Want
from outlast.providers.market.offline import dump_answers
from outlast.providers.market.own_json import own_answers
from outlast.providers.market.reading import decode_object

TTL_S = 3600.0
# An answer that lacks something is asked for again sooner.
PARTIAL_TTL_S = 120.0
# What is older than this is not served even when the source is down.
STALE_S = 30 * 86400.0
MOST_BYTES = 64 * 1024 * 1024
# How long a source is known to refuse more frequent questions.
OWN_TTL_S = {"aws-scores": 6 * 3600.0, "azure-scores": 6 * 3600.0, "aws-advisor": 6 * 3600.0}


@dataclass(frozen=True, slots=True)
class Store:
    """The folder. Its methods block; they are run in threads."""

    folder: Path

    def read(self, source: str, want: Want) -> Answer | None:
        """The kept answer to this very question; None where there is none that can be read."""
        try:
            path = self._path(source, want)
            if path.stat().st_size > MOST_BYTES:
                return None
            found = own_answers(decode_object(path.read_bytes(), "the kept answer"))
        except (OSError, ProviderError, ValueError):
            return None
        return found[0] if len(found) == 1 and found[0].source == source else None

    def write(self, answer: Answer, want: Want) -> None:
        """Keep an answer. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = dump_answers([answer]).encode()
        if len(content) > MOST_BYTES:
            return
        handle, name = tempfile.mkstemp(prefix=".new-", dir=self.folder)  # mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).replace(self._path(answer.source, want))
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
        self._shrink()

    def _path(self, source: str, want: Want) -> Path:
        ordered = replace(
            want,
            instance_types=tuple(sorted(set(want.instance_types))),
            regions=tuple(sorted(set(want.regions))),
        )
        asked = json.dumps([source, asdict(ordered)], sort_keys=True)
        return self.folder / f"{source}-{hashlib.sha256(asked.encode()).hexdigest()[:32]}.json"

    def _shrink(self) -> None:
        kept = 0
        found = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
        for _mtime, size, path in sorted(found, reverse=True):
            kept += size
            if kept > MOST_BYTES:
                with contextlib.suppress(OSError):
                    path.unlink()


class Cached:
    """A source that is asked only when its last answer is older than ``ttl_s`` seconds.

    When the source then gives nothing, the old answer is served with ``cached`` set, and its age is said.
    """

    def __init__(self, source: Source, store: Store, clock: Clock, ttl_s: float | None = None) -> None:
        self.name = source.name
        self._source = source
        self._store = store
        self._clock = clock
        self._ttl_s = OWN_TTL_S.get(source.name, TTL_S) if ttl_s is None else ttl_s

    async def ask(self, want: Want, deadline: float) -> Answer:
        """The kept answer while it is fresh, else the source's. Never raises for the weather."""
        kept = await asyncio.to_thread(self._store.read, self.name, want)
        age = self._clock.wall() - kept.at if kept else 0.0
        if kept and 0 <= age < (self._ttl_s if kept.complete else min(self._ttl_s, PARTIAL_TTL_S)):
            return replace(kept, cached=True)
        asked = await self._source.ask(want, deadline)
        if asked.quotes or asked.risks:
            return await self._keep(asked, kept, age, want)
        if not asked.complete and kept and 0 <= age < STALE_S:
            said = f"{self.name}: as answered {_length(age)} ago, as it gives nothing now"
            return replace(kept, cached=True, complete=False, lacks=(*asked.lacks, said, *kept.lacks))
        return asked

    async def close(self) -> None:
        """Close the source."""
        await self._source.close()

    async def _keep(self, asked: Answer, kept: Answer | None, age: float, want: Want) -> Answer:
        """Keep ``asked``, unless it lacks something that a kept answer of today has."""
        if not asked.complete and kept and kept.complete and 0 <= age < 86400.0:
            return asked
        try:
            await asyncio.to_thread(self._store.write, asked, want)
        except OSError as exc:
            said = f"{self.name}: not kept for the next time: {exc.strerror or type(exc).__name__}"
            return replace(asked, lacks=(*asked.lacks, said))
        return asked


def _length(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.0f} days"
