"""What every destination of checkpoints says alike: it arrived; it is out of reach; it says no."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

DAMAGED = "damaged"
NO_SPACE = "no_space"
CREDENTIALS = "credentials"
TAKEN = "taken"
BAD_REQUEST = "bad_request"
IO = "io"

# Bytes that are there, bytes in all.
Progress = Callable[[int, int], None]
# Fewer than these, after an early start, do not tell how fast the way is.
_TELLING_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Shipped:
    """A checkpoint is committed there: bytes that were sent, bytes it has, seconds taken.

    ``early`` of the bytes went while it was still being saved; the seconds count from its commit here, and
    ``sending_s`` from when the first chunk had left. A part waits there for the parts of ``waiting``.
    """

    bytes_sent: int
    bytes_total: int
    seconds: float
    early: int = 0
    sending_s: float = 0.0
    waiting: tuple[str, ...] = ()

    @property
    def bytes_s(self) -> float | None:
        """Bytes a second on the way; None where too few went after the commit to tell."""
        late = self.bytes_sent - self.early
        if self.seconds <= 0 or late <= 0 or (self.early and late < _TELLING_BYTES):
            return None
        return late / self.seconds


class Unreachable(Exception):  # noqa: N818 - a state of the world, named as callers speak of it
    """The destination cannot be talked to just now; the text says why and what to do. Try again later."""


class Refused(Exception):  # noqa: N818 - a state of the world, named as callers speak of it
    """The destination understood and said no, with a ``code``. It says so again until facts change."""

    def __init__(self, code: str, because: str) -> None:
        super().__init__(f"{because} ({code})")
        self.code = code
        self.because = because


class Count:
    """Bytes that are there so far, never above the total, and bytes that were sent for it.

    Nothing is told before the total is known: it is 0 until then.
    """

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._there = 0
        self._progress: Progress | None = progress
        self.sent = 0

    def begin(self, total: int, there: int) -> None:
        """So many are to be there, and so many are."""
        self._total, self._there = total, there

    def left(self, count: int) -> None:
        """So many are not there."""
        self.begin(self._total, self._total - count)

    def add(self, count: int) -> None:
        """So many more were sent."""
        self.sent += count
        self.there(count)

    def there(self, count: int) -> None:
        """So many more are there."""
        self._there = min(self._there + count, self._total)
        if self._progress and self._there < self._total:
            self._progress(self._there, self._total)

    def finish(self) -> None:
        """All is there."""
        if self._progress:
            self._progress(self._total, self._total)
