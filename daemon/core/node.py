"""One node: its jobs and their shells, built from the settings and what a previous life left on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from outlast.daemon.checkpoint.recovery import recover
from outlast.daemon.config import JobSettings, Settings
from outlast.daemon.core import state as job_state
from outlast.daemon.core.errands import Errands
from outlast.daemon.core.facts import Place, Role
from outlast.daemon.core.job import Job
from outlast.daemon.core.keeper import Keeper
from outlast.daemon.core.launch import Launcher, Start
from outlast.daemon.core.places import open_peer, open_store
from outlast.daemon.core.record import Record
from outlast.daemon.core.sources import PeerSource, Source, StoreSource
from outlast.daemon.core.standby import Standby
from outlast.daemon.core.state import JobState
from outlast.daemon.core.stores import Replicas, StoreKeeper
from outlast.daemon.core.trainers import Connection
from outlast.daemon.core.warner import Warner
from outlast.daemon.core.welcome import Welcome
from outlast.daemon.ship.link import Peer
from outlast.daemon.ship.words import RefusedError, read_handover
from outlast.providers.base import Clock
from outlast.wire.manifest import Part
from outlast.wire.messages import FromHook
from outlast.wire.store import scan

log = structlog.get_logger("outlast.node")


@dataclass(frozen=True, slots=True)
class Desk:
    """A job with all that keeps it on this node."""

    job: Job
    keeper: Keeper
    welcome: Welcome
    errands: Errands
    peer: Peer | None
    replicas: Replicas | None
    warner: Warner | None
    standby: Standby | None


def build(settings: Settings, clock: Clock, record: Record) -> dict[str, Desk]:
    """Take up every job where the last life left it: half commits are finished first. Blocking."""
    return {job.name: _desk(settings, job, clock, record) for job in settings.jobs}


def _desk(settings: Settings, job_settings: JobSettings, clock: Clock, record: Record) -> Desk:
    name = job_settings.name
    state_file = settings.node.state / "jobs" / f"{name}.json"
    replicas = job_settings.replicas / name if job_settings.replicas else None
    stores = [s for s in (job_settings.checkpoints, replicas) if s is not None]
    for store in stores:
        for sentence in recover(store):
            log.info("recovered", job=name, what=sentence)
    state = job_state.load(state_file) or _first_state(job_settings, stores)
    job_state.save(state_file, state)
    part = _part(settings, job_settings)
    job = Job(name, job_settings.checkpoints, job_settings.every_s, state, clock, record, part)
    if state.role is not Role.STANDBY:
        _take_up_newest(job, stores)
    peer = open_peer(job_settings, clock)
    welcome = Welcome(job, stores, record)
    errands = Errands(job, peer, stores, state_file, clock, record)
    kept = _replicas(job_settings, job, errands, stores, clock, record)
    sources: list[Source] = [PeerSource(peer)] if peer is not None else []
    sources += [StoreSource(keeper.destination) for keeper in (kept.keepers if kept else ())]
    welcome.look_elsewhere(sources, state_file, lambda: peer.state.fence if peer is not None else 0)
    keeper = Keeper(job, errands, welcome, clock, record, job_settings.stop_signal)
    warner = Warner(job, peer, clock) if peer else None
    if peer is not None:
        peer.pause_with(job.bulk_paused_s)
        peer.on_change = lambda _state: job.changed.set()
    standby = None
    if replicas is not None:
        job.can_stand_by = job_settings.start is not None
        start = job_settings.start
        launcher = _launcher(settings, job_settings)
        when = start.when if start else "takeover"
        standby = Standby(
            job, welcome, launcher, replicas, when, job_settings.takeover_after_s, state_file, clock, record
        )
    return Desk(job, keeper, welcome, errands, peer, kept, warner, standby)


def _part(settings: Settings, job: JobSettings) -> Part | None:
    """Which part of the job's checkpoints is saved on this node, where it spans several."""
    return Part(job.nodes.index(settings.node.name), job.nodes) if job.nodes else None


def _first_state(settings: JobSettings, stores: list[Path]) -> JobState:
    """Without a state file the epoch is what was saved here or handed over to here, and 1 at the very start.

    Replicas of a later one are another node's: two must not train in the same epoch, so this node waits for
    the other's word, or an operator's.
    """
    role = Role(settings.role)
    if role is not Role.PRIMARY:
        return JobState(0, role, because=job_state.FIRST_START)
    held = {store: max((c.epoch for c in scan(store)), default=0) for store in stores}
    own = max((held[s] for s in stores if s == settings.checkpoints), default=0)
    epoch, sent = max(1, own, *map(_given, stores)), max(held.values(), default=0)
    if sent <= epoch:
        return JobState(epoch, role, started_epoch=epoch, because=job_state.FIRST_START, highest=epoch)
    why = f"there is no state of this node, and another one has sent epoch {sent}: it has the job"
    return JobState(epoch, Role.FENCED, started_epoch=epoch, because=why, highest=sent)


def _given(store: Path) -> int:
    """The epoch that the job was handed over to this node in, 0 if it never was."""
    try:
        said = read_handover(store)
    except RefusedError:
        return 0
    return said.epoch if said is not None else 0


def _take_up_newest(job: Job, stores: list[Path]) -> None:
    usable = ((item for item in scan(s) if item.whole or job.part is not None) for s in stores)
    for found in (next(items, None) for items in usable):
        if found is not None:
            manifest = found.manifest
            size, flush = manifest.total_bytes, manifest.flush_id
            job.found(Place(found.epoch, found.tag, found.step, flush, size, manifest.created))


def _replicas(
    settings: JobSettings, job: Job, errands: Errands, folders: list[Path], clock: Clock, record: Record
) -> Replicas | None:
    if not settings.stores:
        return None
    keepers = []
    for given in settings.stores:
        destination = open_store(given, settings.name, clock)
        keepers.append(StoreKeeper(job, destination, folders, errands.peer_fact, clock, record))
    for keeper in keepers:
        keeper.arrived = errands.stored
    errands.replicas = Replicas(keepers, errands.peer_fact, settings.require)
    return errands.replicas


def _launcher(settings: Settings, job: JobSettings) -> Launcher | None:
    if job.start is None:
        return None
    start = Start(job.start.command or (), job.start.unit or "", job.start.folder, job.start.env)
    folder = settings.node.state / "jobs"
    env = {"OUTLAST_SOCKET": str(settings.node.trainer_socket), "OUTLAST_JOB": job.name}
    return Launcher(start, folder / f"{job.name}.lock", folder / f"{job.name}.trainer.log", env)


class Switchboard:
    """Passes each rank's words to its job."""

    def __init__(self, desks: Mapping[str, Desk]) -> None:
        self._desks = desks

    def rank_joined(self, connection: Connection) -> str | None:
        """The job takes the rank, or says why not."""
        desk = self._desks.get(connection.hello.job)
        if desk is None:
            known = ", ".join(sorted(self._desks)) or "none"
            return f"job {connection.hello.job} is not configured on this node (there are: {known})"
        return desk.job.joined(connection)

    def rank_said(self, connection: Connection, message: FromHook) -> None:
        self._desks[connection.hello.job].job.said(connection, message)

    def rank_left(self, connection: Connection) -> None:
        self._desks[connection.hello.job].job.left(connection)
