"""The core's record, kept by the history's recorder. The spell begins once the provider says who we are."""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

import structlog

from outlast.daemon.config import Settings
from outlast.daemon.core.notices import Live
from outlast.daemon.history.recorder import Recorder
from outlast.daemon.history.rows import FlushStep, Measured, ShipStep
from outlast.providers.base import Action, Clock, Hint, Identity, Notice

log = structlog.get_logger("outlast.history")

HEARTBEAT_S = 30.0
CLOSE_S = 5.0


class Diary:
    """Fulfils Record. What is told before the spell has begun waits for it in order."""

    def __init__(self, settings: Settings, clock: Clock, boot_id: str) -> None:
        self._path = settings.node.state / "history.sqlite3"
        self._node = settings.node.name
        # A stand-in on this machine is a rehearsal: it is kept, and left out of every rate.
        self._drill = _is_loopback(settings.provider.endpoint)
        self._clock = clock
        self._boot_id = boot_id
        self._recorder: Recorder | None = None
        self._beaten_at = 0.0
        self._early: list[tuple[str, Any]] = []

    async def open(self) -> None:
        """Open the history and begin to record; an unreadable file is set aside and said so."""
        self._recorder = await Recorder.open(self._path, self._clock)

    async def close(self) -> None:
        """Write what waits, for a few seconds at most."""
        if self._recorder is not None:
            await self._recorder.close(self._clock.monotonic() + CLOSE_S)

    @property
    def state(self) -> dict[str, Any]:
        """For ``status``: whether the record is whole, and what waits."""
        trouble = self._recorder.trouble if self._recorder else None
        waiting = self._recorder.waiting if self._recorder else 0
        return {"path": str(self._path), "waiting": waiting, "trouble": trouble.because if trouble else None}

    async def measured(self, job: str) -> Measured:
        """Flush and shipping figures of earlier lives."""
        assert self._recorder is not None
        return await self._recorder.ask(lambda h: h.measured(job))

    # ---- Record

    def event(self, kind: str, job: str = "", episode: str = "", **fields: object) -> None:
        if self._recorder is not None:
            self._recorder.event(kind, job, episode, **fields)

    def flush(self, job: str, flush_id: str, what: FlushStep, **fields: object) -> None:
        if self._recorder is not None:
            self._recorder.flush(job, flush_id, what, **fields)

    def ship(self, job: str, epoch: int, tag: str, peer: str, what: ShipStep, **fields: object) -> None:
        if self._recorder is not None:
            self._recorder.ship(job, epoch, tag, peer, what, **fields)

    def hint(self, hint: Hint) -> None:
        self.event("hint_seen", kind_of_hint=hint.kind, source=hint.source)
        self._in_spell("hint", hint)

    def notice_seen(self, live: Live, *, seconds_left: float) -> None:
        self.event("notice_seen", "", live.episode, action=live.action, seconds_left=seconds_left)
        self._in_spell("notice", live)

    def notice_known(self, live: Live) -> None:
        self._in_spell("notice", live)

    def notice_withdrawn(self, live: Live) -> None:
        self.event("notice_withdrawn", "", live.episode)
        self._in_spell("withdrawn", live)

    async def identified(self, identity: Identity) -> None:
        if self._recorder is None:
            return
        await self._recorder.begin(identity, self._node, self._boot_id, self._drill)
        early, self._early = self._early, []
        for what, value in early:
            self._in_spell(what, value)

    def heartbeat(self) -> None:
        """Called often; the spell's heartbeat is written now and then."""
        now = self._clock.monotonic()
        if self._recorder is not None and self._recorder.spell and now - self._beaten_at >= HEARTBEAT_S:
            self._beaten_at = now
            self._recorder.heartbeat()

    def _in_spell(self, what: str, value: Any) -> None:
        recorder = self._recorder
        if recorder is None or not recorder.spell:
            self._early.append((what, value))
        elif what == "hint":
            recorder.hint(value)
        elif what == "notice":
            notice = Notice(value.id, Action(value.action), value.deadline, value.source)
            recorder.notice(notice, value.deadline_wall, self._boot_id, self._drill)
        else:
            recorder.withdrawn(value.id)


def _is_loopback(endpoint: str | None) -> bool:
    host = urlsplit(endpoint).hostname if endpoint else None
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
