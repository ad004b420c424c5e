"""The control socket: one JSON request a line, one JSON answer a line. The command line speaks it.

Requests are ``{"op": NAME, …}``; answers ``{"ok": true, …}`` or ``{"ok": false, "because": …}``.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from outlast.daemon.core.trainers import bind_unix, serve_unix

log = structlog.get_logger("outlast.control")

MAX_REQUEST = 64 * 1024

Handler = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


class RequestError(Exception):
    """The request cannot be fulfilled: what, why and what to do."""


class ControlSocket:
    """Serves ``handlers`` by name. Only the daemon's own user and group may connect (mode 0660)."""

    def __init__(self, path: Path, handlers: Mapping[str, Handler]) -> None:
        self._path = path
        self._handlers = handlers
        self._sock: socket.socket | None = None

    async def start(self) -> None:
        """Bind. Raises OSError with what to do."""
        self._sock = await asyncio.to_thread(bind_unix, self._path, 0o660)

    async def run(self) -> None:
        """Serve until cancelled; removes the socket on the way out."""
        assert self._sock is not None, "start() comes first"
        await serve_unix(self._sock, self._path, self._serve, MAX_REQUEST)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ValueError, ConnectionError) as exc:
            log.debug("control_connection_ended", because=str(exc))
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return _no("not JSON")
        handler = self._handlers.get(str(request.get("op"))) if isinstance(request, dict) else None
        if handler is None:
            return _no(f"no such request; there are: {', '.join(sorted(self._handlers))}")
        try:
            return {"ok": True, **await handler(request)}
        except RequestError as exc:
            return _no(str(exc))


def _no(because: str) -> dict[str, Any]:
    return {"ok": False, "because": because}
