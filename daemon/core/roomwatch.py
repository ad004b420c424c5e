"""Watches the room in the folders of this node: on a timer, after each commit and after each failed one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import structlog

from outlast.daemon.core.job import Job
from outlast.daemon.core.record import Record
from outlast.daemon.core.room import Room, RoomFacts, Size, Spot, State, plan_room
from outlast.daemon.ship.space import files_for
from outlast.wire.manifest import Manifest
from outlast.wire.store import scan

log = structlog.get_logger("outlast.room")

LOOK_S = 30.0
# Of so many of the newest checkpoints the largest counts.
RECENT = 3
_BLOCK = 4096
# What the daemon's own records may need until somebody has read the warning.
STATE_NEED = Size(64 * 1024 * 1024, 64)

StatVfs = Callable[[Path], os.statvfs_result]


class RoomWatch:
    """``rooms`` is the verdict of each folder, as last looked at. ``jobs`` wake it at each commit."""

    def __init__(
        self,
        spots: Sequence[Spot],
        jobs: Iterable[Job],
        record: Record,
        *,
        look_s: float = LOOK_S,
        statvfs: StatVfs = os.statvfs,
    ) -> None:
        self._spots = tuple(spots)
        self._record = record
        self._look_s = look_s
        self._statvfs = statvfs
        self._wake = asyncio.Event()
        self.rooms: tuple[Room, ...] = ()
        for job in jobs:
            job.commits.listeners.append(self._wake.set)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._wake.clear()
            self._take(await asyncio.to_thread(self._look))
            try:
                async with asyncio.timeout(self._look_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    @property
    def state(self) -> list[dict[str, Any]]:
        """For ``status``."""
        return [_body(room) for room in self.rooms]

    def _look(self) -> tuple[Room, ...]:
        return tuple(plan_room(facts(spot, self._statvfs)) for spot in self._spots)

    def _take(self, rooms: tuple[Room, ...]) -> None:
        before = {room.spot: room.state for room in self.rooms}
        self.rooms = rooms
        for room in rooms:
            if room.state is not before.get(room.spot, State.OK):
                self._tell(room)

    def _tell(self, room: Room) -> None:
        say = {State.FULL: log.error, State.OK: log.info}.get(room.state, log.warning)
        say(f"room_{room.state.value}", job=room.spot.job, folder=room.spot.kind, because=room.because)
        fields = {"folder": room.spot.kind, "state": room.state.value}
        self._record.event("room", room.spot.job, because=room.because, **fields)


def facts(spot: Spot, statvfs: StatVfs = os.statvfs) -> RoomFacts:
    """Ask the file system, and the checkpoints that are there for the size of the next one. Blocking."""
    try:
        info = statvfs(_nearest(Path(spot.path)))
    except OSError as exc:
        return RoomFacts(spot, trouble=exc.strerror or str(exc))
    need = _need(Path(spot.path), spot.kind) if spot.job else STATE_NEED
    return RoomFacts(spot, info.f_bavail * info.f_frsize, info.f_favail, info.f_files, need)


def _nearest(path: Path) -> Path:
    """The folder itself, or what it is going to be made in."""
    return next((each for each in (path, *path.parents) if each.exists()), path)


def _need(store: Path, kind: str) -> Size | None:
    """The largest of the newest checkpoints there; None while there is none."""
    sizes = [_size(item.manifest, kind) for item in scan(store)[:RECENT]]
    return Size(max(s.bytes for s in sizes), max(s.files for s in sizes)) if sizes else None


def _size(manifest: Manifest, kind: str) -> Size:
    blocks = sum(-(-entry.size // _BLOCK) * _BLOCK for entry in manifest.files)
    paths = [entry.path for entry in manifest.files]
    if kind == "replicas":
        return Size(blocks + _BLOCK, files_for(paths))
    folders = {folder for path in paths for folder in PurePosixPath(path).parents}
    return Size(
        blocks + _BLOCK, len(paths) + len(folders) + 2
    )  # the manifest, and `latest` as it is replaced


def _body(room: Room) -> dict[str, Any]:
    return {
        "folder": room.spot.kind,
        "job": room.spot.job or None,
        "path": room.spot.path,
        "state": room.state.value,
        "because": room.because,
        "fits": room.fits,
        "free_bytes": room.free_bytes,
        "free_inodes": room.free_files,
        "need_bytes": room.need.bytes if room.need else None,
        "need_inodes": room.need.files if room.need else None,
    }
