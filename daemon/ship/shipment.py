"""One checkpoint to the peer: offer, what it lacks, commit. What was sent early is lacking no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from outlast.daemon.checkpoint.destinations import Refused
from outlast.daemon.ship.protocol import (
    DAMAGED,
    IO,
    KEEP,
    Commit,
    Digests,
    Offer,
    ProtocolError,
    Request,
    Wanted,
    parse_digests,
    parse_waiting,
    parse_wanted,
    whole_number,
)
from outlast.daemon.ship.session import COMMIT_S, SYNC_S, Opener, Session
from outlast.daemon.ship.transfer import Transfer
from outlast.providers.base import Clock
from outlast.wire.digests import CHUNK, chunk_digests
from outlast.wire.store import Committed, check_files

T = TypeVar("T")
ROUNDS = 3
_REUSE_S = 20.0  # the receiver ends a session that is idle for longer


@dataclass(frozen=True)
class Landed:
    """The peer has committed ``bytes`` of it; a part waits there for the parts of the nodes ``waiting``."""

    bytes: int
    waiting: tuple[str, ...] = ()


async def check_here(committed: Committed, *, digests: bool) -> None:
    """Raises Refused with code ``damaged`` for a checkpoint that is not whole on this node."""
    problems = await asyncio.to_thread(check_files, committed.path, committed.manifest, digests=digests)
    if problems:
        first = problems[0]
        raise Refused(DAMAGED, f"not sent, {committed.tag} is damaged here: {first.path}: {first.what}")


class Shipment:
    """Works within ``transfer.running()``; all of it raises Refused and Unreachable.

    ``keep`` replicas are to stay there. With ``lend`` the one session that offers and commits carries
    chunks too in between.
    """

    def __init__(
        self, opener: Opener, transfer: Transfer, committed: Committed, clock: Clock, keep: int = KEEP
    ) -> None:
        self._opener = opener
        self._transfer = transfer
        self._committed = committed
        self._clock = clock
        self._keep = keep
        self._sizes = {entry.path: entry.size for entry in committed.manifest.files}
        self._session: Session | None = None
        self._used = 0.0
        self._lent: asyncio.Task[None] | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._transfer.move(self._committed.path)
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, exc, trace)

    async def offer(self) -> tuple[Wanted, ...]:
        """What the peer lacks."""
        manifest = self._committed.manifest
        return read(lambda body: parse_wanted(body, manifest), await self._ask(Offer(manifest), SYNC_S))

    async def feed(self, wanted: tuple[Wanted, ...], *, lend: bool = False, again: bool = False) -> None:
        """Have sent what is missing and is not on its way already, and what is there and differs."""
        differing = {item.path: await self._differing(item.path) for item in wanted if not item.missing}
        if lend and wanted and self._session is not None:
            self._lent = self._transfer.lend(self._session)
        for item in wanted:
            for first, many in item.missing:
                chunks = range(first, first + many)
                self._transfer.feed(item.path, chunks, self._sizes[item.path], again=again)
        for path, indices in differing.items():
            self._transfer.feed(path, indices, self._sizes[path], again=True)

    async def settle(self) -> Landed:
        """Wait for the chunks, then commit."""
        for _ in range(ROUNDS - 1):
            await self._transfer.drain()
            try:
                return await self._commit()
            except Refused as exc:
                if exc.code != DAMAGED:
                    raise
            # Something differs: either it changed on the way, or it is damaged here.
            await check_here(self._committed, digests=True)
            await self.feed(await self.offer(), again=True)
        await self._transfer.drain()
        return await self._commit()

    async def _commit(self) -> Landed:
        answer = await self._ask(Commit(self._committed.epoch, self._committed.staged, self._keep), COMMIT_S)
        return read(lambda body: Landed(whole_number(body, "bytes"), parse_waiting(body)), answer)

    async def _differing(self, path: str) -> list[int]:
        """The chunks of a file that changed after they had been sent."""
        ours = await asyncio.to_thread(lambda: list(chunk_digests(self._committed.path / path)))
        theirs = await self._digests(path, len(ours))
        return [i for i, digest in enumerate(ours) if i >= len(theirs) or theirs[i] != digest]

    async def _digests(self, path: str, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            request = Digests(self._committed.epoch, self._committed.staged, path, len(found))
            some = read(parse_digests, await self._ask(request, SYNC_S))
            if not some:
                break
            found += some
        return found

    async def _ask(self, request: Request, within_s: float) -> dict[str, Any]:
        """Through the same session, unless the receiver may have ended it for being idle."""
        if self._session is None or self._idle():
            self._session = await self._stack.enter_async_context(Session(self._opener))
            self._lent = None
        try:
            return await self._session.ask(request, within_s)
        finally:
            self._used = self._clock.monotonic()

    def _idle(self) -> bool:
        if self._lent is not None:
            return self._lent.done()
        return self._clock.monotonic() - self._used > _REUSE_S


def read(parse: Callable[[dict[str, Any]], T], body: dict[str, Any]) -> T:
    """An answer's content. Raises Refused where it is not of this protocol."""
    try:
        return parse(body)
    except ProtocolError as exc:
        raise Refused(IO, f"the peer does not speak this protocol: {exc}") from exc


def unsent(wanted: tuple[Wanted, ...], committed: Committed) -> int:
    """Bytes that the peer lacks."""
    sizes = {entry.path: entry.size for entry in committed.manifest.files}
    runs = ((item, first, many) for item in wanted for first, many in item.missing)
    return sum(min(CHUNK * (first + many), sizes[item.path]) - CHUNK * first for item, first, many in runs)


__all__ = ["Landed", "Shipment", "check_here", "read", "unsent"]
