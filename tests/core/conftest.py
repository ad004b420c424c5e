"""A life of the daemon's core in this process: real sockets, jobs, keepers and folders; scripted ranks."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.config import load
from outlast.daemon.core.job import Job
from outlast.daemon.core.node import Desk, Switchboard, build
from outlast.daemon.core.notices import Live
from outlast.daemon.core.trainers import TrainerSocket
from outlast.daemon.history.rows import FlushStep, RestoreStep, ShipStep, Spell
from outlast.providers.base import Clock, Hint, Identity, SystemClock
from outlast.simulations.rank import Script, ScriptedRank
from outlast.wire.messages import Hello, Layout, Message, ToHook, decode_to_hook, encode

BOUND_S = 15.0


@dataclass
class Noted:
    """A record in memory; ``until`` waits for an event."""

    events: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    hints: list[Hint] = field(default_factory=list)
    seen: list[Live] = field(default_factory=list)
    withdrawn: list[Live] = field(default_factory=list)
    restores: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    victims: list[Spell] = field(default_factory=list)

    def event(self, kind: str, job: str = "", episode: str = "", **fields: object) -> None:
        self.events.append((kind, job, {"episode": episode, **fields}))

    def flush(self, job: str, flush_id: str, what: FlushStep, **fields: object) -> None: ...

    def ship(self, job: str, epoch: int, tag: str, peer: str, what: ShipStep, **fields: object) -> None: ...

    def restore(self, job: str, restore_id: str, what: RestoreStep, **fields: object) -> None:
        self.restores.append((what, {"job": job, "id": restore_id, **fields}))

    def lost(self, victim: Spell) -> None:
        self.victims.append(victim)

    def hint(self, hint: Hint) -> None:
        self.hints.append(hint)

    async def identified(self, identity: Identity) -> None: ...

    def notice_known(self, live: Live) -> None:
        """Note it down."""
        self.event("notice_known", "", live.episode)

    def notice_seen(self, live: Live, *, seconds_left: float) -> None:
        assert math.isfinite(seconds_left)
        self.seen.append(live)

    def notice_withdrawn(self, live: Live) -> None:
        self.withdrawn.append(live)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """What all events of a kind said, in order."""
        return [fields for name, _, fields in self.events if name == kind]

    async def until(self, kind: str, count: int = 1) -> dict[str, Any]:
        """The ``count``-th event of a kind, once it has happened."""
        await until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]


async def until(condition: Callable[[], object], bound_s: float = BOUND_S) -> None:
    """Wait for a condition of this process; fails after the bound."""
    async with asyncio.timeout(bound_s):
        while not condition():  # noqa: ASYNC110 - whatever it is about has no event of its own
            await asyncio.sleep(0.01)


@dataclass
class Life:
    """One life of a daemon's core."""

    folder: Path
    desks: dict[str, Desk]
    record: Noted
    clock: Clock

    @property
    def socket(self) -> Path:
        return self.folder / "run/trainer.sock"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "ckpt"

    @property
    def job(self) -> Job:
        """The first job."""
        return next(iter(self.desks.values())).job

    def notice(self, seconds: float, episode: str = "i-1@7") -> Live:
        """The provider takes this node back in so many seconds; the job hears of it."""
        now, wall = self.clock.monotonic(), self.clock.wall()
        live = Live("i-1", episode, "terminate", "test", wall, now + seconds, wall + seconds, "boot")
        self.job.noticed(live)
        return live


CONFIG = """\
node: {{name: here, state: {folder}/state, runtime: {folder}/run}}
provider: {{name: none}}
jobs:
  - {{name: tune, checkpoints: {folder}/ckpt, every: {every}}}
  - {{name: other, checkpoints: {folder}/other, every: {every}}}
"""


class Ground:
    """A folder with a configuration in which lives of the daemon follow one another."""

    def __init__(self, folder: Path, every: str = "1h") -> None:
        self.folder = folder
        for name in ("ckpt", "other"):
            (folder / name).mkdir(exist_ok=True)
        (folder / "outlast.yaml").write_text(CONFIG.format(folder=folder, every=every))

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Life]:
        """The core runs; at the end it is cut off as a kill would: nothing is said to anyone."""
        settings = await asyncio.to_thread(load, self.folder / "outlast.yaml", env={})
        record, clock = Noted(), SystemClock()
        desks = await asyncio.to_thread(build, settings, clock, record)
        trainers = TrainerSocket(settings.node.trainer_socket, Switchboard(desks))
        await trainers.start()
        tasks = [asyncio.create_task(trainers.run())]
        tasks += [asyncio.create_task(desk.keeper.run(lambda: None)) for desk in desks.values()]
        await asyncio.sleep(0)  # every part has begun
        try:
            yield Life(self.folder, desks, record, clock)
        finally:
            await _end(tasks)

    def script(self, rank: int = 0, world: int = 1, **how: Any) -> Script:
        """A rank of the first job with short steps."""
        made = Script(self.folder / "run/trainer.sock", self.folder / "ckpt", rank=rank, world=world)
        return replace(made, **{"step_s": 0.02, "size": 2_000, **how})

    @asynccontextmanager
    async def trainer(self, *scripts: Script) -> AsyncIterator[list[ScriptedRank]]:
        """Ranks that train until the end of the block; then they are gone without a word."""
        ranks = [ScriptedRank(script) for script in scripts]
        tasks = [asyncio.create_task(rank.run()) for rank in ranks]
        try:
            yield ranks
        finally:
            await _end(tasks)


async def _end(tasks: list[Any]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def noted() -> Noted:
    """An empty record."""
    return Noted()


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """Two jobs, `tune` and `other`, with an interval that does not come."""
    return Ground(tmp_path)


class Line:
    """A hand-held connection to the trainer socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, what: Message | bytes) -> None:
        self._writer.write(what if isinstance(what, bytes) else encode(what))

    def hello(self, checkpoints: Path, /, job: str = "tune", **fields: Any) -> None:
        """Say hello, with any field replaced, also by what no hook would say."""
        hello = Hello(job, 0, 1, str(checkpoints), Layout(1))
        self.say(json.dumps({**json.loads(encode(hello)), **fields}).encode() + b"\n")

    async def hear(self) -> ToHook | None:
        """The daemon's next message; None once it has closed the connection."""
        async with asyncio.timeout(BOUND_S):
            try:
                data = await self._reader.readline()
            except ConnectionResetError:  # closed with words of ours unread
                return None
        return decode_to_hook(data) if data else None

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
async def dial(ground: Ground) -> AsyncIterator[Callable[[], Any]]:
    """Makes connections to the trainer socket; all are closed at the end."""
    async with AsyncExitStack() as stack:

        async def connect() -> Line:
            line = Line(*await asyncio.open_unix_connection(str(ground.folder / "run/trainer.sock")))
            stack.callback(line.close)
            return line

        yield connect
