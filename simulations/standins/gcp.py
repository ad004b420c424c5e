"""Stand-in for the Google Cloud metadata server: values with ETags, and hangs that end at a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from outlast.providers.base import Clock, Identity
from outlast.simulations.standins import faults
from outlast.simulations.standins.script import Seen
from outlast.simulations.standins.server import StandIn

DEFAULT = Identity(
    "gcp", "us-central1", "us-central1-a", "", "a2-highgpu-8g", "4520031799277581759", "trainer-1", True
)
FLAVOR = {"Metadata-Flavor": "Google"}
ROOT = "/computeMetadata/v1/instance/"
HINTS = {"maintenance": "TERMINATE_ON_HOST_MAINTENANCE", "migrate": "MIGRATE_ON_HOST_MAINTENANCE"}


class GcpStandIn(StandIn):
    """``flavor`` False leaves `Metadata-Flavor` out of the answers, as a foreign server would.
    ``etags`` or ``hangs`` set to False: no ETag, or no hang, as a plain imitation would."""

    provider = "gcp"
    hints = tuple(HINTS)

    def __init__(
        self,
        identity: Identity = DEFAULT,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        on_request: Callable[[Seen], None] | None = None,
        flavor: bool = True,
    ) -> None:
        super().__init__(identity, host=host, port=port, clock=clock, on_request=on_request)
        self.flavor = flavor
        self.etags = True
        self.hangs = True
        self._versions: dict[str, int] = {}
        self._values = {
            "id": identity.instance_id,
            "name": identity.name,
            "zone": f"projects/123456789/zones/{identity.zone}",
            "machine-type": f"projects/123456789/machineTypes/{identity.instance_type}",
            "scheduling/preemptible": "TRUE" if identity.spot else "FALSE",
            "preempted": "FALSE",
            "maintenance-event": "NONE",
        }

    def add_routes(self, app: web.Application) -> None:
        """The instance tree."""
        app.router.add_get(ROOT + "{key:.+}", self._get)

    def notice(self, action: str = "terminate", in_s: float = 120.0, *, at_wall: float | None = None) -> None:
        """Flip `preempted` to TRUE; Google tells neither action nor time. Raises ValueError."""
        self.due(action, in_s, at_wall)
        self._set("preempted", "TRUE", "notice")

    def withdraw(self) -> None:
        """`preempted` is FALSE again."""
        self._set("preempted", "FALSE", "withdraw")

    def hint(self, kind: str | None = None) -> None:
        """maintenance (the usual one) or migrate. Raises ValueError."""
        kind = self.known_hint(kind)
        self._set("maintenance-event", HINTS[kind], "hint")

    def show(self, key: str, text: str) -> None:
        """Show ``text`` at a key of the instance tree."""
        self._set(key, text, "show")

    def tell(self, what: str, body: dict[str, Any]) -> None:
        """`show` {"key", "text"}. Raises ValueError."""
        if what != "show":
            super().tell(what, body)
        self.show(str(body.get("key", "")), str(body.get("text", "")))

    def _set(self, key: str, value: str, what: str) -> None:
        if self._values.get(key) != value:
            self._values[key] = value
            self._versions[key] = self._versions.get(key, 0) + 1
        self.script.changed(what, f"{key}={value}")

    def _etag(self, key: str) -> str:
        return f"{self._versions.get(key, 0) + 0x5EED:016x}"

    async def _get(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["key"].strip("/")
        if request.headers.get("Metadata-Flavor") != "Google" or "X-Forwarded-For" in request.headers:
            return self._answer(403, faults.HTML)
        if key not in self._values:
            return self._answer(404, faults.HTML)
        if self.hangs and request.query.get("wait_for_change", "").lower() == "true":
            fault = await self._hang(request, key)
            if fault is not None:
                return fault
        return self._answer(200, self._values[key], etag=self._etag(key))

    async def _hang(self, request: web.Request, key: str) -> web.StreamResponse | None:
        """Wait for a change or for `timeout_sec`; a fault that comes meanwhile is the answer."""
        known = request.query.get("last_etag") or self._etag(key)
        within = request.query.get("timeout_sec", "")
        ends = self.clock.monotonic() + (float(within) if within.isdigit() else 3600.0)
        while self._etag(key) == known and not self.script.closing:
            left = ends - self.clock.monotonic()
            if left <= 0:
                return None
            await self.script.change(left)
            fault = self.script.take(request.path)
            if fault is not None:
                return await faults.perform(fault, request, self.script)
        return None

    def _answer(self, status: int, text: str, etag: str | None = None) -> web.Response:
        headers = dict(FLAVOR) if self.flavor else {}
        if etag is not None and self.etags:
            headers["ETag"] = etag
        return web.Response(status=status, text=text, headers=headers)
