"""Stand-in for the EC2 instance metadata service, version 2 only."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from aiohttp import web

from outlast.providers.base import Clock, Identity
from outlast.simulations.standins.script import Seen
from outlast.simulations.standins.server import StandIn

DEFAULT = Identity(
    "aws", "us-east-1", "us-east-1a", "use1-az4", "p4d.24xlarge", "i-0f1e2d3c4b5a69788", spot=True
)
NOT_FOUND = """<?xml version="1.0" encoding="iso-8859-1"?>
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>404 - Not Found</title></head>
<body><h1>404 - Not Found</h1></body></html>
"""


@dataclass(slots=True)
class _Session:
    ends: float
    requests_left: int | None


class AwsStandIn(StandIn):
    """``token_requests``: a token is good for that many requests, then refused. ``pretty``: white space in
    the notice. ``drift``: its time is counted anew from each request."""

    provider = "aws"
    hints = ("rebalance", "maintenance", "lifecycle")
    exempt: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = (("/api/token", ("401", "404")),)

    def __init__(
        self,
        identity: Identity = DEFAULT,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        on_request: Callable[[Seen], None] | None = None,
        token_requests: int | None = None,
        pretty: bool = False,
        drift: bool = False,
    ) -> None:
        super().__init__(identity, host=host, port=port, clock=clock, on_request=on_request)
        self.pretty = pretty
        self.drift = drift
        self._token_requests = token_requests
        self._sessions: dict[str, _Session] = {}
        self._action: tuple[str, float, float] | None = None
        self._shown: dict[str, str] = {}

    def add_routes(self, app: web.Application) -> None:
        """IMDSv2: the token, the metadata tree, the identity document."""
        app.router.add_put("/latest/api/token", self._put_token)
        app.router.add_get("/{version}/meta-data/{key:.+}", self._metadata)
        app.router.add_get("/{version}/dynamic/instance-identity/document", self._document)

    def notice(self, action: str = "terminate", in_s: float = 120.0, *, at_wall: float | None = None) -> None:
        """Show `instance-action`. Raises ValueError."""
        self._shown.pop("spot/instance-action", None)
        self._action = (action, self.due(action, in_s, at_wall), in_s)
        self.script.changed("notice", action)

    def show(self, key: str, text: str) -> None:
        """Show ``text`` verbatim at a metadata key, whatever else was there."""
        self._shown[key] = text
        self.script.changed("show", key)

    def withdraw(self) -> None:
        """`instance-action` is 404 again."""
        self._action = None
        for key in ("spot/instance-action", "spot/termination-time"):
            self._shown.pop(key, None)
        self.script.changed("withdraw")

    def hint(self, kind: str | None = None) -> None:
        """rebalance (the usual one), maintenance or lifecycle. Raises ValueError."""
        kind = self.known_hint(kind)
        now = self.clock.wall()
        if kind == "rebalance":
            self._shown["events/recommendations/rebalance"] = json.dumps({"noticeTime": _iso(now)})
        elif kind == "lifecycle":
            self._shown["autoscaling/target-lifecycle-state"] = "Terminated"
        else:
            self._shown["events/maintenance/scheduled"] = json.dumps([_maintenance(now + 3600)])
        self.script.changed("hint", kind)

    def expire_tokens(self) -> None:
        """Refuse every token given so far."""
        self._sessions.clear()
        self.script.changed("expire")

    def tell(self, what: str, body: dict[str, Any]) -> None:
        """`expire`; `show` {"key", "text"}. Raises ValueError."""
        if what == "expire":
            self.expire_tokens()
        elif what == "show":
            self.show(str(body.get("key", "")), str(body.get("text", "")))
        else:
            super().tell(what, body)

    async def _put_token(self, request: web.Request) -> web.Response:
        ttl = request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if "X-Forwarded-For" in request.headers:
            return _page(403)
        if not ttl.isdigit() or not 1 <= int(ttl) <= 21_600:
            return _page(400)
        token = secrets.token_urlsafe(40)
        self._sessions[token] = _Session(self.clock.monotonic() + int(ttl), self._token_requests)
        return web.Response(text=token, headers={"X-aws-ec2-metadata-token-ttl-seconds": ttl})

    def _refused(self, request: web.Request) -> bool:
        session = self._sessions.get(request.headers.get("X-aws-ec2-metadata-token", ""))
        if session is None or self.clock.monotonic() >= session.ends or session.requests_left == 0:
            return True
        if session.requests_left is not None:
            session.requests_left -= 1
        return False

    async def _metadata(self, request: web.Request) -> web.Response:
        if self._refused(request):
            return _page(401)
        text = self._value(request.match_info["key"].strip("/"))
        return _page(404) if text is None else web.Response(text=text)

    async def _document(self, request: web.Request) -> web.Response:
        if self._refused(request):
            return _page(401)
        who = self.identity
        return web.Response(
            text=json.dumps(
                {
                    "accountId": "123456789012",
                    "architecture": "x86_64",
                    "availabilityZone": who.zone,
                    "instanceId": who.instance_id,
                    "instanceType": who.instance_type,
                    "region": who.region,
                    "version": "2017-09-30",
                },
                indent=2,
            )
        )

    def _value(self, key: str) -> str | None:
        if key in self._shown:
            return self._shown[key]
        if key.startswith("spot/"):
            return self._spot(key)
        who = self.identity
        return {
            "instance-id": who.instance_id,
            "instance-type": who.instance_type,
            "instance-life-cycle": "spot" if who.spot else "on-demand",
            "placement/region": who.region,
            "placement/availability-zone": who.zone,
            "placement/availability-zone-id": who.zone_id,
            "autoscaling/target-lifecycle-state": "InService",
            "events/maintenance/scheduled": "[]",
        }.get(key) or None

    def _spot(self, key: str) -> str | None:
        if self._action is None:
            return None
        action, at, lead = self._action
        time = _iso(self.clock.wall() + lead if self.drift else at)
        if key == "spot/termination-time" and action == "terminate":
            return time
        told = {"action": action, "time": time}
        return (
            json.dumps(told, indent="\t" if self.pretty else None) if key == "spot/instance-action" else None
        )


def _page(status: int) -> web.Response:
    text = NOT_FOUND.replace("404 - Not Found", f"{status} - Error") if status != 404 else NOT_FOUND
    return web.Response(status=status, text=text, content_type="text/html")


def _iso(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _maintenance(wall: float) -> dict[str, str]:
    at = datetime.fromtimestamp(wall, UTC).strftime("%d %b %Y %H:%M:%S GMT")
    return {
        "NotBefore": at,
        "NotAfter": at,
        "Code": "system-reboot",
        "Description": "The instance is scheduled for a reboot",
        "EventId": "instance-event-0d59937288b749b32",
        "State": "active",
    }
