"""Azure Spot through Scheduled Events: this VM's own events, picked from a document about many VMs."""

from __future__ import annotations

import asyncio
import json
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
from outlast.providers.polling import Deadlines, Sleep, poll

ENDPOINT = "http://169.254.169.254"
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
COMPUTE = "/metadata/instance/compute?api-version="
# The newest tells the physical zone; hosts that do not know it yet answer 400.
COMPUTE_VERSIONS = ("2025-04-07", "2021-02-01")
HEADER = {"Metadata": "true"}
TRY_S = 3.0
# The first call of a VM's life switches the service on and may take two minutes.
FIRST_TRY_S = 135.0
IDENTIFY_S = 5.0
# The endpoint allows five requests a second to all of the VM together.
MIN_POLL_S = 0.25
NOTICE_S = 30.0

_NOTICES = ("Preempt", "Terminate")
_HINTS = {
    "Freeze": "freeze",
    "Reboot": "reboot",
    "Redeploy": "redeploy",
    "SpotRebalanceRecommendation": "rebalance",
}


class Azure:
    """Polls once ``poll_s``. Until the first answer, which may take two minutes, ``watch`` is silent."""

    name = "azure"
    can_acknowledge = True

    def __init__(self, options: Options, clock: Clock, sleep: Sleep = asyncio.sleep) -> None:
        self._poll_s = max(options.poll_s, MIN_POLL_S)
        self._notice_s = NOTICE_S if options.notice_s is None else options.notice_s
        self._own = options.own_name
        self._clock = clock
        self._sleep = sleep
        self._client = MetadataClient(options.endpoint or ENDPOINT, clock)
        self._deadlines = Deadlines()
        self._answered = False

    async def identify(self) -> Identity:
        """Who this node is. Raises ProviderError."""
        compute = await self._compute()
        read = {
            key: parse.text_of(compute, key)
            for key in ("location", "zone", "physicalZone", "vmSize", "vmId", "name", "priority")
        }
        region, name = parse.name(read["location"], "location"), parse.name(read["name"], "name")
        zone = f"{region}-{read['zone']}" if read["zone"] else ""
        spot = {"Spot": True, "Low": True, "Regular": False}.get(read["priority"])
        for key in ("vmSize", "vmId"):
            parse.name(read[key], key)
        zone_id = parse.printable(read["physicalZone"], 64)
        return Identity("azure", region, zone, zone_id, read["vmSize"], read["vmId"], name, spot)

    def watch(self) -> AsyncGenerator[Sighting, None]:
        """A sighting every ``poll_s`` seconds after the first answer, for ever."""
        return poll(self._look, self._poll_s, self._clock, self._sleep)

    async def acknowledge(self, notice_id: str) -> None:
        """Let the event start now, for every VM it lists. Raises ProviderError."""
        if not notice_id.startswith("azure-"):
            raise ProviderError(f"{notice_id!r} is not a notice of Azure")
        body = {"StartRequests": [{"EventId": notice_id.removeprefix("azure-")}]}
        deadline = self._clock.monotonic() + TRY_S
        header = HEADER | {"Content-Type": "application/json"}
        sent = json.dumps(body).encode()
        reply = await self._client.request("POST", EVENTS, deadline=deadline, headers=header, body=sent)
        if reply.status != 200:
            raise ProviderError(f"the acknowledgement of {notice_id} was refused: HTTP {reply.status}")

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    async def _look(self) -> View:
        bound = TRY_S if self._answered else FIRST_TRY_S
        reply = await self._get(EVENTS, self._clock.monotonic() + bound)
        if reply.status != 200:
            raise ProviderError(f"scheduledevents: HTTP {reply.status}")
        self._answered = True
        events = events_in(reply.body)
        own = await self._own_name() if events else ""
        now = self._clock.monotonic()
        notices, hints, faults = [], [], []
        for event in events:
            try:
                seen = about(event, own, now, reply.wall, self._notice_s)
            except ProviderError as exc:
                faults.append(exc)
                continue
            if isinstance(seen, Notice):
                notices.append(seen)
            elif seen is not None:
                hints.append(seen)
        # One event that cannot be read could be ours: without a notice the document tells nothing.
        if faults and not notices:
            raise faults[0]
        return View(now, self._deadlines.settle(notices), tuple(hints))

    async def _own_name(self) -> str:
        if self._own is None:
            self._own = parse.name(parse.text_of(await self._compute(), "name"), "own name")
        return self._own

    async def _compute(self) -> dict[str, Any]:
        deadline = self._clock.monotonic() + IDENTIFY_S
        for version in COMPUTE_VERSIONS:
            reply = await self._get(COMPUTE + version, deadline)
            if reply.status != 400:
                break
        if reply.status != 200:
            raise ProviderError(f"instance/compute: HTTP {reply.status}")
        return parse.json_object(reply.body, "instance/compute")

    async def _get(self, path: str, deadline: float) -> Reply:
        return await self._client.get(path, deadline=deadline, headers=HEADER)


def events_in(body: bytes) -> list[Any]:
    """The events of a document; an empty body has none. Raises ProviderError."""
    if not body.strip():
        return []
    events = parse.json_object(body, "scheduledevents").get("Events")
    if not isinstance(events, list):
        raise ProviderError("scheduledevents: no list of Events")
    return events


def about(event: Any, own: str, now: float, wall: float, notice_s: float) -> Notice | Hint | None:
    """What one event means for the VM named ``own``; None if it is about others. Raises ProviderError.

    ``wall`` is the endpoint's time at ``now``; ``notice_s`` counts where NotBefore cannot be read.
    """
    names = event.get("Resources") if isinstance(event, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ProviderError("scheduledevents: an event without a list of Resources")
    if own.casefold() not in (name.casefold() for name in names):
        return None
    kind = parse.printable(parse.text_of(event, "EventType"), 64)
    event_id = parse.text_of(event, "EventId")
    if not kind or not event_id:
        raise ProviderError("scheduledevents: an event without EventId or EventType")
    key = f"azure-{parse.name(event_id, 'EventId')}"
    told = " ".join(parse.text_of(event, item) for item in ("EventStatus", "NotBefore", "Description"))
    detail = parse.printable(f"{kind} {told}")
    if kind not in _NOTICES:
        return Hint(key, _HINTS.get(kind, "unknown"), "scheduledevents", detail)
    deadline = now + _seconds_left(event, wall, notice_s)
    return Notice(key, Action.TERMINATE, deadline, "scheduledevents", detail)


def _seconds_left(event: dict[str, Any], wall: float, notice_s: float) -> float:
    not_before = parse.text_of(event, "NotBefore")
    if not not_before or parse.text_of(event, "EventStatus") == "Started":
        return 0.0
    at = parse.utc(not_before)
    return notice_s if at is None else max(0.0, at - wall)
