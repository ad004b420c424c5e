"""Asking over and over: the cadence of a polled endpoint, and deadlines that only move earlier."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import replace

from outlast.providers.base import Clock, Notice, ProviderError, Sighting, Unknown, View
from outlast.providers.http import ThrottledError

Sleep = Callable[[float], Awaitable[None]]

MAX_BACKOFF_S = 8.0
# Two readings of one announced time differ a little, as clocks are slewed; that is not a new deadline.
SAME_DEADLINE_S = 0.5


async def poll(
    look: Callable[[], Awaitable[View]], poll_s: float, clock: Clock, sleep: Sleep = asyncio.sleep
) -> AsyncGenerator[Sighting, None]:
    """What ``look`` sees, for ever: at once, then every ``poll_s`` seconds counted from start to start.

    A ProviderError is an Unknown. ThrottledError answers double the pause each time, up to 8 s.
    """
    pause = poll_s
    while True:
        began = clock.monotonic()
        sighting: Sighting
        try:
            sighting, pause = await look(), poll_s
        except ThrottledError as exc:
            sighting = Unknown(clock.monotonic(), str(exc))
            pause = max(poll_s, min(pause * 2, MAX_BACKOFF_S))
        except ProviderError as exc:
            sighting, pause = Unknown(clock.monotonic(), str(exc)), poll_s
        yield sighting
        await sleep(max(0.0, began + pause - clock.monotonic()))


class Deadlines:
    """Fixes each notice's deadline at its first sighting; later ones may move it earlier, never later."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}

    def settle(self, notices: Iterable[Notice]) -> tuple[Notice, ...]:
        """One notice an id, with its settled deadline. An id missing here is forgotten: it was withdrawn."""
        shown: dict[str, Notice] = {}
        for notice in notices:
            before = shown[notice.id].deadline if notice.id in shown else self._first.get(notice.id)
            if before is not None and notice.deadline > before - SAME_DEADLINE_S:
                notice = replace(notice, deadline=before)  # noqa: PLW2901 - the same notice, with its first deadline
            shown[notice.id] = notice
        self._first = {key: notice.deadline for key, notice in shown.items()}
        return tuple(shown.values())
