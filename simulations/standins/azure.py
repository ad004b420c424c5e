"""Stand-in for Azure's Scheduled Events and instance metadata."""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from outlast.providers.base import Clock, Identity
from outlast.simulations.standins import faults
from outlast.simulations.standins.admin import number
from outlast.simulations.standins.script import Seen
from outlast.simulations.standins.server import StandIn

DEFAULT = Identity(
    "azure",
    "eastus",
    "eastus-1",
    "eastus-az2",
    "Standard_ND96asr_v4",
    "3f2b6c1e-7f0a-4d57-9d0a-0c0f5b1e2a33",
    "vmss_3",
    True,
)
EVENTS = "/metadata/scheduledevents"


@dataclass(slots=True)
class Event:
    """One scheduled event. ``at`` None: ``not_before`` and ``status`` stay as they are told."""

    event_id: str
    kind: str
    resources: tuple[str, ...]
    at: float | None
    not_before: str
    status: str

    def shown(self, now: float) -> dict[str, Any]:
        """As the document shows it: once its time has come it is Started, with a blank NotBefore."""
        started = self.at is not None and now >= self.at
        return {
            "EventId": self.event_id,
            "EventType": self.kind,
            "ResourceType": "VirtualMachine",
            "Resources": list(self.resources),
            "EventStatus": "Started" if started else self.status,
            "NotBefore": "" if started else self.not_before,
            "Description": f"{self.kind} of this virtual machine",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }


class AzureStandIn(StandIn):
    """``first_delay_s``: how long the first answer takes; ``limit``: requests a second before 429;
    ``iso``: NotBefore as ISO 8601 instead of RFC 1123."""

    provider = "azure"

    def __init__(
        self,
        identity: Identity = DEFAULT,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        on_request: Callable[[Seen], None] | None = None,
        first_delay_s: float = 0.0,
        limit: int = 5,
        iso: bool = False,
    ) -> None:
        super().__init__(identity, host=host, port=port, clock=clock, on_request=on_request)
        self.first_delay_s = first_delay_s
        self.limit = limit
        self.iso = iso
        self.empty = False
        self.acknowledged: list[str] = []
        self._enabled_at: float | None = None
        self._arrivals: deque[float] = deque()
        self._events: list[Event] = []
        self._last: list[dict[str, Any]] = []
        self._incarnation = 1

    def add_routes(self, app: web.Application) -> None:
        """Scheduled Events (GET, POST) and the instance's compute part."""
        app.router.add_get(EVENTS, self._get_events)
        app.router.add_post(EVENTS, self._post_events)
        app.router.add_get("/metadata/instance/compute", self._compute)

    def notice(self, action: str = "terminate", in_s: float = 30.0, *, at_wall: float | None = None) -> None:
        """Schedule a Preempt of this VM. Raises ValueError."""
        self.event("Preempt", at_wall=self.due(action, in_s, at_wall))

    def event(
        self,
        kind: str,
        *,
        resources: Sequence[str] | None = None,
        at_wall: float | None = None,
        not_before: str | None = None,
        status: str = "Scheduled",
    ) -> str:
        """Add an event and return its id. With ``not_before`` that text is shown as it is."""
        if at_wall is None and not_before is None:
            at_wall = self.clock.wall() + 900.0
        text = self._time(at_wall) if not_before is None and at_wall is not None else not_before or ""
        at = None if not_before is not None else at_wall
        names = (self.identity.name,) if resources is None else tuple(resources)
        added = Event(str(uuid.uuid4()).upper(), kind, names, at, text, status)
        self._events.append(added)
        self.script.changed("event", f"{kind} {','.join(names)}")
        return added.event_id

    def vanish(self, event_id: str) -> None:
        """Remove one event: it is over, or cancelled."""
        self._events = [event for event in self._events if event.event_id != event_id]
        self.script.changed("vanish", event_id)

    def withdraw(self) -> None:
        """Remove every Preempt and Terminate of this VM."""
        mine = self.identity.name
        self._events = [
            e for e in self._events if e.kind not in {"Preempt", "Terminate"} or mine not in e.resources
        ]
        self.script.changed("withdraw")

    def hint(self, kind: str | None = None) -> None:
        """An event of type ``kind``: Freeze (the usual one), Reboot, Redeploy or any other."""
        self.event(kind or "Freeze")

    def tell(self, what: str, body: dict[str, Any]) -> None:
        """`event` {"kind", "resources", "at_wall" or "not_before", "status"}; `vanish` {"id"}."""
        if what == "event":
            not_before = body.get("not_before")
            self.event(
                str(body.get("kind", "Preempt")),
                resources=body.get("resources"),
                at_wall=number(body, "at_wall"),
                not_before=None if not_before is None else str(not_before),
                status=str(body.get("status", "Scheduled")),
            )
        elif what == "vanish":
            self.vanish(str(body.get("id", "")))
        else:
            super().tell(what, body)

    def _time(self, wall: float) -> str:
        at = datetime.fromtimestamp(wall, UTC)
        return at.strftime("%Y-%m-%dT%H:%M:%SZ" if self.iso else "%a, %d %b %Y %H:%M:%S GMT")

    def _refusal(self, request: web.Request) -> web.Response | None:
        now = self.clock.monotonic()
        while self._arrivals and now - self._arrivals[0] >= 1.0:
            self._arrivals.popleft()
        self._arrivals.append(now)
        if len(self._arrivals) > self.limit:
            return web.Response(status=429, text="too many requests")
        good = request.headers.get("Metadata", "").lower() == "true" and "api-version" in request.query
        if not good or "X-Forwarded-For" in request.headers:
            return web.json_response({"error": "Bad request"}, status=400)
        return None

    async def _get_events(self, request: web.Request) -> web.StreamResponse:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        if self._enabled_at is None:
            self._enabled_at = self.clock.monotonic() + self.first_delay_s
        while (left := self._enabled_at - self.clock.monotonic()) > 0 and not self.script.closing:
            await self.script.change(left)
            fault = self.script.take(request.path)
            if fault is not None:
                return await faults.perform(fault, request, self.script)
        return web.Response(body=b"") if self.empty else web.json_response(self.document())

    def document(self) -> dict[str, Any]:
        """The document as it is now; its incarnation grows when its events differ from the last one's."""
        shown = [event.shown(self.clock.wall()) for event in self._events]
        if shown != self._last:
            self._last, self._incarnation = shown, self._incarnation + 1
        return {"DocumentIncarnation": self._incarnation, "Events": shown}

    async def _post_events(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            body = json.loads(await request.read())
            wanted = [str(item["EventId"]) for item in body["StartRequests"]]
        except (ValueError, KeyError, TypeError):
            return web.json_response({"error": "Bad request"}, status=400)
        known = {event.event_id: event for event in self._events}
        if not wanted or any(key not in known for key in wanted):
            return web.json_response({"error": "Bad request"}, status=400)
        for key in wanted:
            known[key].status, known[key].not_before, known[key].at = "Started", "", None
        self.acknowledged += wanted
        self.script.changed("acknowledged", ",".join(wanted))
        return web.Response(status=200)

    async def _compute(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        who = self.identity
        return web.json_response(
            {
                "location": who.region,
                "zone": who.zone.removeprefix(f"{who.region}-"),
                "physicalZone": who.zone_id,
                "vmSize": who.instance_type,
                "vmId": who.instance_id,
                "name": who.name,
                "priority": "Spot" if who.spot else "Regular",
                "evictionPolicy": "Deallocate" if who.spot else "",
                "vmScaleSetName": who.name.rpartition("_")[0],
            }
        )
