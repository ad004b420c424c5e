"""Telling the peer what is in the air: hints, notices with their time left, withdrawals.

The peer's standby warms its trainer up on this word, and counts the steps it would lose.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.core.facts import Role
from outlast.daemon.core.job import Job
from outlast.daemon.ship.link import Peer
from outlast.providers.base import Clock

log = structlog.get_logger("outlast.job")

# While a notice lives the peer hears the current step this often.
REPEAT_S = 1.0
# How soon a primary that has nothing to say learns that its epoch is over.
REFRESH_S = 60.0


class Warner:
    """Repeats a live notice each second, says a hint and a withdrawal once each, until the peer took it.

    With nothing to say it asks for the peer's state now and then, so that a takeover there is noticed here.
    """

    def __init__(self, job: Job, peer: Peer, clock: Clock) -> None:
        self._job = job
        self._peer = peer
        self._clock = clock
        self._told_notice = False
        self._told_hint: str | None = None

    async def run(self) -> None:
        """Warn until cancelled; an unreachable peer is tried again while there is something to say."""
        while True:
            self._job.alarm.clear()
            pending = self._job.state.role is Role.PRIMARY and await self._say()
            await self._wait(pending)

    async def _wait(self, pending: bool) -> None:
        try:
            async with asyncio.timeout(REPEAT_S if pending or self._job.held_elsewhere else REFRESH_S):
                await self._job.alarm.wait()
        except TimeoutError:
            if not pending and self._job.state.role is Role.PRIMARY:
                await self._refresh()

    async def _refresh(self) -> None:
        with suppress(Unreachable, Refused):
            await self._peer.ask_state()

    async def _say(self) -> bool:
        """Say what there is to say. True if it must be said again or could not be said."""
        job, notice = self._job, self._job.notice
        if notice is not None:
            left = max(0.0, notice.deadline - self._clock.monotonic())
            self._told_notice = await self._warn("notice", left) or self._told_notice
            return True
        if self._told_notice:
            self._told_notice = not await self._warn("withdrawn", None)
            return self._told_notice
        if job.hint is not None and job.hint.id != self._told_hint:
            told = await self._warn("hint", None)
            self._told_hint = job.hint.id if told else self._told_hint
            return not told
        return False

    async def _warn(self, kind: str, left: float | None) -> bool:
        job = self._job
        try:
            await self._peer.warn(kind, left, job.ranks.step, job.state.epoch)
        except (Unreachable, Refused) as exc:
            log.debug("peer_not_warned", job=job.name, because=str(exc))
            return False
        return True
