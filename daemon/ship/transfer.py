"""The chunks of one checkpoint on their way to the peer, over several sessions at once.

Chunks may be fed before the checkpoint is committed, as its files grow; what changes afterwards has another
digest and is found by it. A session takes the next chunk as soon as it has sent one, so a file travels over
all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import structlog

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.ship.limit import Limit
from outlast.daemon.ship.protocol import DAMAGED, Chunk
from outlast.daemon.ship.session import Opener, Outcome, Session, ShorterError
from outlast.wire.digests import CHUNK

log = structlog.get_logger("outlast.ship")

# So many go to a session at a time: each time costs some work of the loop and of a thread.
BATCH = 4
# A further session costs more than this many chunks do.
CHUNKS_A_SESSION = 8
# How often one chunk may be altered on its way before the way is given up.
_TRIES = 4
# A session with nothing to send is ended, well before the receiver does so.
IDLE_S = 15.0

Key = tuple[str, int]


class Transfer:
    """Sends what it is fed. Use ``running`` around all other calls, which come from one loop.

    ``folder`` holds the files, and may be renamed by ``move`` (the commit does). ``sent`` is told of bytes
    as they leave.
    """

    def __init__(
        self,
        opener: Opener,
        place: tuple[int, str],
        folder: Path,
        sessions: int,
        limit: Limit,
        sent: Callable[[int], None],
    ) -> None:
        self._opener = opener
        self._epoch, self._tag = place
        self._folder = folder
        # Under a limit, so few and so little at a time that none is silent for too long.
        self._most = max(1, int(min(sessions, limit.round_bytes / CHUNK)))
        self._batch = max(1, int(min(BATCH, limit.round_bytes / (CHUNK * self._most))))
        self._limit = limit
        self._sent = sent
        self._todo: deque[tuple[Key, int]] = deque()
        self._tries: dict[Key, int] = {}
        self._busy = 0
        self._change = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        # Those of them that take what is fed next: the others are ending their sessions.
        self._takers: set[asyncio.Task[Any] | None] = set()
        self._ended = False
        self.fed: dict[Key, int] = {}
        self.bytes_sent = 0

    @asynccontextmanager
    async def running(self, watch: Coroutine[Any, Any, None]) -> AsyncIterator[Transfer]:
        """Workers live within the block; the first failure of one of them, or of ``watch``, ends it."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                watching = group.create_task(watch)
                yield self
                self._ended = True
                for task in (watching, *self._tasks):
                    task.cancel()
        except ExceptionGroup as several:
            raise several.exceptions[0] from several
        finally:
            self._ended = True

    def move(self, folder: Path) -> None:
        """The files have another folder from here on."""
        self._folder = folder

    def feed(self, path: str, indices: Iterable[int], size: int, *, again: bool = False) -> None:
        """Send chunks of a file that is ``size`` bytes long; what was fed at that length is left out."""
        for index in indices:
            length = min(CHUNK, size - CHUNK * index)
            key = (path, index)
            if length > 0 and (again or self.fed.get(key) != length):
                self.fed[key] = length
                self._todo.append((key, length))
        self._employ()
        self._change.set()

    async def drain(self) -> None:
        """Return once all that was fed has been confirmed by the peer."""
        while self._todo or self._busy:
            self._change.clear()
            await self._change.wait()

    def lend(self, session: Session) -> asyncio.Task[None]:
        """Let a session that is open already take chunks too; between ``drain`` and ``feed`` it is free.

        Once the task that is returned is done the session was idle, and the receiver is going to end it.
        """
        assert self._group is not None
        task = self._group.create_task(self._serve(session))
        self._keep(task)
        return task

    def warm(self, size: int) -> None:
        """Open the sessions that so many bytes are going to need, before it is known which they are."""
        self._employ(size // CHUNK)

    def _employ(self, chunks: int = 0) -> None:
        wanted = min(self._most, 1 + max(chunks, len(self._todo)) // CHUNKS_A_SESSION)
        while self._group is not None and not self._ended and len(self._takers) < wanted:
            self._keep(self._group.create_task(self._work()))

    def _keep(self, task: asyncio.Task[None]) -> None:
        for tasks in (self._tasks, self._takers):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def _leave(self) -> None:
        """This task takes nothing more. Nobody must wait for it while its session is being ended."""
        self._takers.discard(asyncio.current_task())

    async def _work(self) -> None:
        async with AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(Session(self._opener))
            except Unreachable as exc:
                if len(self._takers) == 1:
                    raise
                # A server may take fewer at once than we should like; those that are open go on.
                self._leave()
                log.info("one_session_less", because=str(exc))
                return
            await self._serve(session)

    async def _serve(self, session: Session) -> None:
        """Send what there is to send, until there was nothing for a while."""
        while await self._more():
            self._busy += 1
            while self._todo:
                many = min(self._batch, len(self._todo))
                await self._send(session, [self._todo.popleft() for _ in range(many)])
            self._take_in(await session.settle())
            self._busy -= 1
            self._change.set()

    async def _more(self) -> bool:
        """Wait for something to do; False after too long, as the receiver ends a session that is idle."""
        try:
            async with asyncio.timeout(IDLE_S):
                while not self._todo:
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            if not self._todo:  # something may have been fed in this very moment
                self._leave()
                return False
        return True

    async def _send(self, session: Session, batch: list[tuple[Key, int]]) -> None:
        size = sum(length for _, length in batch)
        await self._limit.take(size)
        try:
            chunks = [Chunk(self._epoch, self._tag, *key, length, "") for key, length in batch]
            outcomes = await session.chunks(chunks, self._folder)
        except ShorterError as exc:
            raise Refused(DAMAGED, str(exc)) from exc
        self.bytes_sent += size
        self._sent(size)
        self._take_in(outcomes)

    def _take_in(self, outcomes: list[Outcome]) -> None:
        """A chunk that was altered on its way goes again, alone; any other refusal ends the transfer."""
        for chunk, refused in outcomes:
            if refused is None:
                continue
            key = (chunk.path, chunk.index)
            self._tries[key] = self._tries.get(key, 0) + 1
            if refused.code != DAMAGED or self._tries[key] >= _TRIES:
                raise refused
            self._todo.append((key, chunk.size))
