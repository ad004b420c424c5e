"""The way for large checkpoints: OpenSSH's client where it gets through, else channels."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from outlast.daemon.checkpoint.destinations import Unreachable
from outlast.daemon.ship.openssh import OpenSsh
from outlast.daemon.ship.session import Channels, Headed

log = structlog.get_logger("outlast.ship")


class Way:
    """An Opener over a connection that stands. That OpenSSH's client does not get through is learnt once."""

    def __init__(self, openssh: OpenSsh, channels: Channels) -> None:
        self._openssh = openssh
        self._channels = channels

    async def open(self, command: str) -> Any:
        """See Opener."""
        if self._openssh.works is False:
            return await self._channels.open(command)
        try:
            process: Any = await self._openssh.open(command)
        except Unreachable as exc:
            if self._openssh.works:
                raise
            process = await self._channels.open(command)
            # The connection stands, so it is the client: a key file that it finds too open, say.
            if self._openssh.works is None:
                log.warning("openssh_unusable", because=str(exc), instead="channels of the one connection")
                self._openssh.works = False
            return process
        self._openssh.works = True
        return process

    async def feed(self, process: Any, batch: Sequence[Headed]) -> None:
        """See Opener."""
        await self._whose(process).feed(process, batch)

    async def end(self, process: Any, *, hurry: bool) -> None:
        """See Opener."""
        await self._whose(process).end(process, hurry=hurry)

    def _whose(self, process: Any) -> OpenSsh | Channels:
        return self._openssh if isinstance(process, asyncio.subprocess.Process) else self._channels
