"""How far a destination is behind: in steps, in bytes and in seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from outlast.daemon.core.facts import Place
from outlast.providers.base import Clock

# Longer ago than this many checkpoints, only the oldest of them is known.
_MOST = 1024


@dataclass(frozen=True, slots=True)
class Lag:
    """What is committed here and not there. ``seconds``: since the oldest such checkpoint was committed.

    All three are 0 where nothing is missing there.
    """

    steps: int
    bytes: int
    seconds: float


class Commits:
    """When each checkpoint was committed here.

    ``listeners`` are called, in the event loop, at each, and when one could not be saved or committed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: deque[tuple[tuple[int, int], float]] = deque(maxlen=_MOST)
        self.listeners: list[Callable[[], None]] = []

    def note(self, place: Place) -> None:
        """It is committed here, as of now."""
        self._known.append((place.order, self._clock.monotonic()))
        self.tell()

    def tell(self) -> None:
        """Something came of a checkpoint here, be it that it failed."""
        for listener in self.listeners:
            listener()

    def behind(self, newest: Place | None, there: Place | None, sent: int = 0) -> Lag | None:
        """How far ``there`` is behind ``newest``, ``sent`` bytes of which arrived; None without a newest."""
        if newest is None:
            return None
        if there is not None and there.order >= newest.order:
            return Lag(0, 0, 0.0)
        now = self._clock.monotonic()
        base = there.order if there is not None else (-1, -1)
        since = min((at for order, at in self._known if order > base), default=now)
        steps = newest.step - (there.step if there is not None else 0)
        return Lag(max(0, steps), max(0, newest.size - sent), max(0.0, now - since))
