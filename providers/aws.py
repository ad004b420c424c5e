"""AWS EC2 Spot through IMDSv2: the notice in `spot/instance-action`, hints beside it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

from outlast.providers import parse
from outlast.providers.base import (
    Action,
    Clock,
    Hint,
    Identity,
    Notice,
    Options,
    ProviderError,
    Sighting,
    View,
)
from outlast.providers.http import MetadataClient, Reply
from outlast.providers.imds_token import Token
from outlast.providers.polling import Deadlines, Sleep, poll

log = logging.getLogger(__name__)

ENDPOINT = "http://169.254.169.254"
ROOT = "/latest/meta-data/"
SESSION = "X-aws-ec2-metadata-token"
TRY_S = 2.0
BESIDE_NOTICE_S = 0.25
IDENTIFY_S = 5.0
# After a failed interruption the key can keep its old time; a notice this far past is such a remnant.
STALE_S = 300.0
HINTS_EVERY_S = 5.0
HINTS_AGAIN_S = 30.0

ACTION = "spot/instance-action"
REBALANCE = "events/recommendations/rebalance"
MAINTENANCE = "events/maintenance/scheduled"
LIFECYCLE = "autoscaling/target-lifecycle-state"

_ACTIONS = {a.value: a for a in (Action.TERMINATE, Action.STOP, Action.HIBERNATE)}


class Aws:
    """Polls `instance-action` each ``poll_s``; hints every 5 s (or 5 polls), and with every notice."""

    name = "aws"
    can_acknowledge = False

    def __init__(self, options: Options, clock: Clock, sleep: Sleep = asyncio.sleep) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._client = MetadataClient(options.endpoint or ENDPOINT, clock)
        self._token = Token(self._client, clock)
        self._deadlines = Deadlines()
        self._me: str | None = None
        self._hints: tuple[Hint, ...] = ()
        self._hints_due = clock.monotonic()
        self._stale: str | None = None

    async def identify(self) -> Identity:
        """Who this node is. Raises ProviderError."""
        deadline = self._clock.monotonic() + IDENTIFY_S
        keys = ("instance-id", "instance-type", "placement/region", "placement/availability-zone")
        more = ("placement/availability-zone-id", "instance-life-cycle")
        found = [await self._word(key, deadline) for key in (*keys, *more)]
        if not found[0]:
            raise ProviderError("instance-id: the endpoint does not know it")
        instance, kind, region, zone, zone_id, life = found
        spot = None if not life else life == "spot"
        self._me = instance
        return Identity("aws", region, zone, zone_id, kind, instance, spot=spot)

    def watch(self) -> AsyncGenerator[Sighting, None]:
        """A sighting every ``poll_s`` seconds, for ever."""
        return poll(self._look, self._options.poll_s, self._clock, self._sleep)

    async def acknowledge(self, notice_id: str) -> None:
        """Nothing: AWS takes no acknowledgement."""

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    async def _look(self) -> View:
        reply = await self._get(ACTION, self._clock.monotonic() + TRY_S)
        now = self._clock.monotonic()
        action = None if reply.status == 404 else self._fresh(reply)
        if action or now >= self._hints_due:
            # Hints never hold up a notice.
            await self._read_hints(now + (BESIDE_NOTICE_S if action else TRY_S))
        if action is None:
            return View(now, self._deadlines.settle(()), self._hints)
        kind, left = action
        self._me = self._me or "self"
        notice = Notice(f"aws-{self._me}-{kind.value}", kind, now + left, ACTION, parse.printable(reply.body))
        return View(now, self._deadlines.settle((notice,)), self._hints)

    def _fresh(self, reply: Reply) -> tuple[Action, float] | None:
        kind, at = instance_action(reply.body)
        left = at - reply.wall
        if left >= -STALE_S:
            return kind, 0.0 if kind is Action.HIBERNATE else max(0.0, left)
        text = parse.printable(reply.body)
        if text != self._stale:
            self._stale = text
            log.warning("ignoring an instance-action whose time is %.0f s past: %s", -left, text)
        return None

    async def _read_hints(self, deadline: float) -> None:
        """A hint that cannot be read stays as it was: what matters is whether the notice could be read."""
        if self._me is None:
            self._me = await self._own_id(deadline)
        every = min(HINTS_EVERY_S, 5 * self._options.poll_s)
        asked = (self._get(key, deadline) for key in (REBALANCE, MAINTENANCE, LIFECYCLE))
        replies = await asyncio.gather(*asked, return_exceptions=True)
        hints: tuple[Hint, ...] = ()
        for key, reply in zip((REBALANCE, MAINTENANCE, LIFECYCLE), replies, strict=True):
            try:
                if isinstance(reply, BaseException):
                    raise reply
                hints += () if reply.status == 404 else hints_in(key, reply.body)
            except ProviderError as exc:
                log.info("hints not read: %s", exc)
                hints += tuple(h for h in self._hints if h.source == key)
                every = HINTS_AGAIN_S if isinstance(reply, BaseException) else every
        self._hints = hints
        self._hints_due = self._clock.monotonic() + every

    async def _own_id(self, deadline: float) -> str | None:
        try:
            return await self._word("instance-id", deadline) or None
        except ProviderError as exc:
            log.info("own instance id not read: %s", exc)
            return None

    async def _word(self, key: str, deadline: float) -> str:
        reply = await self._get(key, deadline)
        return "" if reply.status == 404 else parse.name(reply.text(), key)

    async def _get(self, key: str, deadline: float) -> Reply:
        """200 or 404; everything else is a ProviderError. A refused token is replaced and tried once more."""
        token = await self._token.get(deadline)
        reply = await self._client.get(ROOT + key, deadline=deadline, headers={SESSION: token})
        if reply.status == 401:
            token = await self._token.get(deadline, refused=token)
            reply = await self._client.get(ROOT + key, deadline=deadline, headers={SESSION: token})
        if reply.status not in {200, 404}:
            raise ProviderError(f"{key}: HTTP {reply.status}")
        return reply


def instance_action(body: bytes) -> tuple[Action, float]:
    """Action and UTC epoch seconds of an `instance-action` body. Raises ProviderError."""
    value = parse.json_object(body, ACTION)
    kind = _ACTIONS.get(parse.text_of(value, "action"))
    at = parse.utc(parse.text_of(value, "time"))
    if kind is None or at is None:
        raise ProviderError(f"{ACTION}: action or time not understood ({parse.printable(body)})")
    return kind, at


def hints_in(key: str, body: bytes) -> tuple[Hint, ...]:
    """The hints a hint path's body holds. Raises ProviderError where it is not understood."""
    if key == REBALANCE:
        at = parse.text_of(parse.json_object(body, key), "noticeTime")
        if parse.utc(at) is None:
            raise ProviderError(f"{key}: no noticeTime")
        return (Hint("aws-rebalance", "rebalance", key, at),)
    if key == LIFECYCLE:
        state = parse.printable(body)
        return (Hint("aws-lifecycle", "lifecycle", key, state),) if state == "Terminated" else ()
    events = parse.json_value(body, key)
    if not isinstance(events, list):
        raise ProviderError(f"{key}: the answer is not a list")
    return tuple(hint for event in events if (hint := _maintenance(event)))


def _maintenance(event: Any) -> Hint | None:
    if not isinstance(event, dict) or parse.text_of(event, "State") not in {"", "active"}:
        return None
    told = " ".join(parse.text_of(event, key) for key in ("Code", "NotBefore", "Description"))
    which = parse.printable(parse.text_of(event, "EventId"), 100) or parse.text_of(event, "Code")[:100]
    return Hint(f"aws-{which}", "maintenance", MAINTENANCE, parse.printable(told))
