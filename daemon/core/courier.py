"""The history's courier: writes segments beside the state and brings them to every job's peer.

It has no part in saving the jobs: it sends only over a connection that stands, one small session at a time,
and while a notice lives nothing but the node's last words. What fails is tried at the next occasion.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import structlog

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.core import mailbag
from outlast.daemon.core.mailbag import Sent
from outlast.daemon.history import segments
from outlast.daemon.history.ledger import Changed
from outlast.daemon.ship.link import Peer
from outlast.providers.base import Clock

log = structlog.get_logger("outlast.history")

EVERY_S = 3600.0
# The first segment of a life waits this long for the provider to say who the node is.
START_S = 60.0
# How soon a peer that was away, or a session that broke, is looked at again; and under a notice.
RETRY_S = 5.0
URGENT_RETRY_S = 2.0
# A peer that understood and refused (an older release, a full disk) is left alone this long.
REFUSED_S = 3600.0
SESSION_S = 60.0
DAY_S = 86400.0


class Source(Protocol):
    """Where new rows come from."""

    async def writer(self) -> str | None:
        """Which file is written; None while it cannot be read."""
        ...

    async def changed(self, writer: str, since: int, *, last_words: bool) -> Changed | None: ...


@dataclass(slots=True)
class _Round:
    """One peer: what it has, and how the last try went."""

    peer: Peer
    sent: Sent
    waiting: int = 0
    pending: bool = False
    urgent_has: tuple[str, int] | None = None
    at: float | None = None
    because: str = ""
    not_before: float = 0.0


@dataclass(slots=True)
class _Written:
    """How far the segments of this file go."""

    writer: str = ""
    seq: int = 0
    rev: int = -1
    at: float | None = None
    alive: dict[int, float] = field(default_factory=dict)


class Courier:
    """``run`` until cancelled; ``tell`` says that there is news. ``urgent`` is true while a notice lives."""

    def __init__(
        self,
        folder: Path,
        node: str,
        source: Source,
        peers: Mapping[str, Peer],
        urgent: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._node = node
        self._source = source
        self._urgent = urgent
        self._clock = clock
        self._written = _Written()
        self._rounds = {job: _Round(peer, Sent(peer.name)) for job, peer in peers.items()}
        self._born = clock.monotonic()
        self._looked_at: float | None = None
        self._news = asyncio.Event()
        self._last_words = False
        self._because = ""

    def tell(self, *, last_words: bool = False) -> None:
        """There is something new; with ``last_words`` the node may soon be gone."""
        self._last_words = self._last_words or last_words
        self._news.set()

    @property
    def state(self) -> dict[str, Any]:
        """For ``status``."""
        return {
            "path": str(self._folder),
            "written": self._written.seq,
            "written_s_ago": self._ago(self._written.at),
            "because": self._because,
            "peers": [
                {
                    "job": job,
                    "peer": one.peer.name,
                    "waiting": one.waiting,
                    "sent_s_ago": self._ago(one.at),
                    "because": one.because,
                }
                for job, one in self._rounds.items()
            ],
        }

    async def run(self) -> None:
        """Write and send at each occasion: news, a notice, each hour, and what an earlier life left."""
        await self._take_up()
        while True:
            for job, one in self._rounds.items():
                await self._bring(job, one)
            await self._wait()
            if self._news.is_set() or self._left() <= 0 or self._because:
                self._news.clear()
                last_words, self._last_words = self._last_words, False
                await self._weather(self._write(last_words=last_words))

    # ---- when

    async def _wait(self) -> None:
        """Until the next occasion."""
        left = max(0.0, self._left())
        if any(one.pending for one in self._rounds.values()) or self._because:
            left = min(left, URGENT_RETRY_S if self._urgent() else RETRY_S)
        try:
            async with asyncio.timeout(left):
                await self._news.wait()
        except TimeoutError:
            return

    def _left(self) -> float:
        """Seconds until the next segment is due by the clock alone."""
        at = self._looked_at
        due = self._born + START_S if at is None else at + EVERY_S
        return due - self._clock.monotonic()

    async def _weather(self, work: Awaitable[None]) -> None:
        """The disk's trouble is a sentence in the status; the next occasion tries again."""
        try:
            await work
            self._because = ""
        except OSError as exc:
            if not self._because:
                log.warning("segment_not_written", because=str(exc))
            self._because = f"{exc.strerror or exc}: {exc.filename or self._folder}"

    def _ago(self, at: float | None) -> float | None:
        return None if at is None else round(self._clock.monotonic() - at, 3)

    # ---- writing

    async def _take_up(self) -> None:
        sent = await asyncio.to_thread(mailbag.load, self._folder)
        for job, one in self._rounds.items():
            known = sent.get(job)
            if known is not None and known.peer == one.peer.name:
                one.sent = known

    async def _write(self, *, last_words: bool) -> None:
        self._looked_at = self._clock.monotonic()
        written = await self._own()
        if written is None:
            return
        while True:
            changed = await self._source.changed(written.writer, written.rev, last_words=last_words)
            if changed is None or not self._is_worth(changed):
                break
            seq = written.seq + 1
            await asyncio.to_thread(segments.write, self._folder, self._node, changed, seq)
            written.seq, written.rev, written.at = seq, changed.rev, self._clock.monotonic()
            written.alive = {spell.id: spell.alive_s for spell in changed.rows.spells}
            if last_words:
                break

    async def _own(self) -> _Written | None:
        """How far this file's segments go: their newest header says it, whatever an earlier life did."""
        writer = await self._source.writer()
        if writer is None:
            return None
        if writer != self._written.writer:
            home = self._folder / segments.node_folder(self._node, writer)
            seq, header = await asyncio.to_thread(segments.newest, home)
            rev = header.rev if header is not None and header.writer == writer else -1
            self._written = _Written(writer, seq, rev)
        return self._written

    def _is_worth(self, changed: Changed) -> bool:
        """Something changed; or the time at risk that no segment tells of is a tenth of the stay.

        So a stay whose node dies without a word is told too short by a tenth at most, or by an hour.
        """
        if changed.new:
            return True
        running = [spell for spell in changed.rows.spells if spell.ended is None]
        untold = {spell.id: spell.alive_s - self._written.alive.get(spell.id, 0.0) for spell in running}
        return any(untold[s.id] >= max(EVERY_S, min(DAY_S, s.alive_s / 10)) for s in running)

    # ---- sending

    async def _bring(self, job: str, one: _Round) -> None:
        """What this peer lacks, if it can be reached just now; under a notice the newest segment, once."""
        urgent, written = self._urgent(), self._written
        own = segments.node_folder(self._node, written.writer) if urgent else None
        if urgent and (not written.seq or one.urgent_has == (own, written.seq)):
            one.pending = False
            return
        ready = bool(one.peer.state.reachable) and self._clock.monotonic() >= one.not_before
        bag = await asyncio.to_thread(mailbag.pack, self._folder, one.sent, own, ready)
        one.waiting, one.pending = bag.waiting, bag.waiting > 0
        if not bag.letters:
            return
        try:
            async with asyncio.timeout(SESSION_S):
                await self._deliver(one, bag)
        except (Unreachable, Refused, TimeoutError) as exc:
            self._note_failure(job, one, exc)
        if not urgent:
            await self._weather(self._keep_books())

    async def _keep_books(self) -> None:
        sent = {job: one.sent for job, one in self._rounds.items()}
        await asyncio.to_thread(mailbag.save, self._folder, sent)
        await asyncio.to_thread(mailbag.tidy, self._folder, sent.values())

    async def _deliver(self, one: _Round, bag: mailbag.Bag) -> None:
        async with aclosing(one.peer.stats(bag.node, bag.letters)) as kept:
            async for seq in kept:
                one.waiting -= 1
                one.at = self._clock.monotonic()
                one.urgent_has = (bag.node, seq)
                if bag.in_order:
                    one.sent.upto[bag.node] = seq
        one.because = ""

    def _note_failure(self, job: str, one: _Round, exc: Exception) -> None:
        because = str(exc) or "the peer did not answer in time"
        if because != one.because:
            log.info("segment_not_sent", job=job, because=because)
        one.because = because
        if isinstance(exc, Refused):
            one.not_before = self._clock.monotonic() + REFUSED_S
