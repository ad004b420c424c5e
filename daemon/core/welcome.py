"""Answering ranks that say hello: resume here, wait on a standby, or leave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import structlog

from outlast.daemon.core.facts import Place, Role
from outlast.daemon.core.job import Job
from outlast.daemon.core.record import Record
from outlast.daemon.core.trainers import Connection
from outlast.wire.messages import Park, Resume, StandDown
from outlast.wire.store import Committed, newest_whole

log = structlog.get_logger("outlast.job")


class Welcome:
    """Answers each hello once. ``stores``: where to look for the newest checkpoint, this node's own first."""

    def __init__(self, job: Job, stores: Sequence[Path], record: Record) -> None:
        self._job = job
        self._stores = tuple(stores)
        self._record = record
        self._parked: set[Connection] = set()
        self._search: asyncio.Task[None] | None = None
        self.dismissed: set[Connection] = set()

    @property
    def parked(self) -> int:
        """How many connected ranks wait for a takeover."""
        return len(self._parked & set(self._job.ranks))

    def answer(self, group: asyncio.TaskGroup) -> None:
        """Answer all who have joined since; looking for a checkpoint happens in a task of ``group``."""
        joining, self._job.joining = self._job.joining, []
        current = set(self._job.ranks)
        self._parked &= current
        self.dismissed &= current
        for connection in joining:
            self._answer(connection)
        if self._job.state.role is Role.PRIMARY and self._parked and self._search is None:
            self._search = group.create_task(self._resume(), name=f"{self._job.name}:resume")

    def _answer(self, connection: Connection) -> None:
        role, epoch, hello = self._job.state.role, self._job.state.epoch, connection.hello
        if role is Role.FENCED or (hello.epoch > 0 and hello.epoch != epoch):
            self.dismissed.add(connection)
            why = self._job.state.because or f"this node is in epoch {epoch}, the trainer in {hello.epoch}"
            connection.send(StandDown(why, "exit"))
        elif hello.epoch > 0 and role is Role.PRIMARY:
            connection.send(Resume(epoch))
            for words in self._job.flush_words():
                connection.send(words)
        else:
            wait = (
                "looking for the newest checkpoint" if role is Role.PRIMARY else "standby: the primary trains"
            )
            connection.send(Park(wait))
            self._parked.add(connection)

    def dismiss(self, reason: str) -> None:
        """Send parked ranks home."""
        for connection in self._parked:
            connection.send(StandDown(reason, "exit"))

    async def _resume(self) -> None:
        try:
            found = await asyncio.to_thread(_newest, self._stores)
        finally:
            self._search = None
        job = self._job
        step = found.step if found else 0
        resume = Resume(job.state.epoch, *((str(found.folder), found.tag, step) if found else ()))
        waiting = self._parked & set(job.ranks)
        late = len(waiting) < len(job.ranks)
        for connection in waiting:
            connection.send(resume)
        self._parked -= waiting
        if late:
            return  # its trainer has been told, and counted, already
        tag = found.tag if found else ""
        job.expect_first_step(step, tag, _whose(found, job.checkpoints))
        if found is not None:
            job.found(_place(found))
        log.info("resume", job=job.name, tag=tag, step=step, epoch=job.state.epoch)
        self._record.event("resumed", job.name, tag=tag, step=step, epoch=job.state.epoch)


def _place(found: Committed) -> Place:
    manifest = found.manifest
    size = manifest.total_bytes
    return Place(found.epoch, found.tag, found.step, manifest.flush_id, size, manifest.created)


def _whose(found: Committed | None, own: Path | None) -> str:
    """Whose store a checkpoint lies in: "own", or "replica" for one that the peer sent."""
    if found is None:
        return ""
    return "own" if own is not None and found.path.is_relative_to(own) else "replica"


def _newest(stores: Sequence[Path]) -> Committed | None:
    """The newest checkpoint that verifies, over all stores."""
    found = [c for store in stores if (c := newest_whole(store)) is not None]
    return max(found, key=lambda c: (c.epoch, c.step), default=None)
