"""From the settings of a job to its peer and its stores."""

from __future__ import annotations

from outlast.daemon.config import JobSettings
from outlast.daemon.config.model import StoreSettings as Given
from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.daemon.store.destination import StoreDestination, StoreSettings
from outlast.providers.base import Clock


def open_peer(settings: JobSettings, clock: Clock) -> Peer | None:
    """The job's peer, still to be run; None without one."""
    peer = settings.peer
    if peer is None:
        return None
    return Peer(
        PeerSettings(
            host=peer.host,
            port=peer.port,
            user=peer.user,
            host_key=peer.host_key,
            key=peer.key,
            bulk=peer.bulk,
            channels=peer.channels,
            limit_bytes_s=peer.limit,
            keep=peer.keep,
        ),
        settings.name,
        clock,
    )


def open_store(given: Given, job: str, clock: Clock) -> StoreDestination:
    """One of the job's stores; nothing is asked of it yet."""
    wanted = StoreSettings(
        given.url, given.endpoint, given.region, given.account, given.keep, given.read_back
    )
    return StoreDestination(wanted, job, clock)
