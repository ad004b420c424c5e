"""Why this node's stay ends, when the daemon is told to stop: the machine goes down, or only the daemon."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

ASK_S = 2.0
_COMMAND = ("systemctl", "is-system-running")


async def machine_goes_down(command: Sequence[str] = _COMMAND) -> bool:
    """Whether systemd is shutting the machine down. False where nobody can say, as in a container."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(ASK_S):
            said, _ = await process.communicate()
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return said.strip() == b"stopping"
