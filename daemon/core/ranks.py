"""The ranks of one job as connected now, and what each has said of the flush in progress."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from outlast.daemon.core.facts import RankFact
from outlast.daemon.core.trainers import Connection
from outlast.wire.messages import At, Failed, Layout, Progress, Saved, ToHook

# Of so many flushes at once is kept what a rank said; on several nodes the next may begin before one ends.
_FLUSHES = 8


@dataclass
class _Words:
    """What a rank has said of one flush."""

    at: At | None = None
    saved: Saved | None = None
    failed: Failed | None = None


@dataclass
class _Rank:
    connection: Connection
    step: int
    step_s: float = 0.0
    words: dict[str, _Words] = field(default_factory=dict)

    def of(self, flush_id: str) -> _Words:
        """The words of one flush, to be added to."""
        known = self.words.setdefault(flush_id, _Words())
        while len(self.words) > _FLUSHES:
            del self.words[next(iter(self.words))]
        return known


class Ranks:
    """Who is connected. Words about another flush than the one asked about are kept, not mixed up."""

    def __init__(self, nodes: int = 1) -> None:
        self._nodes = nodes
        self._ranks: dict[int, _Rank] = {}
        self.gone = asyncio.Event()  # set while no rank is connected
        self.gone.set()

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Connection]:
        return iter([r.connection for r in self._ranks.values()])

    @property
    def layout(self) -> Layout | None:
        """The layout the trainer announced; None while no rank is connected."""
        return next((r.connection.hello.layout for r in self._ranks.values()), None)

    @property
    def world(self) -> int:
        """How many ranks train on this node, by their own word; 0 with no rank."""
        return self.layout.world // self._nodes if self.layout else 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """Which ranks are connected."""
        return tuple(sorted(self._ranks))

    @property
    def step(self) -> int:
        """The highest step any rank has completed; 0 with no rank."""
        return max((r.step for r in self._ranks.values()), default=0)

    @property
    def step_s(self) -> float:
        return max((r.step_s for r in self._ranks.values()), default=0.0)

    def refusal(self, connection: Connection) -> str | None:
        """Why this rank cannot join the others, or None."""
        hello = connection.hello
        if not 0 <= hello.rank < hello.layout.world:
            return f"rank {hello.rank} is not in a world of {hello.layout.world}"
        if hello.layout.world % self._nodes:
            return (
                f"{hello.layout.world} ranks do not spread evenly over the {self._nodes} nodes of jobs.nodes"
            )
        old = self._ranks.get(hello.rank)
        if old is not None and old.connection.pid != connection.pid:
            return (
                f"rank {hello.rank} of job {hello.job} is already here as pid {old.connection.pid}: "
                "two trainers may not share one job name"
            )
        others = [r for n, r in self._ranks.items() if n != hello.rank]
        if others and others[0].connection.hello.layout != hello.layout:
            return f"rank {hello.rank} announces another layout than the ranks already here"
        if old is None and others and len(others) >= self.world:
            return f"all {self.world} ranks of this node are here already: do jobs.nodes name all nodes?"
        return None

    def add(self, connection: Connection) -> None:
        """Take a rank; an older connection of the same rank is closed."""
        old = self._ranks.get(connection.hello.rank)
        if old is not None:
            old.connection.close()
        self._ranks[connection.hello.rank] = _Rank(connection, connection.hello.step)
        self.gone.clear()

    def remove(self, connection: Connection) -> bool:
        """Forget a rank. False if a newer connection has taken its place already."""
        known = self._ranks.get(connection.hello.rank)
        if known is None or known.connection is not connection:
            return False
        del self._ranks[connection.hello.rank]
        if not self._ranks:
            self.gone.set()
        return True

    def progress(self, connection: Connection, said: Progress) -> None:
        rank = self._find(connection)
        if rank is not None:
            rank.step = max(rank.step, said.step)
            if said.pause_s is None:  # else it is told between two looks at the pace
                rank.step_s = said.step_s if math.isfinite(said.step_s) else 0.0

    def at(self, connection: Connection, said: At) -> None:
        rank = self._find(connection)
        if rank is not None:
            # A promise tells the step more freshly than progress does, which comes once a second.
            rank.of(said.id).at, rank.step = said, max(rank.step, said.step - 1)

    def saved(self, connection: Connection, said: Saved) -> None:
        rank = self._find(connection)
        if rank is not None:
            rank.of(said.id).saved, rank.step = said, max(rank.step, said.step)

    def failed(self, connection: Connection, said: Failed) -> None:
        rank = self._find(connection)
        if rank is not None:
            rank.of(said.id).failed = said

    def all_saved(self) -> Saved | None:
        """The word of a flush that every rank of this node has saved, whoever asked for it."""
        if not self._ranks or len(self._ranks) != self.world:
            return None
        first, *others = self._ranks.values()
        said = [words.saved for words in first.words.values() if words.saved is not None]
        return next((one for one in said if all(_saved(rank, one.id) for rank in others)), None)

    def spoke_of(self, flush_id: str) -> bool:
        """Whether any rank has said anything of this flush."""
        return any(flush_id in rank.words for rank in self._ranks.values())

    def stall_s(self, flush_id: str) -> float | None:
        """How long saving held the slowest rank, by the ranks' own clocks; None if none has said."""
        said = [saved.seconds for r in self._ranks.values() if (saved := _saved(r, flush_id))]
        return max((s for s in said if math.isfinite(s) and s >= 0), default=None)

    def facts(self, flush_id: str | None) -> tuple[RankFact, ...]:
        """One fact a rank, in rank order, about the flush ``flush_id``."""
        return tuple(_fact(n, r, flush_id) for n, r in sorted(self._ranks.items()))

    def send(self, message: ToHook) -> None:
        """Say the same to every rank."""
        for connection in self:
            connection.send(message)

    def forget(self, flush_id: str) -> None:
        """The flush is over: drop what was said of it."""
        for rank in self._ranks.values():
            rank.words.pop(flush_id, None)

    def _find(self, connection: Connection) -> _Rank | None:
        rank = self._ranks.get(connection.hello.rank)
        return rank if rank is not None and rank.connection is connection else None


def _saved(rank: _Rank, flush_id: str) -> Saved | None:
    words = rank.words.get(flush_id)
    return words.saved if words is not None else None


def _fact(number: int, rank: _Rank, flush_id: str | None) -> RankFact:
    said = rank.words.get(flush_id or "", _Words())
    at = said.at.step if said.at else None
    failed = said.failed.reason if said.failed else None
    tag, step = (said.saved.tag, said.saved.step) if said.saved else (None, None)
    return RankFact(number, rank.connection.pid, rank.step, at, tag, failed, step)
