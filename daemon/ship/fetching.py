"""A checkpoint back from the peer: pieces of files over several sessions, each chunk kept as it comes.

Chunks land as they do at a receiver, in part files with their digests noted beside them, so that a fetch that
breaks off goes on where it stopped. A file gets its name once its digest is the manifest's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import asyncssh

from outlast.daemon.checkpoint.destinations import DAMAGED, Refused, Unreachable
from outlast.daemon.checkpoint.place import Step
from outlast.daemon.ship import sheet
from outlast.daemon.ship.arrival import Arrivals
from outlast.daemon.ship.protocol import (
    IO,
    MOST_FETCH,
    Chunk,
    Fetch,
    List,
    Listed,
    Show,
    encode,
    parse_listed,
    parse_shown,
    request_body,
    whole_number,
)
from outlast.daemon.ship.session import ANSWER_S, Opener, Session
from outlast.daemon.ship.shipment import read
from outlast.wire.digests import CHUNK, chunks_in
from outlast.wire.manifest import FileEntry, Manifest

_TRIES = 2
# Requests of a session that are under way at once: distance costs a window, not a piece.
_OPEN = 3
_READ_BYTES = 256 * 1024
_CHUNKS = MOST_FETCH // CHUNK
# Whole checkpoints worth knowing of: the newest may yet turn out to be damaged.
_ENOUGH = 2
_WEATHER = (OSError, asyncssh.Error, asyncio.IncompleteReadError)


@dataclass(frozen=True)
class Piece:
    """Chunks of a file that are asked for together: the first one's index, and how many."""

    entry: FileEntry
    first: int
    many: int

    @property
    def size(self) -> int:
        """How many bytes they are."""
        return min(CHUNK * self.many, self.entry.size - CHUNK * self.first)


async def held(session: Session) -> tuple[int, list[tuple[Manifest, str]]]:
    """The peer's fence and its newest checkpoints, each with what is wrong with it, or an empty text."""
    body = await session.ask(List())
    fence = read(lambda answer: whole_number(answer, "fence"), body)
    found: list[tuple[Manifest, str]] = []
    for place in _worth(read(parse_listed, body)):
        shown = partial(parse_shown, asked=Show(place.epoch, place.tag))
        manifest = read(shown, await session.ask(Show(place.epoch, place.tag)))
        found.append((manifest, "" if place.whole else "files are missing or of another size there"))
    return fence, found


def _worth(places: Sequence[Listed]) -> Iterator[Listed]:
    """The newest ones, down to the last whole one that is of interest."""
    whole = 0
    for place in sorted(places, key=lambda one: (one.epoch, one.step), reverse=True):
        yield place
        whole += place.whole
        if whole >= _ENOUGH:
            return


