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

from outlast.daemon.core.trainers import bind_unix

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
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Bind. Raises OSError with what to do."""
        self._sock = await asyncio.to_thread(bind_unix, self._path, 0o660)

    async def run(self) -> None:
        """Serve until cancelled; removes the socket on the way out."""
        assert self._sock is not None, "start() comes first"
        server = await asyncio.start_unix_server(self._serve, sock=self._sock, limit=MAX_REQUEST)
        try:
            async with server:
                await server.serve_forever()
        finally:
            for writer in list(self._open):
                writer.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ValueError, ConnectionError) as exc:
            log.debug("control_connection_ended", because=str(exc))
        finally:
            self._open.discard(writer)
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
