"""A limit on bytes a second, shared by all that send."""

from __future__ import annotations

import asyncio

from outlast.providers.base import Clock


class Limit:
    """Lets ``bytes_s`` bytes a second through; None lets all through at once. Debts are paid by waiting."""

    def __init__(self, bytes_s: float | None, clock: Clock) -> None:
        self._bytes_s = bytes_s
        self._clock = clock
        self._free_at = 0.0

    async def take(self, count: int) -> None:
        """Wait until ``count`` more bytes may leave."""
        if self._bytes_s is None:
            return
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now) + count / self._bytes_s
        # A tenth of a second may be sent ahead, so that short waits do not add up.
        await asyncio.sleep(max(0.0, self._free_at - now - 0.1))
