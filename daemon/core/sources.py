"""Where else a job's checkpoints may be found: its peer and its stores, asked in one way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from outlast.daemon.checkpoint.destinations import Progress
from outlast.daemon.ship.link import Peer
from outlast.daemon.store.destination import StoreDestination
from outlast.wire.manifest import Manifest
from outlast.wire.store import Committed


class Source(Protocol):
    """One place elsewhere. Everything raises Unreachable and Refused, ``fetch`` also CannotLand."""

    @property
    def name(self) -> str:
        """Its address, for people."""
        ...

    @property
    def kind(self) -> str:
        """``peer``, or the scheme of a store."""
        ...

    async def look(self) -> list[tuple[Manifest, str]]:
        """Its newest committed checkpoints, each with what is wrong with it, or an empty text."""
        ...

    async def fetch(
        self, manifest: Manifest, store: Path, progress: Progress | None, near: Sequence[Path]
    ) -> tuple[Committed, int]:
        """Have one of them committed in a local store, and the bytes that came."""
        ...


class PeerSource:
    """The peer; somebody else runs its connection."""

    kind = "peer"

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    @property
    def name(self) -> str:
        """Host and port."""
        return self._peer.name

    async def look(self) -> list[tuple[Manifest, str]]:
        """See Source."""
        return await self._peer.held()

    async def fetch(
        self, manifest: Manifest, store: Path, progress: Progress | None, near: Sequence[Path]
    ) -> tuple[Committed, int]:
        """See Source."""
        return await self._peer.fetch(manifest, store, progress, near)


class StoreSource:
    """An object store or a folder."""

    def __init__(self, destination: StoreDestination) -> None:
        self._destination = destination

    @property
    def name(self) -> str:
        """Its address."""
        return self._destination.name

    @property
    def kind(self) -> str:
        """The scheme of its address."""
        return self._destination.settings.address.scheme

    async def look(self) -> list[tuple[Manifest, str]]:
        """See Source."""
        return await self._destination.held()

    async def fetch(
        self, manifest: Manifest, store: Path, progress: Progress | None, near: Sequence[Path]
    ) -> tuple[Committed, int]:
        """See Source."""
        return await self._destination.fetch_one(manifest, store, progress, near)
