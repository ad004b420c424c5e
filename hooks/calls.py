"""The flushes of a job over several nodes: one order of them for all ranks, kept in the ranks' register.

The daemon of one node speaks to the ranks of that node only. What it asks for is written into the next free
slot of the register, and the links of all ranks look there several times a second: a notice for one node has
every node save. Ranks take the slots one after another, so two nodes that are told at the same moment cannot
each wait for the other. The step is agreed by promises as on one node, only that they meet in the register.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from outlast.hooks.ballot import Ballot
from outlast.wire.messages import Flush, WireError, decode_to_hook, encode

LOOK_S = 0.1
# Beyond so many ranks each looks less often: the register answers them all from one process.
_OFTEN = 64


class Calls:
    """One rank's view of the slots. Every method but the constructor raises BallotError."""

    def __init__(self, ballot: Ballot, clock: Callable[[], float] = time.monotonic) -> None:
        self.look_s = LOOK_S * max(1.0, ballot.world / _OFTEN)
        self._ballot = ballot
        self._clock = clock
        self._slot = 0
        self._known: set[str] = set()
        self._new: list[Flush] = []
        self._said: dict[str, dict[int, int]] = {}
        self._next_look = clock()

    def known(self, flush_id: str) -> bool:
        """It was in a slot before: it is not called twice."""
        return flush_id in self._known

    def put(self, flush: Flush) -> list[Flush]:
        """Call all ranks to this flush; what is new to this rank, in order, the flush itself the last.

        Nothing where it is known already: another rank of the node has put it there.
        """
        text = encode(flush).decode()
        while flush.id not in self._known:
            self._take(self._ballot.decide(f"call/{self._slot}", text))
        return self._heard()

    def look(self) -> list[Flush]:
        """What other nodes have called since; looks at most every ``look_s``."""
        if self._clock() < self._next_look:
            return []
        self._next_look = self._clock() + self.look_s
        while (found := self._ballot.read(f"call/{self._slot}")) is not None:
            self._take(found)
        return self._heard()

    def _take(self, text: str) -> None:
        self._slot += 1
        try:
            flush = decode_to_hook(text.encode())
        except WireError:
            return  # of a rank with another version: its own node's daemon gives it up
        if isinstance(flush, Flush) and flush.id not in self._known:
            self._known.add(flush.id)
            self._new.append(flush)

    def _heard(self) -> list[Flush]:
        """Each once, also where the register failed between two slots."""
        new, self._new = self._new, []
        return new

    def promise(self, flush_id: str, step: int) -> None:
        """This rank will not pass the end of ``step`` before all have promised."""
        self._ballot.post(f"at/{flush_id}/{self._ballot.rank}", str(step))

    def agreed(self, flush_id: str) -> int | None:
        """The highest promise, once all ranks of all nodes have given theirs."""
        said = self._said.setdefault(flush_id, {})
        for rank in range(self._ballot.world):
            value = None if rank in said else self._ballot.read(f"at/{flush_id}/{rank}")
            if value is None and rank not in said:
                return None
            if value is not None:
                said[rank] = int(value)
        return max(said.values())

    def end(self, flush_id: str, why: str) -> None:
        """The flush is off, or held ranks are let go: all nodes are to train on."""
        self._ballot.post(f"off/{flush_id}", why)

    def ended(self, flush_id: str) -> str | None:
        """Why a flush was ended by another rank, or None."""
        return self._ballot.read(f"off/{flush_id}")
