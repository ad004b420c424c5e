"""Ranks that were told to leave and do not: signalled where that is configured, named where it is not.

Only ranks are ever signalled, never their launcher: DeepSpeed's and torchrun's kill their children. A pid
is the kernel's word about a connection that still stands, so it cannot be another process's.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress

import structlog

from outlast.daemon.core.ranks import Ranks

log = structlog.get_logger("outlast.job")

# A rank leaves at its next step boundary; long steps and evaluation take their time.
GRACE_S = 15.0


async def see_off(job: str, ranks: Ranks, stop_signal: str | None, grace_s: float = GRACE_S) -> None:
    """Wait for dismissed ranks to leave; then send ``stop_signal`` (a name such as USR1), if any."""
    staying = await _wait(ranks, grace_s)
    if not staying:
        return
    log.warning("ranks_stay", job=job, pids=staying, signal=stop_signal, hint="set stop_signal to end them")
    if stop_signal is None:
        return
    for pid in staying:
        with suppress(ProcessLookupError):
            _signal(pid, signal.Signals[f"SIG{stop_signal}"])


async def _wait(ranks: Ranks, grace_s: float) -> list[int]:
    """The pids of ranks still connected after the grace; [] as soon as all have left."""
    try:
        async with asyncio.timeout(grace_s):
            await ranks.gone.wait()
    except TimeoutError:
        return sorted({connection.pid for connection in ranks})
    return []


def _signal(pid: int, number: signal.Signals) -> None:
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)