class Fetching:
    """Brings files of one checkpoint into a staging folder, over as many as ``sessions`` sessions."""

    def __init__(self, opener: Opener, manifest: Manifest, sessions: int, step: Step) -> None:
        self._opener = opener
        self._manifest = manifest
        self._sessions = sessions
        self._step = step
        self._queue: deque[Piece] = deque()
        self._left: dict[str, int] = {}
        self._tries: dict[str, int] = {}

    async def bring(self, staging: Path, missing: list[FileEntry], count: Callable[[int], None]) -> int:
        """See ``checkpoint.arriving.Bring``. Raises Unreachable and Refused."""
        arrivals = Arrivals(staging, self._step)
        for entry in sorted(missing, key=lambda one: -one.size):
            await self._begin(arrivals, entry, count)
        came = 0

        def brought(size: int) -> None:
            nonlocal came
            came += size
            count(size)

        async with AsyncExitStack() as stack:
            many = max(1, min(self._sessions, len(self._queue)))
            readers = [await stack.enter_async_context(Reader(self._opener)) for _ in range(many)]
            try:
                async with asyncio.TaskGroup() as group:
                    for reader in readers:
                        group.create_task(self._work(reader, arrivals, brought))
            except BaseExceptionGroup as failed:
                raise _first(failed) from None
        return came

    async def _begin(self, arrivals: Arrivals, entry: FileEntry, count: Callable[[int], None]) -> None:
        """Ask for the chunks of a file that are not here; all may be, and its name still be missing."""
        digests = await asyncio.to_thread(arrivals.digests, entry.path)
        runs = sheet.missing(digests, chunks_in(entry.size))
        pieces = [
            Piece(entry, at, min(_CHUNKS, first + many - at))
            for first, many in runs
            for at in range(first, first + many, _CHUNKS)
        ]
        if not pieces:
            if not await asyncio.to_thread(arrivals.finish, entry):
                await self._again(arrivals, entry, count)
            return
        count(entry.size - sum(piece.size for piece in pieces))
        self._left[entry.path] = len(pieces)
        self._queue.extend(pieces)

    async def _work(self, reader: Reader, arrivals: Arrivals, brought: Callable[[int], None]) -> None:
        under_way: deque[Piece] = deque()
        while under_way or self._queue:
            while self._queue and len(under_way) < _OPEN:
                piece = self._queue.popleft()
                under_way.append(piece)
                await reader.request(self._fetch(piece))
            piece = under_way.popleft()
            data = await reader.data(piece.size)
            await asyncio.to_thread(self._keep, arrivals, piece, data)
            brought(piece.size)
            self._left[piece.entry.path] -= 1
            if not self._left[piece.entry.path] and not await asyncio.to_thread(arrivals.finish, piece.entry):
                await self._again(arrivals, piece.entry, brought)

    async def _again(self, arrivals: Arrivals, entry: FileEntry, count: Callable[[int], None]) -> None:
        """A file that is not what the manifest says: once more from the start, then it is given up."""
        await asyncio.to_thread(arrivals.drop, entry.path)
        self._tries[entry.path] = self._tries.get(entry.path, 1) + 1
        if self._tries[entry.path] > _TRIES:
            raise Refused(DAMAGED, f"the peer holds a damaged {entry.path}")
        await self._begin(arrivals, entry, count)

    def _fetch(self, piece: Piece) -> Fetch:
        manifest = self._manifest
        return Fetch(manifest.epoch, manifest.tag, piece.entry.path, CHUNK * piece.first, piece.size)

    def _keep(self, arrivals: Arrivals, piece: Piece, data: bytearray) -> None:
        view, manifest = memoryview(data), self._manifest
        for index in range(piece.many):
            part = view[CHUNK * index : CHUNK * (index + 1)]
            chunk = Chunk(manifest.epoch, manifest.tag, piece.entry.path, piece.first + index, len(part), "")
            arrivals.take(chunk, part)


class Reader(Session):
    """A session that asks for bytes ahead of those it waits for."""

    async def request(self, fetch: Fetch) -> None:
        """Ask, without waiting for the answer. Raises Unreachable."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._write(encode(request_body(fetch)))
        except (*_WEATHER, TimeoutError) as exc:
            raise Unreachable(f"the connection broke: {exc}") from exc

    async def data(self, size: int) -> bytearray:
        """The bytes of the request that was made first. Raises Unreachable and Refused."""
        try:
            async with asyncio.timeout(ANSWER_S) as silence:
                told = read(lambda body: whole_number(body, "size", MOST_FETCH), await self._answer())
                if told != size:
                    raise Refused(IO, f"the peer sends {told} bytes where {size} were asked for")
                return await self._take(size, silence)
        except TimeoutError as exc:
            raise Unreachable(f"the peer sent nothing for {ANSWER_S:.0f} s") from exc
        except _WEATHER as exc:
            raise Unreachable(f"the connection broke: {exc}") from exc

    async def _take(self, size: int, silence: asyncio.Timeout) -> bytearray:
        """Waits for as long as something comes: on a narrow way a piece takes what it takes."""
        while len(self._buffer) < size:
            more = await self.process.stdout.read(_READ_BYTES)
            silence.reschedule(asyncio.get_running_loop().time() + ANSWER_S)
            if not more:
                raise Unreachable("the peer's receiver ended in the middle of a file")
            self._buffer += more
        data = self._buffer[:size]
        del self._buffer[:size]
        return data


def _first(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failed.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
