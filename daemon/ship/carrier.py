"""How a checkpoint's bytes get to the peer: which way, over how many sessions, and how fast."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh

from outlast.daemon.checkpoint.destinations import Count, Progress, Shipped, Unreachable
from outlast.daemon.checkpoint.place import Step, no_step
from outlast.daemon.ship.dial import PeerSettings
from outlast.daemon.ship.early import firsts, follow
from outlast.daemon.ship.fetching import Fetching
from outlast.daemon.ship.limit import Limit
from outlast.daemon.ship.openssh import OpenSsh
from outlast.daemon.ship.rsync import Rsync
from outlast.daemon.ship.session import Channels, Opener
from outlast.daemon.ship.shipment import Landed, Shipment, check_here, unsent
from outlast.daemon.ship.transfer import Transfer
from outlast.daemon.ship.way import Way
from outlast.providers.base import Clock
from outlast.wire.manifest import Manifest
from outlast.wire.store import Committed, scan_epoch

# Below this many bytes a client of its own costs more time to start than it wins.
OPENSSH_BYTES = 64 * 1024 * 1024
# One session moves at most its window each round trip; so many more of them are worth it every 10 ms.
_RTT_A_SESSION_S = 0.01
_LEAST_SESSIONS = 2


class Carrier:
    """Carries checkpoints to one peer over a connection that stands. ``rtt_s``: a round trip to it."""

    def __init__(self, settings: PeerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._openssh = OpenSsh(settings)
        self._limit = Limit(settings.limit_bytes_s, clock)
        self._before: dict[str, bytes] = {}
        self._last_bytes = 0
        self.rtt_s = 0.0

    def pause_with(self, paused: Callable[[], float]) -> None:
        """See Peer.pause_with."""
        self._limit.paused = paused

    async def ship(
        self, connection: asyncssh.SSHClientConnection, committed: Committed, progress: Progress | None
    ) -> Shipped:
        """See Peer.ship."""
        await check_here(committed, digests=False)
        if self._settings.bulk == "rsync":
            return await self._by_rsync(connection, committed, progress)
        opener = self._opener(connection, committed.manifest.total_bytes)
        return await self._ship(connection, opener, committed, progress)

    def back(
        self, connection: asyncssh.SSHClientConnection, manifest: Manifest, step: Step = no_step
    ) -> Fetching:
        """What brings a checkpoint that is committed at the peer. Its own way, as nothing is held back."""
        return Fetching(self._opener(connection, manifest.total_bytes), manifest, self._sessions(), step)

    async def stream(
        self,
        connection: asyncssh.SSHClientConnection,
        place: tuple[int, str],
        folder: Path,
        done: asyncio.Future[Committed],
        progress: Progress | None,
    ) -> Shipped:
        """See Peer.stream."""
        count = _Timed(progress, self._clock)
        await self._recall(place[0], folder.parent)
        opener = self._opener(connection, self._last_bytes)
        transfer = Transfer(opener, place, folder, self._sessions(), self._limit, count.add)
        async with self._running(connection, transfer):
            following = asyncio.create_task(follow(transfer, folder, self._before))
            try:
                committed = await done
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            early, began = transfer.bytes_sent, self._clock.monotonic()
            landed = await self._deliver(connection, transfer, committed, count, lend=False)
            took = self._clock.monotonic() - began
            return Shipped(transfer.bytes_sent, landed.bytes, took, early, count.seconds, landed.waiting)

    async def _ship(
        self,
        connection: asyncssh.SSHClientConnection,
        opener: Opener,
        committed: Committed,
        progress: Progress | None,
    ) -> Shipped:
        began = self._clock.monotonic()
        count = _Timed(progress, self._clock)
        place = (committed.epoch, committed.staged)
        transfer = Transfer(opener, place, committed.path, self._sessions(), self._limit, count.add)
        async with self._running(connection, transfer):
            lend = isinstance(opener, Channels)
            if not lend:
                transfer.warm(committed.manifest.total_bytes)
            landed = await self._deliver(connection, transfer, committed, count, lend=lend)
            took, sending_s = self._clock.monotonic() - began, count.seconds
            return Shipped(
                transfer.bytes_sent, landed.bytes, took, sending_s=sending_s, waiting=landed.waiting
            )

    async def _deliver(
        self,
        connection: asyncssh.SSHClientConnection,
        transfer: Transfer,
        committed: Committed,
        count: _Timed,
        *,
        lend: bool,
    ) -> Landed:
        keep = self._settings.keep
        async with Shipment(Channels(connection), transfer, committed, self._clock, keep) as shipment:
            wanted = await shipment.offer()
            size = committed.manifest.total_bytes
            count.begin(size, size - unsent(wanted, committed))
            await shipment.feed(wanted, lend=lend)
            landed = await shipment.settle()
        count.finish()
        await self._remember(committed)
        return landed

    async def _remember(self, committed: Committed) -> None:
        """What the next checkpoint is likely to be like: its size, and which of its files will not change."""
        self._before = await asyncio.to_thread(firsts, committed)
        self._last_bytes = committed.manifest.total_bytes

    async def _recall(self, epoch: int, folder: Path) -> None:
        """After a restart the same, of the newest checkpoint that is committed here."""
        if self._last_bytes:
            return
        known = await asyncio.to_thread(scan_epoch, folder, epoch)
        if known:
            await self._remember(max(known, key=lambda item: item.step))

    async def _by_rsync(
        self, connection: asyncssh.SSHClientConnection, committed: Committed, progress: Progress | None
    ) -> Shipped:
        began = self._clock.monotonic()
        count = _Timed(progress, self._clock)
        opener = Channels(connection)
        transfer = Transfer(
            opener, (committed.epoch, committed.staged), committed.path, 1, self._limit, count.add
        )
        async with (
            self._running(connection, transfer),
            Shipment(opener, transfer, committed, self._clock, self._settings.keep) as shipment,
        ):
            wanted = await shipment.offer()
            size, left = committed.manifest.total_bytes, unsent(wanted, committed)
            count.begin(size, size - left)
            if wanted:
                await Rsync().send(opener, committed, wanted, count.add)
            landed = await shipment.settle()
        count.finish()
        took, sending_s = self._clock.monotonic() - began, count.seconds
        return Shipped(left, landed.bytes, took, sending_s=sending_s, waiting=landed.waiting)

    def _opener(self, connection: asyncssh.SSHClientConnection, size: int) -> Opener:
        kind, channels = self._settings.bulk, Channels(connection)
        if kind == "openssh":
            return self._openssh
        if kind == "auto" and size >= OPENSSH_BYTES and self._openssh.works is not False:
            return Way(self._openssh, channels)
        return channels

    def _sessions(self) -> int:
        worth = max(_LEAST_SESSIONS, 1 + math.ceil(self.rtt_s / _RTT_A_SESSION_S))
        return min(self._settings.channels, worth)

    @asynccontextmanager
    async def _running(
        self, connection: asyncssh.SSHClientConnection, transfer: Transfer
    ) -> AsyncIterator[None]:
        """The transfer's workers, and an end to all of it when the connection breaks."""

        async def watch() -> None:
            await connection.wait_closed()
            raise Unreachable("the connection to the peer broke in mid-transfer")

        async with transfer.running(watch()):
            yield


class _Timed(Count):
    """Counts, and knows when the first bytes had left; begins before it is known how many there are."""

    def __init__(self, progress: Progress | None, clock: Clock) -> None:
        super().__init__(0, progress)
        self._clock = clock
        self._first_at: float | None = None

    @property
    def seconds(self) -> float:
        """Since the first bytes had left; 0 if there were none."""
        return 0.0 if self._first_at is None else self._clock.monotonic() - self._first_at

    def add(self, count: int) -> None:
        """So many more were sent."""
        if self._first_at is None:
            self._first_at = self._clock.monotonic()
        super().add(count)
