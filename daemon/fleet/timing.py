"""What flushes, ships and restores took, from the history's rows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from outlast.daemon.history.counting import interruptions
from outlast.daemon.history.rows import FlushRow, Rows
from outlast.daemon.rates.table import Timing

# A flush belongs to a loss that came no later after it was asked for.
MOST_NOTICE_S = 900.0


def timing_of(rows: Rows, now: float) -> Timing:
    """Medians of what succeeded, and how many losses a committed flush went before."""
    flushes = [row for row in rows.flushes if row.outcome == "committed"]
    ships = [row for row in rows.ships if row.outcome == "done" and row.seconds and row.bytes]
    sizes = [row for row in flushes if row.bytes and row.committed is not None]
    latest = max(sizes, key=lambda row: (row.committed, row.bytes), default=None)
    lost = sorted(stroke.at for stroke in interruptions(rows, now))
    return Timing(
        flush_s=_median([row.seconds for row in flushes]),
        restore_s=_median([row.seconds for row in rows.restores if row.outcome == "done"]),
        ship_bytes_s=_median([(row.bytes or 0) / row.seconds for row in ships if row.seconds]),
        checkpoint_bytes=None if latest is None else latest.bytes,
        flushes=_covered(lost, flushes),
        losses=len(lost),
    )


def _covered(lost: Sequence[float], flushes: Sequence[FlushRow]) -> int:
    """How many losses have a committed flush of their own shortly before them."""
    asked = sorted(row.asked for row in flushes if row.asked is not None)
    covered = 0
    for at in lost:
        mine = next((when for when in reversed(asked) if when <= at <= when + MOST_NOTICE_S), None)
        if mine is not None:
            asked.remove(mine)
            covered += 1
    return covered


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
