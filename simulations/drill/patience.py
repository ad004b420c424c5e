"""How long a drill is waited for where nobody says: what its checkpoints take, on the way and on a disk."""

from __future__ import annotations

import math

from outlast.daemon.core.on_paper import rate
from outlast.daemon.ship.dial import PeerSettings

# Starts, steps and the run for comparison.
BASE_S = 300.0
# What two ranks of the small GPT save.
GPT_BYTES = 11_000_000
# Times that a checkpoint crosses the way: the trial's, the one of the notice, and one to spare for what is
# slower than reckoned.
CROSSINGS = 3
# Times that it is written or read: saved, digested, received and verified for each of them, and restored.
PASSES = 10
# A busy disk.
DISK_BYTES_S = 100e6


def patience(size: int | None, rtt_s: float, bytes_s: float | None) -> float:
    """Seconds. ``size``: bytes of a checkpoint (None: the GPT's); ``bytes_s``: the width of the way."""
    whole = GPT_BYTES if size is None else size
    arriving, _ = rate(math.inf if bytes_s is None else bytes_s, rtt_s, PeerSettings.channels, None)
    return BASE_S + CROSSINGS * whole / arriving + PASSES * whole / DISK_BYTES_S
