"""How long to train between checkpoints. Standard library only: the daemon asks this of itself.

Young, CACM 17(9):530, 1974; Daly, FGCS 22(3):303, 2006. All times in seconds.
"""

from __future__ import annotations

import math

# The share of successful flushes is measured from few events: beyond this the interval trusts it too much.
CAP_S = 3600.0


def young(stall_s: float, mtbf_s: float) -> float:
    """Young's first-order interval between checkpoints that stall training for ``stall_s``."""
    return math.sqrt(2 * stall_s * mtbf_s)


def daly(stall_s: float, mtbf_s: float) -> float:
    """Daly's higher-order interval; the mean time between interruptions where checkpoints cost twice that."""
    if stall_s >= 2 * mtbf_s:
        return mtbf_s
    x = stall_s / (2 * mtbf_s)
    return young(stall_s, mtbf_s) * (1 + math.sqrt(x) / 3 + x / 9) - stall_s


def choose(stall_s: float, mtbf_s: float, flush_share: float = 0.0, cap_s: float = CAP_S) -> float:
    """Daly's interval for the interruptions that no flush catches, at most ``cap_s``.

    ``flush_share`` is the share of interruptions whose flush succeeds. Raises ValueError for a stall or a
    time between interruptions that is not above 0, or a share outside 0 to 1.
    """
    if not (stall_s > 0 and mtbf_s > 0 and 0 <= flush_share <= 1):
        raise ValueError("stall and time between interruptions must be above 0, the share within 0 to 1")
    if flush_share == 1 or math.isinf(mtbf_s):
        return cap_s
    return min(daly(stall_s, mtbf_s / (1 - flush_share)), cap_s)


def steps(interval_s: float, step_s: float) -> int:
    """The interval in whole steps of ``step_s`` seconds, at least one."""
    return max(1, round(interval_s / step_s))
