"""The peer: one connection kept up for as long as the job runs, and what can be asked over it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import asyncssh

from outlast.daemon.checkpoint.arriving import land
from outlast.daemon.checkpoint.destinations import Progress, Refused, Shipped, Unreachable
from outlast.daemon.checkpoint.parts import Open
from outlast.daemon.checkpoint.place import Step, no_step
from outlast.daemon.ship import fetching
from outlast.daemon.ship.carrier import Carrier
from outlast.daemon.ship.dial import PeerSettings, dial
from outlast.daemon.ship.protocol import (
    IO,
    HandOver,
    Request,
    State,
    Stats,
    Warn,
    parse_parts,
    parse_state,
    whole_number,
)
from outlast.daemon.ship.session import Channels, Session
from outlast.daemon.ship.shipment import read
from outlast.providers.base import Clock
from outlast.wire.manifest import Manifest
from outlast.wire.store import Committed

__all__ = ["Peer", "PeerSettings", "PeerState"]

T = TypeVar("T")
_BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)


@dataclass(frozen=True)
class PeerState:
    """The peer as last heard. ``reachable`` is None until tried; ``newest`` is (epoch, tag, step).

    ``parts`` are checkpoints that it lacks parts of. ``fence`` is the lowest epoch it accepts. ``since`` is
    the monotonic second ``reachable`` took its value.
    """

    reachable: bool | None
    because: str
    newest: tuple[int, str, int] | None
    fence: int
    since: float
    parts: tuple[Open, ...] = ()


class Peer:
    """One peer of one job. ``run`` keeps the connection; every request raises Unreachable or Refused.

    ``on_change`` is called, in the event loop, whenever ``state`` has a new value.
    """

    def __init__(self, settings: PeerSettings, job: str, clock: Clock) -> None:
        self._settings = settings
        self._job = job
        self._clock = clock
        self._carrier = Carrier(settings, clock)
        self._connection: asyncssh.SSHClientConnection | None = None
        self._hurry = asyncio.Event()
        self._tried = asyncio.Event()
        self.state = PeerState(None, "not tried yet", None, 0, clock.monotonic())
        self.on_change: Callable[[PeerState], None] | None = None

    @property
    def name(self) -> str:
        """Host and port, for records and messages."""
        return f"{self._settings.host}:{self._settings.port}"

    def pause_with(self, paused: Callable[[], float]) -> None:
        """Hold bulk back while ``paused`` gives seconds; all else goes as ever, and so does rsync."""
        self._carrier.pause_with(paused)

    @property
    def streams(self) -> bool:
        """Whether ``stream`` can be used: rsync takes whole files only."""
        return self._settings.bulk != "rsync"

    async def run(self) -> None:
        """Connect, and connect again whenever the connection breaks, until cancelled."""
        failures = 0
        while True:
            attempt = self._tried
            try:
                await self._stay_connected()
            except (Unreachable, Refused) as exc:
                failures = 0 if self.state.reachable else failures + 1
                self._heard(reachable=False, because=str(exc))
            if self._tried is attempt:  # else it had succeeded, and whoever waits by now waits for the next
                self._tell_waiters()
            await self._pause(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])

    async def ask_state(self) -> PeerState:
        """Ask the peer for its fence and newest checkpoint; the result is ``state`` as well."""
        connection = await self._connected()
        async with Session(Channels(connection)) as session:
            answer = await session.ask(State())
            (fence, newest), parts = read(parse_state, answer), read(parse_parts, answer)
            began = self._clock.monotonic()
            await session.ask(State())  # the receiver runs by now: this takes no longer than the way there
            self._carrier.rtt_s = self._clock.monotonic() - began
        place = (newest.epoch, newest.tag, newest.step) if newest else None
        self._heard(reachable=True, because="", newest=place, fence=fence, parts=parts)
        return self.state

    async def ship(self, committed: Committed, progress: Progress | None = None) -> Shipped:
        """Have the peer commit a checkpoint, sending only what it lacks; can be cancelled at any time.

        What one node of several saved is kept there until the parts of the others, ``waiting``, have come.

        ``progress`` is called with bytes there and bytes in all. A file that is damaged here is not sent:
        Refused with code ``damaged``.
        """
        connection = await self._connected()
        with self._doubted(connection):
            shipped = await self._carrier.ship(connection, committed, progress)
        if shipped.waiting:
            self._heard(reachable=True, because="")
            return shipped
        self._note_newest((committed.epoch, committed.tag, committed.step))
        return shipped

    async def stream(
        self,
        place: tuple[int, str],
        folder: Path,
        done: asyncio.Future[Committed],
        progress: Progress | None = None,
    ) -> Shipped:
        """Send the files of ``folder`` while they are written; once ``done`` is set, go on as ``ship`` does.

        ``place`` is the epoch and tag of the checkpoint it is going to be.
        """
        connection = await self._connected()
        with self._doubted(connection):
            shipped = await self._carrier.stream(connection, place, folder, done, progress)
        committed = done.result()
        self._note_newest((committed.epoch, committed.tag, committed.step))
        return shipped

    async def warn(self, kind: str, seconds_left: float | None, step: int, epoch: int) -> None:
        """Tell the peer of a ``hint``, a ``notice``, or that it was ``withdrawn``."""
        await self._one(await self._connected(), Warn(kind, seconds_left, step, epoch), bool)

    async def stats(self, node: str, segments: Iterable[tuple[int, bytes]]) -> AsyncGenerator[int, None]:
        """Have the peer keep segments of a node's history, one after another; yields each number once kept.

        Uses the connection as it is: without one it raises Unreachable at once and asks for none.
        """
        if self._connection is None:
            raise Unreachable(self.state.because)
        async with Session(Channels(self._connection)) as session:
            for seq, data in segments:
                digest = hashlib.sha256(data).hexdigest()
                await session.ask(Stats(node, seq, len(data), digest), data=data)
                yield seq

    async def hand_over(self, epoch: int, tag: str, step: int, current: int = 0) -> int:
        """Give the job to the peer at a checkpoint committed there; returns the epoch it goes on in.

        ``current`` is the epoch that this node is in, if that is later than the checkpoint's.
        """
        connection = await self._connected()
        new = await self._one(
            connection, HandOver(epoch, tag, step, current), lambda body: whole_number(body, "epoch")
        )
        if new <= (last := max(epoch, current)):
            raise Refused(IO, f"the peer took over into epoch {new}, which is not above {last}")
        self._heard(reachable=True, because="", fence=max(new, self.state.fence))
        return new

    async def held(self) -> list[tuple[Manifest, str]]:
        """Its newest committed checkpoints, each with what is wrong with it; its fence is in ``state``."""
        connection = await self._connected()
        async with Session(Channels(connection)) as session:
            fence, found = await fetching.held(session)
        self._heard(reachable=True, because="", fence=max(fence, self.state.fence))
        strange = next((manifest.job for manifest, _ in found if manifest.job != self._job), None)
        if strange is not None:
            raise Refused(IO, f"{self.name} keeps checkpoints of job {strange} for {self._job}")
        return found

    async def fetch(
        self,
        manifest: Manifest,
        store: Path,
        progress: Progress | None = None,
        near: Sequence[Path] = (),
        step: Step = no_step,
    ) -> tuple[Committed, int]:
        """Have one of those ``held`` committed in a local store, and the bytes that came; can be cancelled.

        Goes on where an earlier try stopped. Raises CannotLand for what this node's disk says.
        """
        connection = await self._connected()
        with self._doubted(connection):
            brought = self._carrier.back(connection, manifest, step)
            return await land(manifest, store, brought.bring, progress, near=near, step=step)

    async def _stay_connected(self) -> NoReturn:
        connection = self._connection = await dial(self._settings)
        try:
            await self.ask_state()
            self._tell_waiters()
            await connection.wait_closed()
        finally:
            self._drop(connection)
        raise Unreachable("the connection to the peer broke")

    @contextmanager
    def _doubted(self, connection: asyncssh.SSHClientConnection) -> Iterator[None]:
        """After a session broke off, connect anew: that the connection is dead too may not be noticed yet."""
        try:
            yield
        except Unreachable:
            self._drop(connection)
            raise

    def _drop(self, connection: asyncssh.SSHClientConnection) -> None:
        """Nobody is given this connection from now on; ``run`` makes the next."""
        connection.abort()
        if self._connection is connection:
            self._connection = None

    async def _connected(self) -> asyncssh.SSHClientConnection:
        if self._connection is None:
            self._hurry.set()
            try:
                async with asyncio.timeout(self._settings.connect_s + 1.0):
                    await self._tried.wait()
            except TimeoutError as exc:
                raise Unreachable(f"no connection to {self.name}: {self.state.because}") from exc
        if self._connection is None:
            raise Unreachable(self.state.because)
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
        self, connection: asyncssh.SSHClientConnection, request: Request, parse: Callable[[dict[str, Any]], T]
    ) -> T:
        async with Session(Channels(connection)) as session:
            return read(parse, await session.ask(request))

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
