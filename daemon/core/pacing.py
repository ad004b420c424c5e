"""Tells the jobs how often their node's pool is taken back, so that their interval can follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from outlast.daemon.core.job import Job
from outlast.daemon.core.pace import hazard
from outlast.daemon.history.counting import PoolCounts

# A rate changes slowly; who the node is, is known some seconds after the start.
AGAIN_S = 3600.0
SOON_S = 10.0


class Pacing:
    """``ask`` counts this node's pool in its own record; None while the node does not know its pool."""

    def __init__(self, ask: Callable[[], Awaitable[PoolCounts | None]], jobs: Iterable[Job]) -> None:
        self._ask = ask
        self._jobs = tuple(jobs)

    async def run(self) -> None:
        """Ask now and then until cancelled."""
        while True:
            counts = await self._ask()
            if counts is not None:
                rate = hazard(counts.interruptions, counts.exposure_hours)
                for job in self._jobs:
                    job.hazard_per_hour = rate
                    job.changed.set()
            await asyncio.sleep(SOON_S if counts is None else AGAIN_S)
