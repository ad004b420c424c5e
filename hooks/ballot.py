"""How ranks decide alike when words of the daemon reach only some of them: a shared register.

The register is the key-value store that ``torch.distributed`` was started with. It is used at start and
while a flush is in progress, never in an ordinary step, and no collective is involved: a rank that is lost
can make the others give up, but cannot leave them hanging in a half-entered collective.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

POLL_S = 0.002


class BallotError(RuntimeError):
    """The register cannot be reached: the process that hosts it is gone."""


class Ballot(Protocol):
    """A register shared by the ranks of one job. Every method raises BallotError when it is gone."""

    rank: int
    world: int

    def post(self, key: str, value: str) -> None:
        """Write ``value`` for the others to read."""
        ...

    def read(self, key: str) -> str | None:
        """What was posted under ``key``, or None. Does not wait."""
        ...

    def decide(self, key: str, value: str) -> str:
        """The first value proposed under ``key`` by any rank: the same answer for every rank, for ever."""
        ...


class LocalBallot:
    """The register of ranks that are threads of one process, and of a job of one rank."""

    def __init__(self, rank: int = 0, world: int = 1, shared: dict[str, str] | None = None) -> None:
        self.rank, self.world = rank, world
        self._values = {} if shared is None else shared

    def post(self, key: str, value: str) -> None:
        """Write ``value``."""
        self._values[key] = value

    def read(self, key: str) -> str | None:
        """What was posted, or None."""
        return self._values.get(key)

    def decide(self, key: str, value: str) -> str:
        """The first proposal wins; ``dict.setdefault`` is atomic."""
        return self._values.setdefault(key, value)


class StoreBallot:
    """The register kept in the store of ``torch.distributed``'s default group."""

    def __init__(self, store: object, rank: int, world: int, prefix: str) -> None:
        self.rank, self.world = rank, world
        # The store's classes are compiled and carry no types.
        self._store: _Store = store  # type: ignore[assignment]  # torch's store, unknown to the checker
        self._prefix = prefix

    def post(self, key: str, value: str) -> None:
        """Write ``value``."""
        try:
            self._store.set(self._prefix + key, value)
        except RuntimeError as exc:
            raise BallotError(str(exc)) from exc

    def read(self, key: str) -> str | None:
        """What was posted, or None."""
        try:
            if not self._store.check([self._prefix + key]):
                return None
            return self._store.get(self._prefix + key).decode()
        except RuntimeError as exc:
            raise BallotError(str(exc)) from exc

    def decide(self, key: str, value: str) -> str:
        """The first proposal wins, by the store's compare-and-set."""
        try:
            return self._store.compare_set(self._prefix + key, "", value).decode()
        except RuntimeError as exc:
            raise BallotError(str(exc)) from exc


class _Store(Protocol):
    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: Sequence[str]) -> bool: ...
    def compare_set(self, key: str, expected: str, desired: str) -> bytes: ...


def gather(
    ballot: Ballot,
    key: str,
    until: float,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> list[str] | None:
    """What every rank posted under ``<key>/<rank>``, in rank order; None if some had not by ``until``.

    ``until`` is in seconds of ``clock``; ``stop`` ends the wait early.
    """
    found: dict[int, str] = {}
    while True:
        for rank in range(ballot.world):
            value = None if rank in found else ballot.read(f"{key}/{rank}")
            if value is not None:
                found[rank] = value
        if len(found) == ballot.world:
            return [found[rank] for rank in range(ballot.world)]
        if stop() or clock() >= until:
            return None
        time.sleep(POLL_S)


def wait_for(
    ballot: Ballot, key: str, until: float, clock: Callable[[], float] = time.monotonic
) -> str | None:
    """What is posted under ``key`` as soon as it is; None if not by ``until`` (seconds of ``clock``)."""
    while True:
        value = ballot.read(key)
        if value is not None or clock() >= until:
            return value
        time.sleep(POLL_S)
