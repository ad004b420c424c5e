"""The primary's long actions: commit, ship, hand over, fence. At most one of a kind; each safe to repeat.

Their outcome is a fact for the next plan. Weather (the peer, the disk) becomes a sentence and a time to try
again; anything else is reported as a bug, and the daemon lives on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from outlast.daemon.checkpoint.commit import CommitError, CommitOrder, commit
from outlast.daemon.checkpoint.destinations import Refused, Shipped, Unreachable
from outlast.daemon.checkpoint.recovery import left_behind
from outlast.daemon.checkpoint.retention import prune
from outlast.daemon.core import parts
from outlast.daemon.core import state as job_state
from outlast.daemon.core.facts import Commit, PeerFact, Place, Role
from outlast.daemon.core.job import Job
from outlast.daemon.core.record import Record
from outlast.daemon.core.stores import Replicas
from outlast.daemon.core.tally import Tally
from outlast.daemon.ship.link import Peer
from outlast.providers.base import Clock
from outlast.wire.manifest import PARTIAL_SUFFIX, Manifest, read
from outlast.wire.messages import StandDown
from outlast.wire.store import Committed, epoch_folder

log = structlog.get_logger("outlast.job")

RETRY_S = (1.0, 2.0, 5.0, 15.0, 30.0)


class Errands:
    """Runs long actions. ``stores``: where committed checkpoints lie, this node's own first."""

    def __init__(
        self,
        job: Job,
        peer: Peer | None,
        stores: Sequence[Path],
        state_file: Path,
        clock: Clock,
        record: Record,
    ) -> None:
        self._job = job
        self._peer = peer
        self._stores = tuple(stores)
        self._state_file = state_file
        self._clock = clock
        self._record = record
        self._running: dict[str, tuple[asyncio.Task[None], Place | None]] = {}
        self._failures = 0
        self._retry_at = 0.0
        self._failed_at = 0.0
        self._not_before: dict[str, float] = {}
        self._because = ""
        self._at_peer: Place | None = None
        # The newest that was committed in this life: of an older one parts may be at the peer already.
        self._own: Place | None = None
        self._following: tuple[str, asyncio.Future[Committed]] | None = None
        self.sent = (0, 0)
        self.waiting: tuple[str, ...] = ()
        self._waits = 0
        self.shipped = Tally()
        self.replicas: Replicas | None = None
        self._pruning = asyncio.Lock()

    @property
    def in_flight(self) -> dict[str, Place | None]:
        """What runs now, by name."""
        return {name: place for name, (_, place) in self._running.items()}

    @property
    def unsent(self) -> int | None:
        """Bytes that the transfer under way still has to send; None without one."""
        sent, total = self.sent
        return max(0, total - sent) if "ship" in self._running else None

    @property
    def safe(self) -> bool:
        """Nothing more of this job is to be saved here: handed over, or its newest is at the peer."""
        if self._job.state.role is not Role.PRIMARY:
            return True
        notice, newest = self._job.notice, self._job.newest
        if notice is None or newest is None or newest.flush_id != notice.episode:
            return False
        if self._peer is None:
            return self.replicas is None or self.replicas.some_store_has(newest.order)
        return self._at_peer is not None and self._at_peer.order >= newest.order

    @property
    def peer_name(self) -> str:
        """Host and port of the peer, empty without one."""
        return self._peer.name if self._peer is not None else ""

    def peer_fact(self) -> PeerFact | None:
        """The peer as the plan sees it, or None where none is configured."""
        if self._peer is None:
            return None
        seen = self._peer.state
        newest = Place(*seen.newest) if seen.newest else None
        if self._at_peer and (newest is None or newest.order < self._at_peer.order):
            newest = self._at_peer
        because = (self._because if self._owes(newest) else "") or seen.because
        return PeerFact(seen.reachable, because, newest, seen.fence, self._next_try(), self.waiting)

    def _owes(self, there: Place | None) -> bool:
        """The peer is to get something from here yet; else what failed before does not matter any more."""
        job = self._job
        if job.state.role is not Role.PRIMARY or job.newest is None:
            return False
        return job.notice is not None or there is None or there.order < job.newest.order

    def _next_try(self) -> float:
        """A wait that began before the notice is cut to the shortest one."""
        notice_since = self._job.notice_since
        if notice_since is None:
            return self._retry_at
        return min(self._retry_at, max(notice_since, self._failed_at + RETRY_S[0]))

    def start(
        self, group: asyncio.TaskGroup, name: str, work: Coroutine[Any, Any, None], place: Place | None = None
    ) -> None:
        """Begin an errand unless one of its kind runs already, or has just failed in an unexpected way."""
        if name in self._running or self._clock.monotonic() < self._not_before.get(name, 0.0):
            work.close()
            return
        task = group.create_task(self._guard(name, work), name=f"{self._job.name}:{name}")
        self._running[name] = (task, place)

    def stop(self, name: str) -> None:
        """Cut an errand; what it had sent is kept by the peer."""
        if name in self._running:
            self._running[name][0].cancel()

    async def _guard(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """The one choke point: weather becomes a fact, a bug is reported and the daemon lives on."""
        try:
            await work
        except (Unreachable, Refused) as exc:
            await self._peer_failed(name, exc)
        except Exception:  # a bug is reported; the protector lives on
            self._back_off("an unexpected error, see the log")
            self._not_before[name] = self._retry_at
            if name == "commit":
                self._job.commit_failed = "an unexpected error, see the log"
            log.exception("unexpected_error", job=self._job.name, action=name, hint="please report this")
        finally:
            self._running.pop(name, None)
            self._job.changed.set()

    async def _peer_failed(self, name: str, exc: Unreachable | Refused) -> None:
        self._back_off(str(exc))
        self.shipped.failures += name == "ship"
        log.warning("peer_failed", job=self._job.name, action=name, because=str(exc))
        self._record.event("ship_failed", self._job.name, action=name, because=str(exc))
        if isinstance(exc, Refused) and exc.code == "fenced" and self._peer is not None:
            try:
                await self._peer.ask_state()
            except (Unreachable, Refused):
                return  # the next attempt tells

    def _back_off(self, because: str) -> None:
        # Under a notice there is no time for patience.
        step = 0 if self._job.notice else min(self._failures, len(RETRY_S) - 1)
        wait = RETRY_S[step]
        self._failures += 1
        self._because = because
        self._failed_at = self._clock.monotonic()
        self._retry_at = self._failed_at + wait

    async def commit(self, action: Commit) -> None:
        job, flush = self._job, self._job.flush
        layout = job.ranks.layout
        if flush is None or layout is None or job.checkpoints is None:
            return
        self._record.event("saved", job.name, flush.id, tag=action.tag, step=action.step)
        self._record.flush(job.name, flush.id, "saved", tag=action.tag, step=action.step)
        order = CommitOrder(
            job.name,
            action.tag,
            action.step,
            job.state.epoch,
            flush.id,
            flush.cause.value,
            layout,
            job.part,
            job.ranks.numbers if job.part is not None else (),
        )
        try:
            done = await asyncio.to_thread(commit, job.checkpoints, order, self._clock.wall())
        except (CommitError, OSError) as exc:
            job.commit_failed = str(exc)
            job.commits.tell()
            log.error("commit_failed", job=job.name, tag=action.tag, because=str(exc))
            return
        self._committed(done, flush.id)
        if self._peer is None:
            await self._prune((done.epoch, done.step))

    def _committed(self, done: Committed, flush_id: str) -> None:
        job = self._job
        size = done.manifest.total_bytes
        place = Place(done.epoch, done.tag, done.step, flush_id, size, done.manifest.created)
        self._own = place
        self._hand_on(done)
        hold = job.flush is not None and job.flush.hold
        if not hold:
            job.ranks.send(StandDown("committed", "train", flush_id, committed=True))
        job.flush_ended(place, "")
        if job.held_elsewhere:
            job.alarm.set()
        log.info("committed", job=job.name, tag=place.tag, step=place.step, bytes=size)
        self._record.event("committed", job.name, flush_id, tag=place.tag, step=place.step, bytes=size)
        self._record.flush(job.name, flush_id, "committed", tag=place.tag, step=place.step, bytes=size)

    async def ship(self, place: Place) -> None:
        job = self._job
        assert self._peer is not None
        self.sent = (0, place.size)
        if job.part is not None and job.checkpoints is not None:
            found = await parts.look(self._peer, job.checkpoints, job.part, place)
            if not isinstance(found, parts.Next):
                await self._part_lies_there(place, found)
                return
            place = found.place
            self._running["ship"] = (self._running["ship"][0], place)
        folder, manifest = await asyncio.to_thread(_locate, self._stores, place)
        self._began(place, manifest.total_bytes)
        anew = self._failures == 0 and place == self._own
        self.sent = (0, manifest.total_bytes)
        shipped = await self._peer.ship(Committed(folder, place.tag, manifest), self._progress)
        # What a transfer that broke off, here or in an earlier life, had sent is not sent again, and says
        # nothing of the next one.
        if anew:
            job.flush_bytes, job.early_bytes = shipped.bytes_sent, 0
        await self._arrived(place, shipped)

    async def _part_lies_there(self, place: Place, found: parts.Whole | parts.Waits) -> None:
        """Nothing is to be sent: this node's part of its newest checkpoint is at the peer."""
        if isinstance(found, parts.Waits):
            self._wait_for(place, found.nodes)
            return
        self._at_peer, self.waiting = place, ()
        self._failures, self._because, self._retry_at = 0, "", 0.0
        self._record.event("whole_at_peer", self._job.name, place.flush_id, tag=place.tag, step=place.step)
        log.info("whole_at_peer", job=self._job.name, tag=place.tag)
        await self._prune(place.order)

    def _wait_for(self, place: Place, nodes: tuple[str, ...]) -> None:
        """The peer has this node's part and lacks others': it is asked again, less and less often."""
        self._waits = self._waits + 1 if self.waiting else 0
        if nodes != self.waiting:
            log.info("waiting_for_parts", job=self._job.name, tag=place.tag, nodes=", ".join(nodes))
        self.waiting, self._because, self._failures = nodes, "", 0
        self._failed_at = self._clock.monotonic()
        self._retry_at = self._failed_at + RETRY_S[min(self._waits, len(RETRY_S) - 1)]

    def follow(self, group: asyncio.TaskGroup, step: int) -> None:
        """While the ranks save ``step``, send what they write, if the peer is there and nothing else goes."""
        job, peer = self._job, self._peer
        if peer is None or not peer.streams or not peer.state.reachable:
            return
        if job.checkpoints is None or job.part is not None or "ship" in self._running:
            return
        tag, done = f"global_step{step}", asyncio.get_running_loop().create_future()
        folder = epoch_folder(job.checkpoints, job.state.epoch) / f"{tag}{PARTIAL_SUFFIX}"
        self._following = (tag, done)
        self.start(group, "ship", self._follow((job.state.epoch, tag), folder, done))

    def unfollow(self) -> None:
        """What the ranks are saving is not going to be committed."""
        if self._following is not None:
            self._following = None
            self.stop("ship")

    async def _follow(self, place: tuple[int, str], folder: Path, done: asyncio.Future[Committed]) -> None:
        assert self._peer is not None
        self._record.event("ship_early", self._job.name, tag=place[1])
        self.sent = (0, 0)
        shipped = await self._peer.stream(place, folder, done, self._progress)
        self._job.flush_bytes, self._job.early_bytes = shipped.bytes_sent, shipped.early
        await self._arrived(self._place(done.result()), shipped)

    def _place(self, done: Committed) -> Place:
        return Place(done.epoch, done.tag, done.step, done.manifest.flush_id, done.manifest.total_bytes)

    def _hand_on(self, done: Committed) -> None:
        """What was followed is committed: the same transfer goes on with it."""
        following, self._following = self._following, None
        if following is None or "ship" not in self._running or following[1].done():
            return
        if following[0] != done.tag:
            self.stop("ship")
            return
        place = self._place(done)
        self._running["ship"] = (self._running["ship"][0], place)
        self.sent = (0, place.size)
        self._began(place, place.size)
        following[1].set_result(done)

    def _began(self, place: Place, size: int) -> None:
        peer = self._peer.name if self._peer else ""
        self._record.event("ship_began", self._job.name, place.flush_id, tag=place.tag, bytes=size)
        self._record.ship(self._job.name, place.epoch, place.tag, peer, "began", bytes=size)

    async def _arrived(self, place: Place, shipped: Shipped) -> None:
        """The peer has committed it: what was measured on the way counts from now on."""
        rate = None if self._job.bulk_was_paused(shipped.seconds) else shipped.bytes_s
        self._job.ship_bytes_s = rate or self._job.ship_bytes_s
        if shipped.waiting:
            self._record.event("part_at_peer", self._job.name, place.flush_id, tag=place.tag, step=place.step)
            self.shipped.arrived(shipped.bytes_sent, shipped.seconds)
            self._wait_for(place, shipped.waiting)
            return
        if self._job.part is not None and self._job.checkpoints is not None:
            await asyncio.to_thread(parts.note_whole, self._job.checkpoints, place)
        self._at_peer, self.waiting = place, ()
        self._failures, self._because, self._retry_at = 0, "", 0.0
        self.shipped.arrived(shipped.bytes_sent, shipped.seconds)
        self._note_verified(place, shipped, rate)
        await self._prune(place.order)

    def _note_verified(self, place: Place, shipped: Shipped, rate: float | None) -> None:
        """``rate`` None: it was not measured, and the history, which later lives reckon with, says so."""
        job, peer = self._job, self._peer.name if self._peer else ""
        sent, seconds = shipped.bytes_sent, shipped.seconds
        figures, told = {"bytes": sent, "seconds": seconds}, {"tag": place.tag, "step": place.step}
        sending = {"sending_s": shipped.sending_s}
        self._record.event("verified", job.name, place.flush_id, **told, **figures, **sending)
        way = {"bytes": sent, "seconds": sent / rate if rate else 0.0}
        self._record.ship(job.name, place.epoch, place.tag, peer, "verified", **way)
        log.info("verified_at_peer", job=job.name, tag=place.tag, bytes=sent, seconds=round(seconds, 3))

    async def stored(self) -> None:
        """A store has a checkpoint that it had not: older ones may go here."""
        await self._prune((0, 0))

    def _progress(self, sent: int, total: int) -> None:
        if sent >= total > 0 and self.sent != (sent, total):
            place = self._running.get("ship", (None, None))[1]
            self._record.event("shipped", self._job.name, tag=place.tag if place else "", bytes=sent)
        self.sent = (sent, total)

    async def _prune(self, safe: tuple[int, int]) -> None:
        """Older checkpoints go once ``safe`` is committed where it counts; never the newest two.

        Where that is: at the peer, or here if there is none; with stores, wherever the user requires it. A
        notice has better uses for the disk's time.
        """
        may_go = self.replicas.may_go() if self.replicas is not None else safe
        if self._job.checkpoints is None or self._job.notice is not None or may_go is None:
            return
        async with self._pruning:
            gone = await asyncio.to_thread(prune, self._job.checkpoints, 2, {may_go})
            if self._own is not None:  # all ranks are past it: what they did not finish before goes too
                gone += await asyncio.to_thread(left_behind, self._job.checkpoints, self._own.order)
        for sentence in gone:
            log.info("pruned", job=self._job.name, what=sentence)

    async def hand_over(self, place: Place) -> None:
        assert self._peer is not None
        current = self._job.state.epoch
        epoch = await self._peer.hand_over(place.epoch, place.tag, place.step, current)
        self._record.event("handed_over", self._job.name, place.flush_id, tag=place.tag, epoch=epoch)
        why = f"{place.tag} was handed over to {self._peer.name}, which goes on in epoch {epoch}"
        await self.fence(why, epoch)

    async def fence(self, why: str, epoch: int) -> None:
        """This node's epoch is over, ``epoch`` exists: durable before anybody is told."""
        await self._become(Role.FENCED, why, epoch)
        log.warning("fenced", job=self._job.name, because=why)

    async def retire(self) -> None:
        """From fenced to standby: the job may come back."""
        await self._become(Role.STANDBY, self._job.state.because, 0)

    async def _become(self, role: Role, why: str, epoch: int) -> None:
        state = self._job.state
        new = replace(state, role=role, because=why, highest=max(state.highest, epoch))
        await asyncio.to_thread(job_state.save, self._state_file, new)
        self._job.became(new)


def _locate(stores: Sequence[Path], place: Place) -> tuple[Path, Manifest]:
    for store in stores:
        folder = epoch_folder(store, place.epoch)
        if (folder / place.tag).is_dir():
            return folder, read(folder / place.tag)
    raise FileNotFoundError(f"{place.tag} of epoch {place.epoch} is gone from {', '.join(map(str, stores))}")
