"""What all market stand-ins have in common: an HTTP server whose answers and faults are scripted."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from abc import abstractmethod
from functools import cache
from typing import Any

from aiohttp import web

from outlast.providers.base import Clock
from outlast.simulations.standins import faults
from outlast.simulations.standins.listening import Handler, Scripted, routed

# More than any client of ours takes; it travels as some tens of kilobytes.
BOMB_BYTES = 68 * 1024 * 1024
TOKEN = "stand-in-token"


class Market(Scripted):
    """Says what one provider publishes of prices and risk.

    All methods are called in the loop that serves. A request that carries credentials must carry TOKEN.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0, clock: Clock | None = None) -> None:
        super().__init__(host, port, clock)
        # Headers of every request, in order, and the JSON or form bodies that came with some.
        self.headers: list[dict[str, str]] = []
        self.bodies: list[Any] = []
        # Answer this to everything, in place of what is right.
        self.says: bytes | None = None
        self._throttles = 0
        self._after: str | None = None
        self._slow_s = 0.0

    @property
    @abstractmethod
    def endpoints(self) -> dict[str, str]:
        """What to give to ``Access.endpoints``."""

    @abstractmethod
    def add_routes(self, app: web.Application) -> None:
        """Add what the real interface serves."""

    def application(self) -> web.Application:
        """See Listening."""
        app = web.Application(middlewares=[self._front])
        self.add_routes(app)
        return app

    def throttle(self, times: int, after: str | None = None) -> None:
        """Refuse the next ``times`` requests as too many, with ``after`` as Retry-After where it is given."""
        self._throttles, self._after = times, after

    def slow(self, seconds: float) -> None:
        """Let every answer take this long from now on."""
        self._slow_s = seconds

    def misbehave(
        self, kind: str, *, count: int | None = None, for_s: float | None = None, path: str = ""
    ) -> None:
        """As any; but "half" cuts the right answer in two, and "huge" is one that grows when it is
        decompressed."""
        super().misbehave(kind, count=count, for_s=for_s, path=path)

    def behave(self) -> None:
        """Forget all misbehaviour."""
        super().behave()
        self._throttles, self._slow_s = 0, 0.0

    def throttled(self, _request: web.Request) -> web.Response:
        """The answer to a request too many."""
        headers = {} if self._after is None else {"Retry-After": self._after}
        body = {"error": {"code": "TooManyRequests", "message": "Too many requests"}}
        return web.json_response(body, status=429, headers=headers)

    def admitted(self, request: web.Request) -> bool:
        """Whether a request carries the token."""
        return request.headers.get("Authorization") == f"Bearer {TOKEN}"

    @web.middleware
    async def _front(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        seen = self.script.arrived(request.method, request.path, request.query_string)
        self.headers.append(dict(request.headers))
        status: int | None = None
        try:
            answer = await self._answer(request, handler)
            status = answer.status
            return answer
        finally:
            self.script.answered(seen, status)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._slow_s:
            await asyncio.sleep(self._slow_s)
        if self._throttles > 0:
            self._throttles -= 1
            return self.throttled(request)
        if self.says is not None:
            return web.Response(body=self.says, content_type="application/json")
        fault = self.script.take(request.path)
        if fault is None:
            return await routed(request, handler)
        if fault.kind == "half":
            return await _cut(request, await routed(request, handler))
        if fault.kind == "huge":
            headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
            return web.Response(body=_bomb(), headers=headers)
        return await faults.perform(fault, request, self.script)


@cache
def _bomb() -> bytes:
    return gzip.compress(b"[" + b" " * BOMB_BYTES + b"]", compresslevel=9)


async def _cut(request: web.Request, whole: web.StreamResponse) -> web.StreamResponse:
    """The first half of an answer, then the end of the connection."""
    body = whole.body if isinstance(whole, web.Response) else b""
    content = body if isinstance(body, bytes) else b"{}"
    answer = web.StreamResponse(headers={"Content-Length": str(len(content))})
    with contextlib.suppress(ConnectionError):
        await answer.prepare(request)
        await answer.write(content[: len(content) // 2])
        if request.transport is not None:
            request.transport.close()
    return answer


def pages(rows: list[Any], start: int, size: int) -> tuple[list[Any], int | None]:
    """``size`` rows from ``start`` on, and where the next page starts."""
    ends = start + size
    return rows[start:ends], ends if ends < len(rows) else None


def json_response(body: Any, status: int = 200) -> web.Response:
    """A JSON answer."""
    return web.json_response(body, status=status)
