"""Where a job's checkpoints go, how far each place is behind and whether it can be used: for ``status``."""

from __future__ import annotations

from typing import Any

from outlast.daemon.core.errands import Errands
from outlast.daemon.core.facts import PeerFact, Place
from outlast.daemon.core.job import Job
from outlast.daemon.core.lag import Lag
from outlast.daemon.core.stores import StoreKeeper
from outlast.daemon.core.tally import Tally


def destinations(job: Job, errands: Errands) -> list[dict[str, Any]]:
    """The peer first, if there is one, then the stores in the order of the configuration."""
    peer, replicas = errands.peer_fact(), errands.replicas
    found = [] if peer is None else [_peer(job, errands, peer)]
    return found + [_store(keeper) for keeper in (replicas.keepers if replicas is not None else ())]


def _peer(job: Job, errands: Errands, peer: PeerFact) -> dict[str, Any]:
    shipping = errands.sent if "ship" in errands.in_flight else None
    lag = job.commits.behind(job.newest, peer.newest, shipping[0] if shipping else 0)
    return _one(
        errands.peer_name, "peer", peer.reachable, peer.because, peer.newest, lag, shipping, errands.shipped
    )


def _store(keeper: StoreKeeper) -> dict[str, Any]:
    seen = keeper.destination.state
    shipping = keeper.sent if keeper.shipping is not None else None
    because = seen.because or keeper.because
    kind = keeper.destination.settings.address.scheme
    return _one(
        keeper.destination.name,
        kind,
        seen.reachable,
        because,
        keeper.there,
        keeper.lag,
        shipping,
        keeper.shipped,
    )


def _one(
    name: str,
    kind: str,
    reachable: bool | None,
    because: str,
    newest: Place | None,
    lag: Lag | None,
    shipping: tuple[int, int] | None,
    shipped: Tally,
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "reachable": reachable,
        "because": because,
        "newest": {"epoch": newest.epoch, "tag": newest.tag, "step": newest.step} if newest else None,
        "lag": {"steps": lag.steps, "bytes": lag.bytes, "seconds": round(lag.seconds, 3)} if lag else None,
        "shipping": {"sent": shipping[0], "total": shipping[1]} if shipping else None,
        "shipped": shipped.state,
    }
