"""Ranks of several nodes as threads of one process, with the real hook and a socket for each node's daemon.

They meet in a barrier each step, as in a collective: who hangs breaks it for all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outlast.hooks.ballot import LocalBallot
from outlast.hooks.guard import Guard
from outlast.simulations.training.plain import build


@dataclass(frozen=True)
class Home:
    """Where the ranks of one node save to, and where its daemon listens."""

    checkpoints: Path
    socket: Path


class Nodes:
    """``here`` ranks on each of ``homes``; they train from ``start`` on until ``finish`` or sent home.

    ``errors``: how ranks ended that did not train to the end; a rank that was sent home has SystemExit.
    """

    def __init__(
        self, homes: Sequence[Home], here: int = 2, pause_s: float = 0.005, job: str = "tune"
    ) -> None:
        self.world = here * len(homes)
        self.errors: list[BaseException] = []
        self.guards: dict[int, Guard] = {}
        self._homes, self._here, self._pause_s, self._job = homes, here, pause_s, job
        self._finish, self._last = False, False
        self._barrier = threading.Barrier(self.world, action=self._complete)
        shared: dict[str, str] = {}
        ballots = [LocalBallot(rank, self.world, shared) for rank in range(self.world)]
        self._threads = [threading.Thread(target=self._rank, args=(b,), daemon=True) for b in ballots]

    def start(self) -> None:
        """Let all ranks begin."""
        for thread in self._threads:
            thread.start()

    def ended(self, seconds: float = 20.0) -> None:
        """Wait until all ranks have ended. Raises TimeoutError where one hangs."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        alive = [thread for thread in self._threads if thread.is_alive()]
        self._barrier.abort()
        if alive:
            raise TimeoutError(f"{len(alive)} of {self.world} ranks hang")

    def finish(self, seconds: float = 20.0) -> None:
        """All train on to one last step, and none is left behind. Raises what a rank raised."""
        self._finish = True
        self.ended(seconds)
        if self.errors:
            raise self.errors[0]

    @property
    def steps(self) -> list[int]:
        """How far each rank is that has begun."""
        return [self.guards[rank].step_count for rank in sorted(self.guards)]

    def _complete(self) -> None:
        # Run by one rank while the others wait: all see the same last step.
        self._last = self._finish

    def _rank(self, ballot: LocalBallot) -> None:
        home = self._homes[ballot.rank // self._here]
        try:
            own = build(home.checkpoints, ballot, 0.0, self._job, here=self._here, socket=home.socket)
            with own:
                self.guards[ballot.rank] = own
                while not self._last:
                    time.sleep(self._pause_s * (1 + ballot.rank % 3))
                    self._barrier.wait(15.0)
                    own.step()
        except BaseException as exc:  # noqa: BLE001 - for whoever started the ranks to look at
            self.errors.append(exc)
            if not isinstance(exc, SystemExit):
                self._barrier.abort()
