"""The peer: one connection kept up for as long as the job runs, and what can be asked over it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeVar

import asyncssh

from outlast.daemon.ship.bulk import bulk
from outlast.daemon.ship.dial import PeerSettings, dial
from outlast.daemon.ship.protocol import (
    DAMAGED,
    IO,
    Commit,
    HandOver,
    Offer,
    ProtocolError,
    Request,
    State,
    Stats,
    Wanted,
    Warn,
    parse_state,
    parse_wanted,
    whole_number,
)
from outlast.daemon.ship.session import COMMIT_S, PeerRefused, PeerUnreachable, Session
from outlast.providers.base import Clock
from outlast.wire.store import Committed, check_files

__all__ = ["Peer", "PeerRefused", "PeerSettings", "PeerState", "PeerUnreachable", "Shipped"]

T = TypeVar("T")
Progress = Callable[[int, int], None]
_ROUNDS = 3
_REUSE_S = 20.0  # the receiver ends a session that is idle for longer
_BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)


@dataclass(frozen=True)
class PeerState:
    """The peer as last heard. ``reachable`` is None until tried; ``newest`` is (epoch, tag, step).

    ``fence`` is the lowest epoch it accepts. ``since`` is the monotonic second ``reachable`` took its value.
    """

    reachable: bool | None
    because: str
    newest: tuple[int, str, int] | None
    fence: int
    since: float


@dataclass(frozen=True)
class Shipped:
    """A checkpoint is committed at the peer: bytes that went over the wire, bytes it has, seconds taken."""

    bytes_sent: int
    bytes_total: int
    seconds: float


class Peer:
    """One peer of one job. ``run`` keeps the connection; every request raises PeerUnreachable or PeerRefused.

    ``on_change`` is called, in the event loop, whenever ``state`` has a new value.
    """

    def __init__(self, settings: PeerSettings, job: str, clock: Clock) -> None:
        self._settings = settings
        self._job = job
        self._clock = clock
        self._bulk = bulk(settings.bulk, settings.channels)
        self._connection: asyncssh.SSHClientConnection | None = None
        self._hurry = asyncio.Event()
        self._tried = asyncio.Event()
        self.state = PeerState(None, "not tried yet", None, 0, clock.monotonic())
        self.on_change: Callable[[PeerState], None] | None = None

    @property
    def name(self) -> str:
        """Host and port, for records and messages."""
        return f"{self._settings.host}:{self._settings.port}"

    async def run(self) -> None:
        """Connect, and connect again whenever the connection breaks, until cancelled."""
        failures = 0
        while True:
            try:
                await self._stay_connected()
            except (PeerUnreachable, PeerRefused) as exc:
                failures = 0 if self.state.reachable else failures + 1
                self._heard(reachable=False, because=str(exc))
            self._tell_waiters()
            await self._pause(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])

    async def ask_state(self) -> PeerState:
        """Ask the peer for its fence and newest checkpoint; the result is ``state`` as well."""
        connection = await self._connected()
        fence, newest = await self._one(connection, State(), parse_state)
        place = (newest.epoch, newest.tag, newest.step) if newest else None
        self._heard(reachable=True, because="", newest=place, fence=fence)
        return self.state

    async def ship(self, committed: Committed, progress: Progress | None = None) -> Shipped:
        """Have the peer commit a checkpoint, sending only what it lacks; can be cancelled at any time.

        ``progress`` is called with bytes there and bytes in all. A file that is damaged here is not sent:
        PeerRefused with code ``damaged``.
        """
        began = self._clock.monotonic()
        await self._check_here(committed, digests=False)
        connection = await self._connected()
        sent = 0
        for attempt in range(_ROUNDS):
            try:
                count, total = await self._one_round(connection, committed, progress)
                sent += count
            except PeerRefused as exc:
                if exc.code != DAMAGED or attempt + 1 == _ROUNDS:
                    raise
                # Either it was damaged on the way, and only that file is wanted again, or it is damaged here.
                await self._check_here(committed, digests=True)
                continue
            break
        self._note_newest((committed.epoch, committed.tag, committed.step))
        return Shipped(sent, total, self._clock.monotonic() - began)

    async def warn(self, kind: str, seconds_left: float | None, step: int, epoch: int) -> None:
        """Tell the peer of a ``hint``, a ``notice``, or that it was ``withdrawn``."""
        await self._one(await self._connected(), Warn(kind, seconds_left, step, epoch), bool)

    async def stats(self, node: str, segments: Iterable[tuple[int, bytes]]) -> AsyncGenerator[int, None]:
        """Have the peer keep segments of a node's history, one after another; yields each number once kept.

        Uses the connection as it is: without one it raises PeerUnreachable at once and asks for none.
        """
        if self._connection is None:
            raise PeerUnreachable(self.state.because)
        async with Session(self._connection) as session:
            for seq, data in segments:
                digest = hashlib.sha256(data).hexdigest()
                await session.ask(Stats(node, seq, len(data), digest), data=data)
                yield seq

    async def hand_over(self, epoch: int, tag: str, step: int) -> int:
        """Give the job to the peer at a checkpoint committed there; returns the epoch it goes on in."""
        connection = await self._connected()
        new = await self._one(
            connection, HandOver(epoch, tag, step), lambda body: whole_number(body, "epoch")
        )
        if new <= epoch:
            raise PeerRefused(IO, f"the peer took over into epoch {new}, which is not above {epoch}")
        self._heard(reachable=True, because="", fence=max(new, self.state.fence))
        return new

    async def _stay_connected(self) -> NoReturn:
        self._connection = await dial(self._settings)
        try:
            await self.ask_state()
            self._tell_waiters()
            await self._connection.wait_closed()
        finally:
            connection, self._connection = self._connection, None
            connection.abort()
        raise PeerUnreachable("the connection to the peer broke")

    async def _connected(self) -> asyncssh.SSHClientConnection:
        if self._connection is None:
            self._hurry.set()
            try:
                async with asyncio.timeout(self._settings.connect_s + 1.0):
                    await self._tried.wait()
            except TimeoutError as exc:
                raise PeerUnreachable(f"no connection to {self.name}: {self.state.because}") from exc
        if self._connection is None:
            raise PeerUnreachable(self.state.because)
        return self._connection

    def _tell_waiters(self) -> None:
        """Whoever waits for an attempt learns that one is over; whoever comes later waits for the next."""
        self._tried.set()
        self._tried = asyncio.Event()

    async def _pause(self, seconds: float) -> None:
        self._hurry.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return

    async def _one(
        self, connection: asyncssh.SSHClientConnection, request: Request, read: Callable[[dict[str, Any]], T]
    ) -> T:
        async with Session(connection) as session:
            return _read(read, await session.ask(request))

    async def _one_round(
        self, connection: asyncssh.SSHClientConnection, committed: Committed, progress: Progress | None
    ) -> tuple[int, int]:
        """Offer, send what is wanted, commit; bytes sent and bytes the peer has."""
        manifest = committed.manifest
        async with Session(connection) as session:
            began = self._clock.monotonic()
            wanted = _read(lambda body: parse_wanted(body, manifest), await session.ask(Offer(manifest)))
            left = _bytes_left(committed, wanted)
            count = _Count(manifest.total_bytes - left, manifest.total_bytes, progress)
            if wanted:
                work = self._bulk.send(connection, session, committed, wanted, count.add)
                await self._while_connected(connection, work)
            count.finish()
            if self._clock.monotonic() - began < _REUSE_S:
                return left, await self._commit(session, committed)
        async with Session(connection) as session:
            return left, await self._commit(session, committed)

    async def _while_connected(
        self, connection: asyncssh.SSHClientConnection, work: Coroutine[Any, Any, None]
    ) -> None:
        """Run ``work``, and stop it when the connection breaks, whatever it waits for."""
        working = asyncio.ensure_future(work)
        closed = asyncio.ensure_future(connection.wait_closed())
        try:
            await asyncio.wait({working, closed}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise PeerUnreachable("the connection to the peer broke in mid-transfer")
            await working
        finally:
            working.cancel()
            closed.cancel()
            await asyncio.gather(working, closed, return_exceptions=True)

    async def _commit(self, session: Session, committed: Committed) -> int:
        answer = await session.ask(Commit(committed.epoch, committed.tag), COMMIT_S)
        return _read(lambda body: whole_number(body, "bytes"), answer)

    async def _check_here(self, committed: Committed, *, digests: bool) -> None:
        problems = await asyncio.to_thread(check_files, committed.path, committed.manifest, digests=digests)
        if problems:
            first = problems[0]
            raise PeerRefused(
                DAMAGED, f"not sent, {committed.tag} is damaged here: {first.path}: {first.what}"
            )

    def _note_newest(self, place: tuple[int, str, int]) -> None:
        known = self.state.newest
        newer = known is None or (place[0], place[2]) >= (known[0], known[2])
        self._heard(
            reachable=True,
            because="",
            newest=place if newer else known,
            fence=max(self.state.fence, place[0]),
        )

    def _heard(self, *, reachable: bool, because: str, **more: Any) -> None:
        since = self.state.since if reachable == self.state.reachable else self._clock.monotonic()
        new = replace(self.state, reachable=reachable, because=because, since=since, **more)
        if new != self.state:
            self.state = new
            if self.on_change:
                self.on_change(new)


class _Count:
    """Bytes there so far; never above the total, as rsync's own words count as bytes sent too."""

    def __init__(self, there: int, total: int, progress: Progress | None) -> None:
        self._there = there
        self._total = total
        self._progress = progress

    def add(self, count: int) -> None:
        self._there = min(self._there + count, self._total)
        if self._progress and self._there < self._total:
            self._progress(self._there, self._total)

    def finish(self) -> None:
        if self._progress:
            self._progress(self._total, self._total)


def _bytes_left(committed: Committed, wanted: tuple[Wanted, ...]) -> int:
    sizes = {entry.path: entry.size for entry in committed.manifest.files}
    return sum(sizes[item.path] - item.have for item in wanted)


def _read(read: Callable[[dict[str, Any]], T], body: dict[str, Any]) -> T:
    try:
        return read(body)
    except ProtocolError as exc:
        raise PeerRefused(IO, f"the peer does not speak this protocol: {exc}") from exc
