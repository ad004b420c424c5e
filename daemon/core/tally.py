"""What was sent to one destination in this life of the daemon, counted for the metrics."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class Tally:
    """Bytes sent and verified, transfers that came to that, those that failed; ``last_s``: the last took."""

    bytes: int = 0
    count: int = 0
    failures: int = 0
    last_s: float | None = None

    def arrived(self, sent: int, seconds: float) -> None:
        """A transfer is verified there."""
        self.bytes += sent
        self.count += 1
        self.last_s = round(seconds, 3)

    @property
    def state(self) -> dict[str, Any]:
        """For ``status``."""
        return asdict(self)
