"""The core's record, kept by the history's recorder. The spell begins once the provider says who we are."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import structlog

from outlast.daemon.config import Settings
from outlast.daemon.core.notices import Live
from outlast.daemon.history.counting import PoolCounts
from outlast.daemon.history.ledger import Changed
from outlast.daemon.history.recorder import Recorder
from outlast.daemon.history.rows import Cause, FlushStep, Measured, PriceRow, RestoreStep, ShipStep, Spell
from outlast.providers.base import Action, Clock, Hint, Identity, Notice

log = structlog.get_logger("outlast.history")

HEARTBEAT_S = 30.0
CLOSE_S = 5.0
PRUNE_S = 86400.0


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
        self._pruned_at = 0.0
        self.on_news: Callable[[bool], None] = _no_news

    async def open(self) -> None:
        """Open the history and begin to record; an unreadable file is set aside and said so."""
        self._recorder = await Recorder.open(self._path, self._clock)
        self._prune()

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

    async def pool(self) -> PoolCounts | None:
        """What this node's record knows of its own pool; None before the stay has begun."""
        recorder = self._recorder
        if recorder is None or not recorder.spell:
            return None
        spell = recorder.spell
        return await recorder.ask(lambda h: h.pool_of(spell))

    async def writer(self) -> str | None:
        """Which file is written."""
        return await self._recorder.ask(lambda h: h.writer()) if self._recorder is not None else None

    async def changed(self, writer: str, since: int, *, last_words: bool) -> Changed | None:
        """What is new in it."""
        if self._recorder is None:
            return None
        return await self._recorder.ask(lambda h: h.changed(writer, since, last_words=last_words))

    def end(self, cause: Cause) -> None:
        """This node's stay is over."""
        if self._recorder is not None and self._recorder.spell:
            self._recorder.end(cause)

    def price(self, row: PriceRow) -> None:
        """What this node's pool costs, if that is new."""
        if self._recorder is not None:
            self._recorder.record(lambda h: h.price(row))

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

    def restore(self, job: str, restore_id: str, what: RestoreStep, **fields: object) -> None:
        if self._recorder is not None:
            self._recorder.restore(job, restore_id, what, **fields)

    def lost(self, victim: Spell) -> None:
        if self._recorder is None:
            return
        pool = victim.pool
        who = Identity(pool.provider, pool.region, pool.zone, "", pool.instance_type, victim.instance_id)
        self._recorder.record(lambda h: h.loss(who, "peer", node=victim.node, drill=victim.drill))
        self.on_news(False)

    def hint(self, hint: Hint) -> None:
        self.event("hint_seen", kind_of_hint=hint.kind, source=hint.source)
        self._in_spell("hint", hint)

    def notice_seen(self, live: Live, *, seconds_left: float) -> None:
        self.event("notice_seen", "", live.episode, action=live.action, seconds_left=seconds_left)
        self._in_spell("notice", live)
        self.on_news(True)

    def notice_known(self, live: Live) -> None:
        self._in_spell("notice", live)
        self.on_news(True)

    def notice_withdrawn(self, live: Live) -> None:
        self.event("notice_withdrawn", "", live.episode)
        self._in_spell("withdrawn", live)
        self.on_news(True)

    async def identified(self, identity: Identity) -> None:
        if self._recorder is None:
            return
        await self._recorder.begin(identity, self._node, self._boot_id, self._drill)
        early, self._early = self._early, []
        for what, value in early:
            self._in_spell(what, value)
        self.on_news(False)

    def heartbeat(self) -> None:
        """Called often; the spell's heartbeat is written now and then."""
        now = self._clock.monotonic()
        if self._recorder is not None and self._recorder.spell and now - self._beaten_at >= HEARTBEAT_S:
            self._beaten_at = now
            self._recorder.heartbeat()
        if now - self._pruned_at >= PRUNE_S:
            self._prune()

    def _prune(self) -> None:
        self._pruned_at = self._clock.monotonic()
        if self._recorder is not None:
            self._recorder.record(lambda h: h.prune_events())

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


def _no_news(_last_words: bool) -> None:
    """Nobody sends segments."""


def _is_loopback(endpoint: str | None) -> bool:
    host = urlsplit(endpoint).hostname if endpoint else None
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
