"""The exit codes of every command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a caller may conclude. ``systemd/outlast.service`` does not restart on USAGE and BAD_CONFIG."""

    DONE = 0
    FAILED = 1  # a promise did not hold, or a check found damage
    USAGE = 2
    UNREACHABLE = 3  # the daemon, or a place that was asked for, does not answer
    DEGRADED = 4
    MISFIT = 65  # the checkpoint there is does not fit the run
    NOTHING = 66  # no checkpoint to restore
    TRY_AGAIN = 75
    BAD_CONFIG = 78
    INTERRUPTED = 130
