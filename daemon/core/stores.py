"""Stores beside the peer: each has a task of its own, and no failure of one touches anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.core.facts import PeerFact, Place
from outlast.daemon.core.job import Job
from outlast.daemon.core.lag import Lag
from outlast.daemon.core.record import Record
from outlast.daemon.core.replicas import (
    Cut,
    Order,
    Require,
    Rest,
    Send,
    StoreAction,
    StoreFacts,
    Tidy,
    decide,
    may_go,
)
from outlast.daemon.core.tally import Tally
from outlast.daemon.store.destination import StoreDestination
from outlast.providers.base import Clock
from outlast.wire.manifest import ManifestError, read
from outlast.wire.store import Committed, epoch_folder

log = structlog.get_logger("outlast.stores")

RETRY_S = (1.0, 5.0, 15.0, 30.0, 60.0)
# Facts that no event announces: a notice, a role, the peer.
LOOK_S = 1.0
# What dead uploads left is looked for again after this long, even if nothing new was sent.
TIDY_S = 3600.0


class StoreKeeper:
    """Keeps one store of one job up to date with the newest checkpoint committed here."""

    def __init__(
        self,
        job: Job,
        destination: StoreDestination,
        folders: Sequence[Path],
        peer: Callable[[], PeerFact | None],
        clock: Clock,
        record: Record,
    ) -> None:
        self.destination = destination
        self._job = job
        self._folders = tuple(folders)
        self._peer = peer
        self._clock = clock
        self._record = record
        self._wake = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._tidy_at = 0.0
        self.because = ""
        self.shipping: Place | None = None
        self.sent = (0, 0)
        self.shipped = Tally()
        self.arrived: Callable[[], Awaitable[None]] | None = None
        job.commits.listeners.append(self._wake.set)

    @property
    def there(self) -> Place | None:
        """The newest checkpoint it is known to have."""
        newest = self.destination.state.newest
        return Place(*newest) if newest else None

    @property
    def lag(self) -> Lag | None:
        """How far it is behind this node."""
        sent = self.sent[0] if self.shipping and self.shipping == self._job.newest else 0
        return self._job.commits.behind(self._job.newest, self.there, sent)

    async def run(self) -> None:
        """Watch the store and feed it, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.destination.run(), name=f"{self._job.name}:{self.destination.name}")
            while True:
                self._wake.clear()
                self._act(group, decide(self._facts()))
                await self._pause()

    def _facts(self) -> StoreFacts:
        job, now = self._job, self._clock.monotonic()
        return StoreFacts(
            now=now,
            role=job.state.role,
            newest=job.newest,
            there=self.there,
            shipping=self.shipping,
            notice=job.notice is not None,
            peer_first=self._peer_comes_first(),
            retry_at=self._retry_at,
            tidy=now >= self._tidy_at,
        )

    def _peer_comes_first(self) -> bool:
        peer, newest = self._peer(), self._job.newest
        if self._job.notice is None or peer is None or peer.reachable is False or newest is None:
            return False
        return self._job.flush is not None or peer.newest is None or peer.newest.order < newest.order

    def _act(self, group: asyncio.TaskGroup, action: StoreAction) -> None:
        match action:
            case Send(place):
                self._start(group, self._ship(place), place)
            case Tidy():
                self._start(group, self._tidy(), None)
            case Cut():
                if self._work is not None:
                    self._work.cancel()
            case Rest():
                return

    def _start(self, group: asyncio.TaskGroup, work: Any, place: Place | None) -> None:
        if self._work is not None:
            work.close()
            return
        self.shipping, self.sent = place, (0, place.size if place else 0)
        self._work = group.create_task(self._guard(work))

    async def _guard(self, work: Awaitable[None]) -> None:
        """The one choke point: whatever the store does becomes a sentence and a time to try again."""
        try:
            await work
        except (Unreachable, Refused, FileNotFoundError, ManifestError) as exc:
            self._failed(str(exc))
        except Exception:  # a bug is reported; the peer and the job do not feel it
            self._failed("an unexpected error, see the log")
            log.exception("unexpected_error", store=self.destination.name, hint="please report this")
        else:
            self._is_well()
        finally:
            self._work, self.shipping = None, None
            self._wake.set()

    def _failed(self, because: str) -> None:
        wait = RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self.shipped.failures += self.shipping is not None
        self._failures += 1
        self._retry_at = self._clock.monotonic() + (RETRY_S[0] if self._job.notice else wait)
        if because != self.because:
            log.warning("store_failed", job=self._job.name, store=self.destination.name, because=because)
            self._record.event("store_failed", self._job.name, store=self.destination.name, because=because)
        self.because = because

    def _is_well(self) -> None:
        self._failures, self._retry_at, self.because = 0, 0.0, ""

    async def _ship(self, place: Place) -> None:
        committed = await asyncio.to_thread(_locate, self._folders, place)
        done = await self.destination.ship(committed, self._progress)
        self._is_well()
        self._tidy_at = 0.0
        self.shipped.arrived(done.bytes_sent, done.seconds)
        figures = {"tag": place.tag, "bytes": done.bytes_sent, "seconds": round(done.seconds, 3)}
        log.info("stored", job=self._job.name, store=self.destination.name, **figures)
        self._record.event("stored", self._job.name, place.flush_id, store=self.destination.name, **figures)
        self.shipping = None  # it has arrived, and holds nothing back here
        if self.arrived is not None:
            await self.arrived()

    async def _tidy(self) -> None:
        for sentence in await self.destination.prune():
            log.info("pruned", job=self._job.name, store=self.destination.name, what=sentence)
        self._tidy_at = self._clock.monotonic() + TIDY_S

    def _progress(self, there: int, total: int) -> None:
        self.sent = (there, total)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                await self._wake.wait()
        except TimeoutError:
            return


class Replicas:
    """Where a job's checkpoints are besides here, and what that allows. ``peer`` gives the peer's facts."""

    def __init__(
        self, keepers: Sequence[StoreKeeper], peer: Callable[[], PeerFact | None], require: Require
    ) -> None:
        self.keepers = tuple(keepers)
        self._peer = peer
        self.require: Require = require

    def may_go(self) -> Order | None:
        """Checkpoints older than this may go here; None if none may."""
        peer = self._peer()
        held = [] if peer is None else [peer.newest]
        held += [keeper.there for keeper in self.keepers]
        under_way = [keeper.shipping.order for keeper in self.keepers if keeper.shipping]
        return may_go(self.require, [place.order if place else None for place in held], under_way)

    def some_store_has(self, order: Order) -> bool:
        """Whether a checkpoint so new is in at least one store."""
        return any(keeper.there is not None and keeper.there.order >= order for keeper in self.keepers)


def _locate(folders: Sequence[Path], place: Place) -> Committed:
    for folder in folders:
        epoch = epoch_folder(folder, place.epoch)
        if (epoch / place.tag).is_dir():
            return Committed(epoch, place.tag, read(epoch / place.tag))
    raise FileNotFoundError(f"{place.tag} of epoch {place.epoch} is gone from this node")
