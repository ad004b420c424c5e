"""Bulk over several channels of the one connection: each has a window of its own, which distance asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncssh

from outlast.daemon.ship.protocol import Wanted
from outlast.daemon.ship.session import Session
from outlast.wire.manifest import FileEntry
from outlast.wire.store import Committed

_BYTES_A_CHANNEL = 4 * 1024 * 1024


class Channels:
    """Spread the files over up to ``count`` channels, the largest first."""

    def __init__(self, count: int) -> None:
        self._count = max(1, count)

    async def send(
        self,
        connection: asyncssh.SSHClientConnection,
        first: Session,
        committed: Committed,
        wanted: tuple[Wanted, ...],
        sent: Callable[[int], None],
    ) -> None:
        """See Bulk."""
        by_path = {entry.path: entry for entry in committed.manifest.files}
        todo = sorted(((by_path[item.path], item.have) for item in wanted), key=_left)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_drain(first, committed, todo, sent))
                for _ in range(self._more(todo)):
                    group.create_task(_worker(connection, committed, todo, sent))
        except ExceptionGroup as several:
            raise several.exceptions[0] from several

    def _more(self, todo: list[tuple[FileEntry, int]]) -> int:
        """Further channels besides the first: a new session costs more than a few megabytes do."""
        worth = sum(map(_left, todo)) // _BYTES_A_CHANNEL
        return min(self._count, len(todo), 1 + worth) - 1


async def _worker(
    connection: asyncssh.SSHClientConnection,
    committed: Committed,
    todo: list[tuple[FileEntry, int]],
    sent: Callable[[int], None],
) -> None:
    async with Session(connection) as session:
        await _drain(session, committed, todo, sent)


async def _drain(
    session: Session, committed: Committed, todo: list[tuple[FileEntry, int]], sent: Callable[[int], None]
) -> None:
    while todo:
        entry, have = todo.pop()
        await session.put(committed, entry, have, sent)


def _left(item: tuple[FileEntry, int]) -> int:
    entry, have = item
    return entry.size - have
