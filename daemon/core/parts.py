"""A node of several: which part the peer needs next, and what is known to be whole there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from outlast.daemon.checkpoint.place import prove
from outlast.daemon.core.facts import Place
from outlast.daemon.ship.link import Peer, PeerState
from outlast.wire.manifest import Part
from outlast.wire.store import Committed, committed_at, epoch_folder


@dataclass(frozen=True, slots=True)
class Whole:
    """The checkpoint, or a newer one, is whole at the peer."""


@dataclass(frozen=True, slots=True)
class Waits:
    """This node's part is there; those of ``nodes`` are not."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Next:
    """This part is to be sent."""

    place: Place


async def look(peer: Peer, store: Path, part: Part, place: Place) -> Whole | Waits | Next:
    """What to do about ``place``, the newest here. A part that others wait for goes before a newer one.

    Else nodes that are slower than the interval could each send other steps, and none would become whole.
    Raises Unreachable and Refused.
    """
    seen = await peer.ask_state()
    await asyncio.to_thread(_note_whole, store, seen)
    if seen.newest is not None and (seen.newest[0], seen.newest[2]) >= place.order:
        return Whole()
    return await asyncio.to_thread(_choose, seen, store, part, place)


def note_whole(store: Path, place: Place) -> None:
    """Record that the checkpoint of this part is whole at the peer: every node can go on from its own."""
    found = committed_at(epoch_folder(store, place.epoch) / place.tag, place.epoch)
    if found is not None and not found.whole:
        prove(found)


def _note_whole(store: Path, seen: PeerState) -> None:
    if seen.newest is not None:
        epoch, tag, step = seen.newest
        note_whole(store, Place(epoch, tag, step))


def _choose(seen: PeerState, store: Path, part: Part, place: Place) -> Waits | Next:
    for item in seen.parts:
        mine = (item.epoch, item.tag) == (place.epoch, place.tag)
        if mine and part.node not in item.lacks:
            return Waits(item.lacks)
        if not mine and part.node in item.lacks and set(item.there) - {part.node}:
            found = committed_at(epoch_folder(store, item.epoch) / item.tag, item.epoch)
            if found is not None and not found.whole:
                return Next(_place(found))
    return Next(place)


def _place(found: Committed) -> Place:
    manifest = found.manifest
    return Place(
        found.epoch, found.tag, found.step, manifest.flush_id, manifest.total_bytes, manifest.created
    )
