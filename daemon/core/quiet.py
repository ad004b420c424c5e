"""Pauses of bulk sending that ranks ask for: around a phase that needs the network or the disk for itself."""

from __future__ import annotations

import math
from collections.abc import Hashable

# A pause ends by itself: one that nobody ends must not stop shipping.
MOST_S = 60.0


class Quiet:
    """Who has asked for a pause, and until when; times are monotonic seconds."""

    def __init__(self) -> None:
        self._until: dict[Hashable, float] = {}
        self._ended = -math.inf

    def ask(self, who: Hashable, seconds: float, now: float) -> None:
        """``who`` wants so many seconds from now, 60 at most; 0 ends its pause.

        Until it has said 0 its pause can be made shorter and not longer: whoever asks again and again and
        never ends a pause gets one.
        """
        if not seconds > 0 or not math.isfinite(seconds):
            self.forget(who, now)
            return
        until = now + min(seconds, MOST_S)
        self._until[who] = min(self._until.get(who, until), until)

    def forget(self, who: Hashable, now: float) -> None:
        """It is gone, or goes on."""
        if who in self._until:
            self._ended = max(self._ended, min(now, self._until.pop(who)))

    def since(self, at: float) -> bool:
        """Whether a pause lasted, or lasts, at any instant after ``at``."""
        return max(self._until.values(), default=self._ended) > at or self._ended > at

    def left(self, now: float) -> float:
        """Seconds until everybody's pause is over; 0 without one."""
        return max(0.0, max(self._until.values(), default=0.0) - now)
