"""Bulk: how the bytes of wanted files get to the peer. Two ways, one promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import asyncssh

from outlast.daemon.ship.protocol import Wanted
from outlast.daemon.ship.session import Session
from outlast.wire.store import Committed


class Bulk(Protocol):
    """Sends files into the peer's staging folder; only the commit that follows says they are whole."""

    async def send(
        self,
        connection: asyncssh.SSHClientConnection,
        first: Session,
        committed: Committed,
        wanted: tuple[Wanted, ...],
        sent: Callable[[int], None],
    ) -> None:
        """Send the wanted files; ``sent`` is told of bytes as they leave. Can be cancelled at any time.

        ``first`` is the session the offer was made in; it may be used, and is left open.
        Raises PeerUnreachable, or PeerRefused with the receiver's reason.
        """
        ...


def bulk(kind: str, channels: int) -> Bulk:
    """The way named ``kind``: ``channels`` or ``rsync``. Raises ValueError."""
    from outlast.daemon.ship.channels import Channels
    from outlast.daemon.ship.rsync import Rsync

    if kind == "channels":
        return Channels(channels)
    if kind == "rsync":
        return Rsync()
    raise ValueError(f"bulk is {kind!r}; it can be 'channels' or 'rsync'")
