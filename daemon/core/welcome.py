"""Answering ranks that say hello: resume here, wait on a standby, or leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from outlast.daemon.checkpoint.choosing import Candidate, Go, Refuse
from outlast.daemon.core import state as job_state
from outlast.daemon.core.facts import Place, Role
from outlast.daemon.core.job import Job
from outlast.daemon.core.record import Record
from outlast.daemon.core.search import Search, Settled, Stuck
from outlast.daemon.core.sources import Source
from outlast.daemon.core.state import FIRST_START
from outlast.daemon.core.trainers import Connection
from outlast.wire.fit import World, world_of
from outlast.wire.messages import Park, Resume, StandDown
from outlast.wire.store import Committed, epochs

log = structlog.get_logger("outlast.job")

# How often ranks hear how far a fetch has come.
TELL_S = 5.0


class Welcome:
    """Answers each hello once. ``stores``: where to look for the newest checkpoint, this node's own first."""

    def __init__(self, job: Job, stores: Sequence[Path], record: Record) -> None:
        self._job = job
        self._stores = tuple(stores)
        self._record = record
        self._places = Search(self._stores, on_fetch=self._fetching, nodes=job.nodes)
        self._state_file: Path | None = None
        self._fence: Callable[[], int] = lambda: 0
        self._parked: set[Connection] = set()
        self._search: asyncio.Task[None] | None = None
        self._told_at = 0.0
        self.dismissed: set[Connection] = set()

    def look_elsewhere(self, sources: Sequence[Source], state_file: Path, fence: Callable[[], int]) -> None:
        """From now on look at these places as well. ``fence`` gives the peer's, as far as it is known."""
        self._places = Search(self._stores, sources, on_fetch=self._fetching, nodes=self._job.nodes)
        self._state_file, self._fence = state_file, fence

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

    # ---- where the job goes on

    async def _resume(self) -> None:
        try:
            settled = await self._settle()
            if settled is not None and not self._not_ours():
                await self._tell_all(settled)
        finally:
            self._search = None

    async def _settle(self) -> Settled | None:
        job = self._job
        layout = job.ranks.layout
        fresh = await asyncio.to_thread(self._fresh)
        return await self._places.settle(
            world_of(layout) if layout else World(),
            None if fresh else job.state.epoch,
            # A takeover has decided where the job goes on: at a replica that is here.
            elsewhere=job.state.started_epoch >= job.state.epoch,
            ranks=job.ranks.numbers,
            stop=self._not_ours,
            progress=self._progress,
        )

    def _not_ours(self) -> bool:
        """Another node has the job, or is about to: the plan fences this one, and that answers the ranks."""
        state = self._job.state
        return state.role is not Role.PRIMARY or self._fence() > state.epoch

    def _fresh(self) -> bool:
        """Whether this node knows its epoch from its configuration alone, and has nothing of it.

        Then the epoch is what the places hold, as it is where the daemon starts with a filled store.
        """
        state = self._job.state
        held = [epoch for store in self._stores for epoch, _ in epochs(store)]
        return (
            self._state_file is not None
            and state.because == FIRST_START
            and all(epoch > state.epoch for epoch in held)
        )

    async def _tell_all(self, settled: Settled) -> None:
        decision = settled.decision
        for sentence in decision.passed:
            log.warning("passed_over", job=self._job.name, because=sentence)
        if isinstance(decision, (Refuse, Stuck)):
            self._refuse(_reason(decision))
            return
        found = settled.committed
        if isinstance(decision, Go) and settled.came:
            self._fetched(decision.candidate, settled)
        if found is not None and found.epoch > self._job.state.epoch:
            await self._go_on_in(found.epoch)
        self._send_resume(found)

    def _refuse(self, why: str) -> None:
        """Nothing is trained that would not go on from the newest checkpoint."""
        for connection in self._parked & set(self._job.ranks):
            self.dismissed.add(connection)
            connection.send(StandDown(why, "exit", refused=True))
        self._parked.clear()
        log.error("resume_refused", job=self._job.name, because=why)
        self._record.event("resume_refused", self._job.name, because=why)

    def _send_resume(self, found: Committed | None) -> None:
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

    async def _go_on_in(self, epoch: int) -> None:
        """A fresh node goes on in the epoch that it found; durable before anybody is told."""
        assert self._state_file is not None
        state = self._job.state
        new = replace(state, epoch=epoch, started_epoch=epoch, highest=max(state.highest, epoch))
        await asyncio.to_thread(job_state.save, self._state_file, new)
        self._job.became(new)

    def _fetching(self, chosen: Candidate) -> None:
        manifest, self._told_at = chosen.manifest, 0.0
        job, tag, size = self._job.name, manifest.tag, manifest.total_bytes
        log.info("fetching", job=job, tag=tag, bytes=size, place=chosen.place)
        self._record.event("fetching", job, tag=tag, step=manifest.step, bytes=size, place=chosen.place)

    def _fetched(self, chosen: Candidate, settled: Settled) -> None:
        job, tag, seconds = self._job.name, chosen.manifest.tag, round(settled.seconds, 3)
        log.info("fetched", job=job, tag=tag, bytes=settled.came, seconds=seconds, place=chosen.place)
        told = {"tag": tag, "bytes": settled.came, "seconds": seconds, "place": chosen.place}
        self._record.event("fetched", job, "", **told)

    def _progress(self, there: int, total: int) -> None:
        """Those who wait hear now and then how far it has come."""
        now = time.monotonic()
        if now - self._told_at >= TELL_S:
            self._told_at = now
            words = f"fetching the newest checkpoint: {there / 1e9:.2f} of {total / 1e9:.2f} GB are here"
            for connection in self._parked & set(self._job.ranks):
                connection.send(Park(words))


def _reason(decision: Refuse | Stuck) -> str:
    if isinstance(decision, Refuse):
        return f"{decision.because}; {decision.advice}"
    return f"{decision.candidate.words} cannot be fetched: {decision.because}"


def _place(found: Committed) -> Place:
    manifest = found.manifest
    size = manifest.total_bytes
    return Place(found.epoch, found.tag, found.step, manifest.flush_id, size, manifest.created)


def _whose(found: Committed | None, own: Path | None) -> str:
    """Whose store a checkpoint lies in: "own", or "replica" for one that the peer sent."""
    if found is None:
        return ""
    return "own" if own is not None and found.path.is_relative_to(own) else "replica"
