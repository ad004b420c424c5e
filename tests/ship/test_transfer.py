"""The chunks of a transfer over sessions that end, are silent or stuck: nothing is waited for without end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.checkpoint.destinations import Unreachable
from outlast.daemon.ship import limit, session, transfer
from outlast.daemon.ship.limit import Limit
from outlast.daemon.ship.session import Headed
from outlast.daemon.ship.transfer import Transfer
from outlast.providers.base import SystemClock
from outlast.wire.digests import CHUNK


class Yes:
    """A receiver that says yes to everything; ``turns`` is when it was opened and fed."""

    def __init__(self) -> None:
        self.turns = [time.monotonic()]
        self.stdout = self

    async def read(self, _most: int) -> bytes:
        """An answer."""
        await asyncio.sleep(0)
        return b'{"ok":true}\n'


class Far:
    """Opens such receivers, which take ``end_s`` to end and ``feed_s`` to take what they are fed."""

    def __init__(self, end_s: float = 0.0, feed_s: float = 0.0) -> None:
        self.opened: list[Yes] = []
        self._end_s = end_s
        self._feed_s = feed_s

    async def open(self, _command: str) -> Yes:
        """See Opener."""
        self.opened.append(Yes())
        return self.opened[-1]

    async def feed(self, process: Yes, batch: Sequence[Headed]) -> None:
        """See Opener."""
        assert batch
        await asyncio.sleep(self._feed_s)
        process.turns.append(time.monotonic())

    async def end(self, _process: Any, *, hurry: bool) -> None:
        """See Opener."""
        await asyncio.sleep(0.0 if hurry else self._end_s)


@asynccontextmanager
async def _running(far: Far, folder: Path, bytes_s: float | None = None) -> AsyncIterator[Transfer]:
    clock = SystemClock()
    moving = Transfer(far, (1, "t"), folder, 8, Limit(bytes_s, clock), lambda _count: None)
    async with moving.running(asyncio.sleep(60.0)):
        yield moving


async def test_what_is_fed_while_an_idle_session_ends_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To end a client of its own may take seconds: whoever does that sends nothing more."""
    monkeypatch.setattr(transfer, "IDLE_S", 0.1)
    far = Far(end_s=5.0)
    async with _running(far, tmp_path) as moving, asyncio.timeout(3.0):
        for path in ("a", "b"):
            moving.feed(path, [0], 100)
            await moving.drain()
            await asyncio.sleep(0.3)
    assert len(far.opened) == 2


async def test_under_a_limit_no_session_is_silent_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver ends a session that is silent for 30 s: a slow limit is shared by fewer chunks at a time."""
    monkeypatch.setattr(limit, "ROUND_S", 1.0)
    far = Far()
    async with _running(far, tmp_path, bytes_s=8.0 * CHUNK) as moving:
        moving.feed("a", range(40), 40 * CHUNK)
        await moving.drain()
    silent = [b - a for one in far.opened for a, b in zip(one.turns, one.turns[1:], strict=False)]
    assert max(silent) < 2.0


@pytest.mark.parametrize("chunks", [0.1, 1.0, 3.0])
async def test_a_very_slow_limit_takes_fewer_sessions(
    chunks: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at least, and no more of them than chunks may leave in one round."""
    monkeypatch.setattr(limit, "ROUND_S", 0.02)
    far = Far()
    async with _running(far, tmp_path, bytes_s=chunks * CHUNK / 0.02) as moving:
        moving.feed("a", range(8), 8 * CHUNK)
        moving.warm(100 * CHUNK)
        await moving.drain()
    assert len(far.opened) == max(1, int(chunks))


async def test_a_receiver_that_takes_nothing_more_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is stopped, or its disk hangs, while the server keeps the connection alive."""
    monkeypatch.setattr(session, "SYNC_S", 0.1)

    async def send() -> None:
        async with _running(Far(feed_s=60.0), tmp_path) as moving:
            moving.feed("a", [0], 100)
            await moving.drain()

    with pytest.raises(Unreachable, match="takes no more of a"):
        await asyncio.wait_for(send(), 5.0)
