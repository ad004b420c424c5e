"""How long a job is away from training: from the takeover, or the trainer's return, to its first new step."""

from __future__ import annotations

import secrets

from outlast.daemon.core.record import Record
from outlast.providers.base import Clock


class Restores:
    """Times one restore after another. A start without a checkpoint is none."""

    def __init__(self, job: str, clock: Clock, record: Record) -> None:
        self._job = job
        self._clock = clock
        self._record = record
        self._since: float | None = None
        self._taken_over = False
        self._id: str | None = None

    def taken_over(self) -> None:
        """The job is this node's from now on."""
        self._since, self._taken_over = self._clock.monotonic(), True

    def returned(self) -> None:
        """The first rank of a trainer is here. After a takeover the time counts from that."""
        if not self._taken_over:
            self._since = self._clock.monotonic()

    def resuming(self, epoch: int, tag: str, place: str) -> None:
        """The ranks were told where to resume; without a ``tag`` they begin at the beginning."""
        self.gone()
        if not tag:
            self._since, self._taken_over = None, False
            return
        self._id = f"{epoch}-{secrets.token_hex(4)}"
        self._record.restore(self._job, self._id, "began", epoch=epoch, tag=tag, place=place)

    def stepped(self, step: int) -> None:
        """The first new step was trained."""
        if self._id is not None:
            self._record.restore(self._job, self._id, "stepped", seconds=self._seconds(), step=step)
        self._id, self._since, self._taken_over = None, None, False

    def gone(self) -> None:
        """No rank is left. A restore that had not come to a step has failed."""
        if self._id is not None:
            self._record.restore(self._job, self._id, "failed", seconds=self._seconds())
        self._id = None

    def _seconds(self) -> float | None:
        return None if self._since is None else self._clock.monotonic() - self._since
