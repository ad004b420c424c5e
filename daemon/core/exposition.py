"""The metrics' way out: an HTTP page for a scraper and a file for node_exporter. Only where configured.

A spot node is seldom scraped twice under a notice: the file is written as soon as that, or a role, changes.
Trouble with either is said once and never felt by a job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from outlast.daemon.checkpoint.place import write_atomically
from outlast.daemon.core.job import Job

if TYPE_CHECKING:
    from aiohttp import web

log = structlog.get_logger("outlast.metrics")

WRITE_S = 15.0
BIND_AGAIN_S = 15.0
STOP_S = 1.0
# node_exporter is another user, and the unit's umask leaves others nothing.
READABLE = 0o644

Render = Callable[[], bytes]


class MetricsPage:
    """Serves ``render`` at ``http://host:port/metrics``; an address that cannot be had is tried again."""

    def __init__(self, host: str, port: int, render: Render) -> None:
        self._address = (host, port)
        self._render = render
        self._said = ""

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            try:
                async with self._served():
                    log.info("metrics_served", host=self._address[0], port=self._address[1])
                    self._said = ""
                    await asyncio.Event().wait()
            except OSError as exc:
                self._failed(str(exc))
            await asyncio.sleep(BIND_AGAIN_S)

    def _failed(self, because: str) -> None:
        if because != self._said:
            log.error("metrics_not_served", because=because, hint="free the address or change metrics.listen")
        self._said = because

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[None]:
        web = await asyncio.to_thread(_web)
        app = web.Application(client_max_size=1024)
        app.router.add_get("/metrics", self._answer)
        # No access log: a scrape is no news.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, *self._address).start()
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, _request: Any) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        answer: web.Response = _web().Response(body=self._render(), headers=headers)
        return answer


class MetricsFile:
    """Writes ``render`` to a file: at each change of a notice or a role, and every 15 seconds."""

    def __init__(self, path: Path, jobs: Iterable[Job], render: Render, *, every_s: float = WRITE_S) -> None:
        self._path = path
        self._render = render
        self._every_s = every_s
        self._said = ""
        self._wake = asyncio.Event()
        for job in jobs:
            job.news.append(self._wake.set)

    async def run(self) -> None:
        """Write until cancelled."""
        await asyncio.to_thread(_renderer)
        while True:
            self._wake.clear()
            await self._write()
            try:
                async with asyncio.timeout(self._every_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _write(self) -> None:
        because = ""
        try:
            await asyncio.to_thread(write_atomically, self._path, self._render(), mode=READABLE)
        except OSError as exc:
            because = str(exc)
        if because and because != self._said:
            hint = "make the folder, writable for the daemon (ReadWritePaths= of its unit)"
            log.error("metrics_not_written", because=because, hint=hint)
        self._said = because


def _web() -> Any:
    """Imported where metrics are served, and nowhere else: a daemon without them does not pay for it."""
    from aiohttp import web

    _renderer()
    return web


def _renderer() -> None:
    """As above: what renders is there by the time it is asked to."""
    import outlast.daemon.ops.metrics  # noqa: F401
