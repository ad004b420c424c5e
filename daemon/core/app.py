"""``outlast run``: the parts of the daemon under one supervised task group."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from outlast.daemon.config import ConfigError, ProviderSettings, Settings, load
from outlast.daemon.core.control import ControlSocket
from outlast.daemon.core.courier import Courier
from outlast.daemon.core.diary import Diary
from outlast.daemon.core.exposition import MetricsFile, MetricsPage
from outlast.daemon.core.farewell import machine_goes_down
from outlast.daemon.core.node import Desk, Switchboard, build
from outlast.daemon.core.notices import Board
from outlast.daemon.core.operator import Operator
from outlast.daemon.core.pacing import Pacing
from outlast.daemon.core.pricing import Pricing, open_market
from outlast.daemon.core.room import Spot
from outlast.daemon.core.roomwatch import RoomWatch
from outlast.daemon.core.state import lock_state
from outlast.daemon.core.status import job_status, node_status
from outlast.daemon.core.supervise import Beat, Supervisor
from outlast.daemon.core.trainers import TrainerSocket
from outlast.daemon.core.watch import Watcher
from outlast.daemon.history.layout import FOLDER
from outlast.daemon.ops.exit import ExitCode
from outlast.daemon.ops.notify import Notifier
from outlast.providers import registry
from outlast.providers.base import Clock, Options, Provider, ProviderError
from outlast.providers.detect import detect

log = structlog.get_logger("outlast")

BOUND_S = 30.0
# The status line, and what waits for a quiet moment: often while a notice lives, rarely else.
STATUS_S = 5.0
NOTICE_STATUS_S = 1.0


class Daemon:
    """One life of the daemon. ``run`` returns the exit code."""

    def __init__(
        self, settings: Settings, config: Path, clock: Clock, boot_id: str, env: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._config = config
        self._clock = clock
        self._notifier = Notifier(env, clock)
        self._supervisor = Supervisor(clock)
        self._diary = Diary(settings, clock, boot_id)
        self._board = Board(clock, boot_id, hints=settings.provider.hints)
        self._stop = asyncio.Event()
        self._desks: dict[str, Desk] = {}
        self._watcher: Watcher | None = None
        self._provider: Provider | None = None
        self._acknowledged: set[str] = set()
        self._courier: Courier | None = None
        self._room: RoomWatch | None = None

    async def run(self) -> ExitCode:
        """Serve until SIGTERM or SIGINT. An address or folder that cannot be had ends it with a message."""
        try:
            lock = await asyncio.to_thread(lock_state, self._settings.node.state)
        except OSError as exc:
            log.error("cannot_start", because=str(exc))
            return ExitCode.FAILED
        with lock:
            return await self._live()

    async def _live(self) -> ExitCode:
        await self._diary.open()
        try:
            self._desks = await asyncio.to_thread(build, self._settings, self._clock, self._diary)
            for desk in self._desks.values():
                measured = await self._diary.measured(desk.job.name)
                desk.job.flush_s, desk.job.ship_bytes_s = measured.flush_s, measured.ship_bytes_s
            self._courier = self._make_courier()
            jobs = [desk.job for desk in self._desks.values()]
            self._room = RoomWatch(_spots(self._settings), jobs, self._diary)
            return await self._serve()
        except OSError as exc:
            log.error("cannot_start", because=str(exc))
            return ExitCode.FAILED
        finally:
            if self._provider is not None:
                await self._provider.close()
            await self._diary.close()

    async def _serve(self) -> ExitCode:
        node = self._settings.node
        trainers = TrainerSocket(node.trainer_socket, Switchboard(self._desks))
        control = ControlSocket(node.control_socket, self._handlers())
        await trainers.start()
        await control.start()
        self._listen_to_signals()
        self._make_watcher()
        if self._watcher is not None:
            await self._watcher.restore()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._supervisor.run(name, part, bound), name=name)
                for name, part, bound in self._parts(trainers, control)
            ]
            self._notifier.ready(self._sentence())
            log.info("serving", node=node.name, jobs=sorted(self._desks), socket=str(node.trainer_socket))
            await self._stop.wait()
            self._notifier.stopping("stopping")
            for task in tasks:
                task.cancel()
        await self._say_farewell()
        log.info("stopped", node=node.name)
        return ExitCode.DONE

    async def _say_farewell(self) -> None:
        """A machine that is shut down without a notice was stopped by its user: nobody took it.

        Under a notice, or while the provider cannot be heard, the stay is left open and its end tells itself.
        """
        heard = self._watcher is None or (self._watcher.seen_at is not None and not self._watcher.blind)
        if self._board.urgent is None and heard and await machine_goes_down():
            jobs = [desk.job for desk in self._desks.values()]
            done = bool(jobs) and all(job.done_step is not None for job in jobs)
            self._diary.end("job-done" if done else "user-stop")

    def _parts(self, trainers: TrainerSocket, control: ControlSocket) -> list[tuple[str, Any, float | None]]:
        parts: list[tuple[str, Any, float | None]] = [
            ("trainers", lambda _: trainers.run(), None),
            ("control", lambda _: control.run(), None),
            ("heartbeat", self._heartbeat, BOUND_S),
        ]
        parts += self._metrics()
        if self._room is not None:
            parts.append(("room", _without_beat(self._room.run), None))
        if self._courier is not None:
            parts.append(("segments", _without_beat(self._courier.run), None))
        every_s = self._settings.prices.every_s
        if self._watcher is not None and every_s is not None:
            parts.append(("prices", _without_beat(self._make_pricing(self._watcher, every_s).run), None))
        paced = [desk.job for desk in self._desks.values() if desk.job.auto]
        if self._watcher is not None and paced:
            parts.append(("pace", _without_beat(Pacing(self._diary.pool, paced).run), None))
        if self._watcher is not None:
            parts.append(("watch", self._watcher.run, None))
        for name, desk in self._desks.items():
            parts.append((f"{name}:keeper", desk.keeper.run, BOUND_S))
            if desk.peer is not None:
                parts.append((f"{name}:peer", _without_beat(desk.peer.run), None))
            kept = desk.replicas.keepers if desk.replicas is not None else ()
            parts += [(f"{name}:{store.destination.name}", _without_beat(store.run), None) for store in kept]
            if desk.warner is not None:
                parts.append((f"{name}:warner", _without_beat(desk.warner.run), None))
            if desk.standby is not None:
                parts.append((f"{name}:standby", desk.standby.run, BOUND_S))
        return parts

    def _metrics(self) -> list[tuple[str, Any, float | None]]:
        wanted, jobs = self._settings.metrics, [desk.job for desk in self._desks.values()]
        parts: list[tuple[str, Any, float | None]] = []
        if wanted.listen is not None:
            page = MetricsPage(*wanted.listen, self._render)
            parts.append(("metrics", _without_beat(page.run), None))
        if wanted.textfile is not None:
            file = MetricsFile(wanted.textfile, jobs, self._render)
            parts.append(("metrics file", _without_beat(file.run), None))
        return parts

    def _render(self) -> bytes:
        from outlast.daemon.ops import metrics

        return metrics.text(self._facts(), self._clock.wall())

    def _make_courier(self) -> Courier:
        node = self._settings.node
        peers = {name: desk.peer for name, desk in self._desks.items() if desk.peer is not None}
        courier = Courier(
            node.state / FOLDER,
            node.name,
            self._diary,
            peers,
            lambda: self._board.urgent is not None,
            self._clock,
        )
        self._diary.on_news = lambda last_words: courier.tell(last_words=last_words)
        return courier

    def _make_pricing(self, watcher: Watcher, every_s: float) -> Pricing:
        source = open_market(self._clock)
        return Pricing(source, every_s, lambda: watcher.identity, self._diary.price, self._clock)

    def _make_watcher(self) -> None:
        wanted = self._settings.provider
        if wanted.name == "none":
            return
        name = detect() if wanted.name == "auto" else wanted.name
        if name is None or name not in registry.NAMES:
            log.warning("no_provider", because="the cloud was not recognised; set provider.name")
            return
        self._provider = registry.create(name, _options(wanted), self._clock)
        file = self._settings.node.state / "notices.json"
        jobs = [desk.job for desk in self._desks.values()]
        self._watcher = Watcher(self._provider, self._board, file, jobs, self._clock, self._diary)

    # ---- the outside

    def _handlers(self) -> dict[str, Any]:
        operator = Operator(self._desks)
        return {"status": self._status, "checkpoint": operator.checkpoint, "takeover": operator.takeover}

    async def _status(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        return self._facts()

    def _facts(self) -> dict[str, Any]:
        """What ``status`` and the metrics tell."""
        body = node_status(self._settings.node.name, self._watcher, self._board, self._clock)
        body["history"] = self._diary.state
        body["history"]["segments"] = self._courier.state if self._courier else None
        body["room"] = self._room.state if self._room else []
        body["jobs"] = [job_status(d.job, d.errands, d.welcome.parked) for d in self._desks.values()]
        return body

    def _sentence(self) -> str:
        return "; ".join(
            f"{n}: {d.job.last_decision or d.job.state.role.value}" for n, d in self._desks.items()
        )

    async def _heartbeat(self, beat: Beat) -> None:
        """Feeds systemd's watchdog while every part shows life; acknowledges; keeps the spell's heartbeat."""
        while True:
            beat()
            stale = self._supervisor.stale()
            if stale:
                log.error("part_hangs", parts=stale)
            else:
                self._notifier.watchdog()
            self._notifier.status(self._sentence())
            self._diary.heartbeat()
            await self._acknowledge()
            pause = NOTICE_STATUS_S if self._board.urgent else STATUS_S
            await asyncio.sleep(min(pause, self._notifier.watchdog_interval_s or pause))

    async def _acknowledge(self) -> None:
        """Only where asked for, and only once nothing more is to be saved here: it can hasten the end."""
        urgent, provider = self._board.urgent, self._provider
        if urgent is None or provider is None or not self._settings.provider.acknowledge:
            return
        if urgent.episode in self._acknowledged or not provider.can_acknowledge:
            return
        if not all(desk.errands.safe for desk in self._desks.values()):
            return
        try:
            await provider.acknowledge(urgent.id)
        except ProviderError as exc:
            log.warning("not_acknowledged", id=urgent.id, because=str(exc), hint="tried again while it lives")
            return
        self._acknowledged.add(urgent.episode)
        log.warning("acknowledged", id=urgent.id, because="every job is safe at its peer")

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        """Check the file; the running settings stay as they are."""
        self._notifier.reloading()
        try:
            changed = load(self._config) != self._settings
        except ConfigError as exc:
            log.error("config_not_taken", because=str(exc), hint="the running settings stay")
        else:
            hint = "restart the daemon to apply it; trainers keep running" if changed else "nothing changed"
            log.info("config_checked", changed=changed, hint=hint)
        self._notifier.ready(self._sentence())


def _options(settings: ProviderSettings) -> Options:
    return Options(settings.endpoint, settings.poll_s, settings.notice_s, settings.own_name)


def _spots(settings: Settings) -> list[Spot]:
    """The folders that are written to."""
    spots = [Spot("state", "", str(settings.node.state))]
    for job in settings.jobs:
        if job.checkpoints is not None:
            spots.append(Spot("checkpoints", job.name, str(job.checkpoints)))
        if job.replicas is not None:
            spots.append(Spot("replicas", job.name, str(job.replicas / job.name)))
    return spots


def _without_beat(run: Any) -> Any:
    async def part(_beat: Beat) -> None:
        await run()

    return part
