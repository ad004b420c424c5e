"""The programs of a zygote: each is the real code on real folders, for the length of one process.

``daemon`` is the core of ``outlast run`` as ``build`` makes it from a configuration; the way to its peer is a
socket to a receiver that the zygote forks, instead of an SSH channel to one that sshd starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import obstore
import obstore.exceptions
import obstore.store
import structlog

from outlast.daemon.checkpoint.commit import CommitError, CommitOrder, commit, recover, sweep
from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.config import load
from outlast.daemon.core.facts import Place, Role
from outlast.daemon.core.node import Desk, build
from outlast.daemon.core.notices import Live
from outlast.daemon.history.rows import FlushStep, RestoreStep, ShipStep, Spell
from outlast.daemon.ship import link, receive, sheet
from outlast.providers.base import Hint, Identity, SystemClock
from outlast.simulations.zygote import Surroundings, request
from outlast.wire.messages import Layout

JOB = "gpt"
# How long the daemon may take to have all its destinations up to date, and how often that is looked at.
BOUND_S = 8.0
_LOOK_S = 0.005
_TAKEOVER_S = 1.0
_FAILED = {"ship_failed": "peer", "store_failed": "store"}
_ASKS = ("put_async", "copy_async", "delete_async", "head_async", "get_async")


def _boot(boot: str) -> None:
    sheet._BOOT = Path(boot)  # noqa: SLF001 - the machine has been started anew


def commit_saved(_around: Surroundings, store: str, order: dict[str, Any], created: float) -> dict[str, Any]:
    """Commit what the ranks have saved."""
    wanted = CommitOrder(**{**order, "layout": Layout(**order["layout"])})
    try:
        done = commit(Path(store), wanted, created)
    except CommitError as exc:
        return {"failed": str(exc)}
    return {"committed": [done.epoch, done.step]}


def recover_store(_around: Surroundings, store: str, boot: str, keep: list[str] | None) -> dict[str, Any]:
    """What the daemon does with a store at its start; ``keep`` also sweeps all but these tags."""
    _boot(boot)
    try:
        said = recover(Path(store))
        return {"said": said + (sweep(Path(store), set(keep)) if keep is not None else [])}
    except OSError as exc:
        return {"failed": str(exc)}


def receiver(_around: Surroundings, root: str, boot: str) -> dict[str, Any]:
    """``outlast receive`` on standard input and output."""
    _boot(boot)
    return {"status": receive.main(["--root", root, "--job", JOB])}


def daemon(around: Surroundings, config: str, aim: str, line: dict[str, Any]) -> dict[str, Any]:
    """One life of the daemon: until all is where it belongs, or has failed, or the bound is over.

    ``aim``: ``ship``; ``hand_over`` after that; ``take_over`` by an operator's word.
    """
    for name in _ASKS:
        setattr(obstore, name, _counted(getattr(obstore, name), around.strike))
    errors = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=errors, logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        return asyncio.run(_daemon(Path(config), aim, Line(around, **line)))
    except OSError as exc:
        return {"failed": str(exc)}


PROGRAMS: dict[str, Callable[..., Any]] = {
    "commit": commit_saved,
    "recover": recover_store,
    "receiver": receiver,
    "daemon": daemon,
}


def _counted(ask: Callable[..., Any], strike: Callable[[], None]) -> Callable[..., Any]:
    def counted(*args: Any, **more: Any) -> Any:
        strike()
        return ask(*args, **more)

    return counted


async def _daemon(config: Path, aim: str, line: Line) -> dict[str, Any]:
    async def dial(_settings: object) -> Any:
        try:
            return line.connected()
        except Unreachable as exc:
            record.failed["peer"] = str(exc)
            raise

    record = Seen()
    setattr(link, "dial", dial)  # noqa: B010 - not a name that it exports
    settings = await asyncio.to_thread(load, config, env={})
    desk = (await asyncio.to_thread(build, settings, SystemClock(), record))[JOB]
    tasks = [asyncio.create_task(work) for work in _parts(desk)]
    try:
        settled = await _settle(desk, record, aim)
        primary = desk.job.state.role is Role.PRIMARY
        if settled and primary and aim == "hand_over" and desk.job.newest is not None:
            with contextlib.suppress(Refused, Unreachable):
                await desk.errands.hand_over(desk.job.newest)
        return {"settled": settled, **_told(desk), "failed": record.failed}
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        line.abort()


def _parts(desk: Desk) -> list[Any]:
    parts: list[Any] = [desk.keeper.run(lambda: None)]
    parts += [keeper.run() for keeper in (desk.replicas.keepers if desk.replicas else ())]
    parts += [desk.peer.run()] if desk.peer else []
    return parts + ([desk.standby.run(lambda: None)] if desk.standby else [])


async def _settle(desk: Desk, record: Seen, aim: str) -> bool:
    """Wait until nothing more is to be done; whether that is because all is done."""
    asked = desk.standby.ask_takeover() if aim == "take_over" and desk.standby else None
    began = time.monotonic()
    while (took := time.monotonic() - began) < BOUND_S:
        if asked is not None and not asked.is_set():
            if took > _TAKEOVER_S:
                return False  # there is nothing to take over from
        elif not (behind := _behind(desk)):
            return True
        elif behind <= record.failed.keys():
            return False
        await asyncio.sleep(_LOOK_S)
    return False


def _behind(desk: Desk) -> set[str]:
    """The destinations that are not up to date, and ``self`` where something is under way here."""
    job, errands = desk.job, desk.errands
    found: set[str] = set()
    if job.state.role is Role.STANDBY:
        return {"self"} if job.last_decision == "" or "take over" in job.last_decision else found
    if errands.in_flight or (job.state.role is Role.FENCED and job.can_stand_by):
        found.add("self")
    peer = errands.peer_fact()
    if job.state.role is Role.PRIMARY and peer is not None:
        lost = peer.fence > job.state.epoch
        found |= {"peer"} if not peer.reachable or lost or _lacks(peer.newest, job.newest) else set()
    if job.state.role is Role.PRIMARY and desk.replicas is not None:
        for keeper in desk.replicas.keepers:
            found |= {"self"} if keeper.shipping else set()
            found |= {"store"} if _lacks(keeper.there, job.newest) else set()
    return found


def _lacks(place: Place | None, newest: Place | None) -> bool:
    return newest is not None and (place is None or place.order < newest.order)


def _told(desk: Desk) -> dict[str, Any]:
    peer = desk.errands.peer_fact()
    keepers = desk.replicas.keepers if desk.replicas is not None else ()
    orders = {
        "newest": desk.job.newest,
        "at_peer": peer.newest if peer is not None else None,
        "at_store": keepers[0].there if keepers else None,
    }
    found = {name: list(place.order) if place is not None else None for name, place in orders.items()}
    return {**found, "state": asdict(desk.job.state)}


@dataclass
class Seen:
    """A record in memory of what failed, and why."""

    failed: dict[str, str] = field(default_factory=dict)

    def event(self, kind: str, job: str = "", episode: str = "", **fields: object) -> None:
        """A destination that failed."""
        del job, episode
        if kind in _FAILED:
            self.failed[_FAILED[kind]] = str(fields.get("because"))

    def flush(self, job: str, flush_id: str, what: FlushStep, **fields: object) -> None: ...

    def ship(self, job: str, epoch: int, tag: str, peer: str, what: ShipStep, **fields: object) -> None: ...

    def restore(self, job: str, restore_id: str, what: RestoreStep, **fields: object) -> None: ...

    def lost(self, victim: Spell) -> None: ...

    def hint(self, hint: Hint) -> None: ...

    async def identified(self, identity: Identity) -> None: ...

    def notice_seen(self, live: Live, *, seconds_left: float) -> None: ...

    def notice_known(self, live: Live) -> None: ...

    def notice_withdrawn(self, live: Live) -> None: ...


class Line:
    """A connection to the peer: what the sender's code needs of asyncssh's. Its receivers are the zygote's.

    ``cut``: it breaks after so many bytes, and is not made anew; ``flip``: the byte there is altered.
    """

    def __init__(
        self,
        around: Surroundings,
        root: str,
        boot: str,
        mishap: dict[str, Any],
        cut: int | None = None,
        flip: int | None = None,
    ) -> None:
        self._around = around
        self._args = {"root": root, "boot": boot}
        self._mishap = mishap
        self._cut = cut
        self._flip = flip
        self._passed = 0
        self._closed = asyncio.Event()
        self._ends: list[End] = []

    def connected(self) -> Line:
        """The line, if it is whole. Raises Unreachable."""
        if self.cut_off:
            raise Unreachable("the line was cut")
        self._closed = asyncio.Event()
        return self

    @property
    def cut_off(self) -> bool:
        """Whether it was cut."""
        return self._cut is not None and self._passed >= self._cut

    async def create_process(self, command: str, *, encoding: None = None) -> End:
        """A receiver, whatever is asked for."""
        del command, encoding
        ours, theirs = socket.socketpair()
        body = {"program": "receiver", "args": self._args, "mishap": self._mishap}
        lease = self._around.lease
        try:
            request(self._around.client, body, (theirs.fileno(), lease, lease))
        finally:
            theirs.close()
        end = End(self, *await asyncio.open_connection(sock=ours))
        self._ends.append(end)
        return end

    async def wait_closed(self) -> None:
        """Until it is broken."""
        await self._closed.wait()

    def abort(self) -> None:
        """Break it."""
        for end in self._ends:
            end.abort()
        self._ends.clear()
        self._closed.set()

    def passing(self, data: bytes) -> bytes:
        """What comes out of it. Raises OSError where it breaks."""
        at, self._passed = self._passed, self._passed + len(data)
        if self._cut is not None and self._passed >= self._cut:
            self.abort()
            raise ConnectionResetError("the line was cut")
        if self._flip is not None and at <= self._flip < self._passed:
            index = self._flip - at
            return data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]
        return data


class End:
    """This end of a receiver's standard streams, as asyncssh's process has them."""

    def __init__(self, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._line = line
        self._writer = writer
        self.stdout = reader
        self.stderr = asyncio.StreamReader()
        self.stderr.feed_eof()
        self.stdin = self
        self.channel = self

    def write(self, data: bytes) -> None:
        """To the receiver."""
        self._writer.write(self._line.passing(data))

    async def drain(self) -> None:
        """Wait until more may be written."""
        await self._writer.drain()

    def abort(self) -> None:
        """Close it without waiting for what is under way."""
        self._writer.transport.abort()

    def close(self) -> None:
        """Let the receiver see the end."""
        self._writer.close()
