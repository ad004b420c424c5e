"""What all stand-ins have in common: an HTTP server on a socket of its own, and a script that it follows."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar

from aiohttp import web

from outlast.providers.base import Clock, SystemClock
from outlast.simulations.standins import faults
from outlast.simulations.standins.script import Script, Seen

if TYPE_CHECKING:
    from typing import Self

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Listening(ABC):
    """Listens between ``start`` and ``close`` (or as a context manager) on ``host:port``.

    Port 0 picks one.
    """

    # Whether a request whose client has gone is given up.
    gives_up: ClassVar[bool] = True
    # How long ``close`` waits for what is being answered.
    patience_s: ClassVar[float] = 1.0

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    @abstractmethod
    def application(self) -> web.Application:
        """What is served."""

    @abstractmethod
    def let_go(self) -> None:
        """Have every request end that hangs on purpose: the end has come."""

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""
        self._runner = web.AppRunner(
            self.application(),
            access_log=None,
            handler_cancellation=self.gives_up,
            shutdown_timeout=self.patience_s,
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError:
            await self.close()
            raise
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening and drop what hangs; safe to call twice."""
        self.let_go()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Scheme, host and port; the port is known once it listens."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"


class Scripted(Listening):
    """One whose misbehaviour is scripted, and whose requests are recorded."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        on_request: Callable[[Seen], None] | None = None,
    ) -> None:
        super().__init__(host, port)
        self.clock = clock or SystemClock()
        self.script = Script(self.clock, on_request)

    @property
    def requests(self) -> list[Seen]:
        """Requests seen so far."""
        return list(self.script.requests)

    def misbehave(
        self, kind: str, *, count: int | None = None, for_s: float | None = None, path: str = ""
    ) -> None:
        """Answer wrongly from now on; see ``Script.misbehave``. Raises ValueError."""
        self.script.misbehave(kind, count=count, for_s=for_s, path=path)

    def behave(self) -> None:
        """Forget all misbehaviour."""
        self.script.behave()

    def let_go(self) -> None:
        """See Listening."""
        self.script.closing = True
        self.script.bump()


async def routed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The handler's answer, or a page that says 404 where there is none."""
    with contextlib.suppress(web.HTTPNotFound, web.HTTPMethodNotAllowed):
        return await handler(request)
    return web.Response(status=404, text=faults.HTML, content_type="text/html")
