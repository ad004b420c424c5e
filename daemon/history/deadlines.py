"""When a node goes, as a monotonic instant: fixed at first sighting, perhaps moved earlier, never later."""

from __future__ import annotations

from dataclasses import dataclass

from outlast.daemon.history.rows import Moment

# Two wall deadlines closer than this are the same instant: providers give whole seconds.
SAME_S = 1.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """``mono`` is monotonic seconds of the boot ``boot_id``; ``wall`` the same instant in UTC."""

    mono: float
    wall: float
    boot_id: str


def settle(known: Deadline | None, seen: Deadline, now: Moment) -> Deadline:
    """The deadline that holds after a sighting.

    A provider that repeats its instant has not moved it: what then differs on the monotonic clock is a step
    of the wall clock, and the first reckoning stands. After a reboot the wall clock alone is left to go by.
    """
    if known is None:
        return seen
    if known.boot_id != seen.boot_id:
        known = Deadline(now.mono + known.wall - now.wall, known.wall, seen.boot_id)
    if seen.mono < known.mono and abs(seen.wall - known.wall) > SAME_S:
        return seen
    return known
