"""A restore that a person asks for: the search of the daemon, with the places and the run they name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from outlast.daemon.checkpoint.arriving import CannotLand, from_folder, land
from outlast.daemon.checkpoint.choosing import Go, Nothing, Refuse, choose
from outlast.daemon.checkpoint.destinations import Progress, Refused
from outlast.daemon.config import JobSettings
from outlast.daemon.core.places import open_peer, open_store
from outlast.daemon.core.search import Search, Settled, Stuck
from outlast.daemon.core.sources import PeerSource, Source, StoreSource
from outlast.daemon.ops.exit import ExitCode
from outlast.providers.base import SystemClock
from outlast.wire.fit import World

LOCAL, PEER = "local", "peer"


class UnknownPlace(ValueError):  # noqa: N818 - a state of the world, named as callers speak of it
    """The job has no place of that name; the text says which it has."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be restored: for a run of ``world``, from ``origin`` alone, into the store ``into``."""

    world: World = field(default_factory=World)
    origin: str | None = None
    into: Path | None = None
    dry_run: bool = False
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended. ``places``: name and kind of each one asked; ``code`` is the command's exit status."""

    job: str
    places: tuple[tuple[str, str], ...]
    settled: Settled
    code: ExitCode


async def restore(job: JobSettings, wish: Wish) -> Outcome:
    """Look, choose and fetch. Raises UnknownPlace."""
    own = _own(job)
    into = wish.into or own[0]
    async with _sources(job, wish.origin) as sources:
        at_home = wish.origin in (None, LOCAL)
        stores = tuple(dict.fromkeys((into, *own)))
        guest = job.name if into not in own else ""
        search = Search(stores, sources, at_home=at_home, guest=guest, nodes=len(job.nodes) or 1)
        kinds = [(str(store), LOCAL) for store in stores if at_home]
        places = (*kinds, *((source.name, source.kind) for source in sources))
        settled = await _settled(search, wish)
    if wish.into is not None and settled.committed is not None:
        settled = await _into(wish.into, settled, wish.progress)
    return Outcome(job.name, places, settled, _code(settled))


async def _settled(search: Search, wish: Wish) -> Settled:
    if wish.dry_run:
        seen = await search.look()
        decision = choose(seen.candidates, seen.silent, wish.world)
        return Settled(decision, seen)
    settled = await search.settle(wish.world, strict=True, progress=wish.progress)
    assert settled is not None, "nothing stops this search"
    return settled


async def _into(into: Path, settled: Settled, progress: Progress | None) -> Settled:
    """What lies in another store of this node is linked or copied to the one that was asked for."""
    found = settled.committed
    assert found is not None
    if found.folder.parent == into:
        return settled
    assert isinstance(settled.decision, Go)
    try:
        bring = from_folder(found.path)
        committed, _ = await land(found.manifest, into, bring, progress, near=(found.path.parents[1],))
    except Refused as exc:
        chosen, passed = settled.decision.candidate, settled.decision.passed
        again = not isinstance(exc, CannotLand)
        return replace(settled, decision=Stuck(chosen, exc.because, again, passed), committed=None)
    return replace(settled, committed=committed)


def _own(job: JobSettings) -> tuple[Path, ...]:
    """The job's stores on this node: what its trainer saves to, and what its peer sends."""
    replicas = job.replicas / job.name if job.replicas else None
    return tuple(store for store in (job.checkpoints, replicas) if store is not None)


@asynccontextmanager
async def _sources(job: JobSettings, origin: str | None) -> AsyncIterator[Sequence[Source]]:
    """The places elsewhere, or the one of them that is wanted; the peer's connection runs meanwhile."""
    clock = SystemClock()
    peer = open_peer(job, clock) if origin in (None, PEER) else None
    stores = [open_store(given, job.name, clock) for given in job.stores if _wanted(str(given.url), origin)]
    if origin not in (None, LOCAL) and peer is None and not stores:
        known = [LOCAL, *([PEER] if job.peer else []), *(str(given.url) for given in job.stores)]
        raise UnknownPlace(f"job {job.name} has no place {origin}: give one of {', '.join(known)}")
    running = asyncio.create_task(peer.run()) if peer is not None else None
    try:
        yield [*([PeerSource(peer)] if peer is not None else []), *map(StoreSource, stores)]
    finally:
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _wanted(url: str, origin: str | None) -> bool:
    return origin is None or url.rstrip("/") == origin.rstrip("/")


def _code(settled: Settled) -> ExitCode:
    decision = settled.decision
    if isinstance(decision, Stuck):
        return ExitCode.TRY_AGAIN if decision.again else ExitCode.FAILED
    if isinstance(decision, Refuse):
        return ExitCode.MISFIT
    if isinstance(decision, Nothing):
        return ExitCode.UNREACHABLE if settled.seen.silent else ExitCode.NOTHING
    return ExitCode.DONE
