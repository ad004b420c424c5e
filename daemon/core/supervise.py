"""One supervised task group: each part is restarted when it fails, and shows by its beat that it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from outlast.providers.base import Clock

log = structlog.get_logger("outlast.supervise")

Beat = Callable[[], None]
Part = Callable[[Beat], Awaitable[None]]

RESTART_S = (0.1, 1.0, 5.0, 15.0)
# A part that ran this long has recovered: its next failure starts the back-off anew.
SETTLED_S = 60.0


class Supervisor:
    """Runs parts for ever. A failure is logged as a bug and never ends the daemon."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beats: dict[str, tuple[float, float]] = {}

    def stale(self) -> list[str]:
        """Parts that have not shown a sign of life within their bound: the watchdog is not fed then."""
        now = self._clock.monotonic()
        return [name for name, (at, bound) in self._beats.items() if now - at > bound]

    async def run(self, name: str, part: Part, bound_s: float | None = None) -> None:
        """Run ``part`` until cancelled. ``bound_s``: the longest it may go without a beat; None for any."""
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                await part(self._beat(name, bound_s))
                log.error("part_ended", part=name, hint="please report this")
            except Exception:  # a bug is reported; the part is restarted
                log.exception("unexpected_error", part=name, hint="please report this")
            failures = 0 if self._clock.monotonic() - began > SETTLED_S else failures
            await asyncio.sleep(RESTART_S[min(failures, len(RESTART_S) - 1)])
            failures += 1

    def _beat(self, name: str, bound_s: float | None) -> Beat:
        def beat() -> None:
            if bound_s is not None:
                self._beats[name] = (self._clock.monotonic(), bound_s)

        beat()
        return beat
