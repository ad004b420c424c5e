"""How fast a source may be asked, and how long trouble that passes is waited out."""

from __future__ import annotations

import asyncio

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Access


class Pace:
    """Turns that begin at least ``apart_s`` seconds after each other, in the order they were asked for."""

    def __init__(self, access: Access, apart_s: float) -> None:
        self._clock = access.clock
        self._sleep = access.sleep
        self._apart_s = apart_s
        self._next = float("-inf")
        self._lock = asyncio.Lock()

    async def turn(self, deadline: float) -> None:
        """Return when it is time. Raises ProviderError at once where that would be past ``deadline``."""
        async with self._lock:
            wait = self._next - self._clock.monotonic()
            if self._clock.monotonic() + max(0.0, wait) >= deadline:
                raise ProviderError("no time left to ask")
            if wait > 0:
                await self._sleep(wait)
            self._next = self._clock.monotonic() + self._apart_s
