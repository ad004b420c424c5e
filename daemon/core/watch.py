"""The watcher: the provider's sightings to the board, its changes to the jobs, the record and the log.

A sighting that is Unknown changes nothing but what is said about the watch itself: once when it goes blind,
loudly when it stays so, once when it sees again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from outlast.daemon.core import notices
from outlast.daemon.core.job import Job
from outlast.daemon.core.notices import Board, Change
from outlast.daemon.core.record import Record
from outlast.providers.base import Clock, Identity, Provider, ProviderError, Unknown, View

log = structlog.get_logger("outlast.watch")

BLIND_S = 60.0
IDENTIFY_AGAIN_S = 5.0
# How long a change waits to be on disk before the jobs hear of it; usually it takes about a millisecond.
KEEP_S = 0.1


class Watcher:
    """Watches one provider for all jobs of the node. The board's file makes deadlines survive a restart."""

    def __init__(
        self, provider: Provider, board: Board, file: Path, jobs: Sequence[Job], clock: Clock, record: Record
    ) -> None:
        self._provider = provider
        self._board = board
        self._file = file
        self._jobs = tuple(jobs)
        self._clock = clock
        self._record = record
        self._blind_since: float | None = None
        self._cried = False
        self._restored = False
        self.identity: Identity | None = None
        self.seen_at: float | None = None
        self.because = "not asked yet"

    @property
    def blind(self) -> bool:
        """The last word was an Unknown. Before the first word, which may take minutes, it is not."""
        return self._blind_since is not None

    async def restore(self) -> None:
        """Take up the notices of the previous life, once. It comes before any rank is heard: what a rank has
        saved for a notice would be taken for an ordinary checkpoint, and the rank let go."""
        if not self._restored:
            await asyncio.to_thread(notices.load, self._board, self._file)
            self._restored = True
            for live in self._board.live.values():
                self._record.notice_known(live)
            self._pass_on()

    async def run(self, beat: Callable[[], None]) -> None:
        """Watch until cancelled."""
        await self.restore()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._identify(), name="identify")
            async for sighting in self._provider.watch():
                beat()
                if isinstance(sighting, Unknown):
                    self._blind(sighting)
                else:
                    await self._see(sighting)

    async def _identify(self) -> None:
        while self.identity is None:
            try:
                self.identity = await self._provider.identify()
            except ProviderError as exc:
                log.debug("identity_not_known", because=str(exc))
                await asyncio.sleep(IDENTIFY_AGAIN_S)
        identity = self.identity
        log.info("identified", provider=identity.provider, zone=identity.zone_id or identity.zone)
        if identity.spot is False:
            log.warning("not_a_spot_instance", instance=identity.instance_id)
        await self._record.identified(identity)

    async def _see(self, view: View) -> None:
        self._sighted(view.at)
        change = self._board.apply(view)
        if not change:
            return
        async with asyncio.TaskGroup() as group:
            if change.appeared or change.earlier or change.withdrawn:
                # Kept first, so that no crash can move a deadline; but a busy disk must not cost its seconds.
                await asyncio.wait({group.create_task(self._keep())}, timeout=KEEP_S)
            self._pass_on()
            for hint in change.hints:
                for job in self._jobs:
                    job.hinted(hint)
            self._note(change)

    async def _keep(self) -> None:
        try:
            await asyncio.to_thread(notices.save, self._board, self._file)
        except OSError as exc:
            hint = "free space, or mend the state folder: a restart would count the deadline anew"
            log.error("notices_not_kept", because=str(exc), hint=hint)

    def _pass_on(self) -> None:
        for job in self._jobs:
            job.noticed(self._board.urgent)

    def _note(self, change: Change) -> None:
        now = self._clock.monotonic()
        for live in change.appeared:
            left = round(live.deadline - now, 1)
            log.warning("notice_seen", source=live.source, action=live.action, seconds_left=left, id=live.id)
            self._record.notice_seen(live, seconds_left=left)
        for live in change.earlier:
            left = round(live.deadline - now, 1)
            log.warning("deadline_moved", id=live.id, seconds_left=left)
            self._record.event("deadline_moved", "", live.episode, seconds_left=left)
        for live in change.withdrawn:
            log.warning("notice_withdrawn", id=live.id)
            self._record.notice_withdrawn(live)
        for hint in change.hints:
            log.info("hint_seen", kind=hint.kind, source=hint.source, detail=hint.detail)
            self._record.hint(hint)

    def _sighted(self, at: float) -> None:
        if self._blind_since is not None:
            log.info("watch_sees_again", blind_s=round(at - self._blind_since, 1))
        self._blind_since, self._cried = None, False
        self.seen_at, self.because = at, ""

    def _blind(self, unknown: Unknown) -> None:
        self.because = unknown.because
        if self._blind_since is None:
            self._blind_since = unknown.at
            log.warning("watch_blind", because=unknown.because)
        if not self._cried and unknown.at - self._blind_since >= BLIND_S:
            self._cried = True
            log.error("watch_stays_blind", seconds=BLIND_S, because=unknown.because)
            self._record.event("watch_blind", because=unknown.because)
