"""A limit on bytes a second, shared by all that send."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from outlast.providers.base import Clock

# A receiver ends a session that is silent for 30 s, so in a pause a trickle goes on; a pause is looked at
# this often, as it may end early.
_TRICKLE_S = 10.0
_LOOK_S = 0.05
# All that send are to have their turn within so long, for the same reason.
ROUND_S = 10.0


def never() -> float:
    """No pause."""
    return 0.0


class Limit:
    """Lets ``bytes_s`` bytes a second through; None lets all through at once. Debts are paid by waiting.

    ``paused`` gives the seconds for which, as of now, as good as nothing is to leave.
    """

    def __init__(self, bytes_s: float | None, clock: Clock) -> None:
        self._bytes_s = bytes_s
        self._clock = clock
        self._free_at = 0.0
        self.paused: Callable[[], float] = never

    @property
    def round_bytes(self) -> float:
        """As many bytes as may leave between two turns of whoever sends; without a limit no end of them."""
        return math.inf if self._bytes_s is None else self._bytes_s * ROUND_S

    async def take(self, count: int) -> None:
        """Wait until ``count`` more bytes may leave."""
        until = self._clock.monotonic() + _TRICKLE_S
        while (left := min(self.paused(), until - self._clock.monotonic())) > 0:  # noqa: ASYNC110 - others' clocks
            await asyncio.sleep(min(left, _LOOK_S))
        if self._bytes_s is None:
            return
        now = self._clock.monotonic()
        self._free_at = max(self._free_at, now) + count / self._bytes_s
        # A tenth of a second may be sent ahead, so that short waits do not add up.
        await asyncio.sleep(max(0.0, self._free_at - now - 0.1))
