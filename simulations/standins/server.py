"""A stand-in for a provider's metadata endpoint: an HTTP server whose words and faults are scripted."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from aiohttp import web

from outlast.providers.base import Clock, Identity
from outlast.simulations.standins import admin, faults
from outlast.simulations.standins.listening import Handler, Scripted, routed
from outlast.simulations.standins.script import Change, Seen

ACTIONS = ("terminate", "stop", "hibernate")


class StandIn(Scripted):
    """Says what one provider's endpoint says; its own paths (``admin``) are in no record.

    All methods are called in the loop that serves. The wire sees a change as soon as a method returns.
    """

    provider: ClassVar[str]
    # Kinds of hint, the usual one first; empty: any.
    hints: ClassVar[tuple[str, ...]] = ()
    # Kinds of fault that a path cannot show: (part of the path, kinds).
    exempt: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()

    def __init__(
        self,
        identity: Identity,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        on_request: Callable[[Seen], None] | None = None,
    ) -> None:
        super().__init__(host, port, clock, on_request)
        self.identity = identity

    def application(self) -> web.Application:
        """See Listening."""
        app = web.Application(middlewares=[self._front])
        admin.add_routes(app, self)
        self.add_routes(app)
        return app

    @property
    def changes(self) -> list[Change]:
        """Changes made so far."""
        return list(self.script.changes)

    async def asked(self, path: str, times: int = 1, within_s: float = 10.0) -> None:
        """Return once ``path`` was answered ``times`` more times. Raises TimeoutError after ``within_s``."""
        wanted = self._answered(path) + times
        async with asyncio.timeout(within_s):
            while self._answered(path) < wanted:
                await self.script.change(within_s)

    def _answered(self, path: str) -> int:
        return sum(seen.status is not None and path in seen.path for seen in self.script.requests)

    @abstractmethod
    def add_routes(self, app: web.Application) -> None:
        """Add what the real endpoint serves."""

    @abstractmethod
    def notice(self, action: str = "terminate", in_s: float = 120.0, *, at_wall: float | None = None) -> None:
        """Show a notice: ``action`` in ``in_s`` seconds, or at ``at_wall`` (UTC epoch). Raises ValueError."""

    @abstractmethod
    def withdraw(self) -> None:
        """Show no notice any more; hints stay."""

    @abstractmethod
    def hint(self, kind: str | None = None) -> None:
        """Show a hint of ``kind``; None: the provider's usual one. Raises ValueError."""

    def tell(self, what: str, _body: dict[str, Any]) -> None:
        """An admin request that only this provider knows. Raises ValueError."""
        raise ValueError(f"{what!r} is not known by the {self.provider} stand-in")

    def known_hint(self, kind: str | None) -> str:
        """``kind``, or the usual one for None. Raises ValueError for a kind the provider does not have."""
        if kind is not None and self.hints and kind not in self.hints:
            raise ValueError(f"hint {kind!r} is not known; choose one of {', '.join(self.hints)}")
        return kind or self.hints[0]

    def due(self, action: str, in_s: float, at_wall: float | None) -> float:
        """The wall time of a notice. Raises ValueError for an action that no provider has."""
        if action not in ACTIONS:
            raise ValueError(f"action {action!r} is not known; choose one of {', '.join(ACTIONS)}")
        return self.clock.wall() + in_s if at_wall is None else at_wall

    @web.middleware
    async def _front(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith(admin.PREFIX):
            return await routed(request, handler)
        seen = self.script.arrived(request.method, request.path, request.query_string)
        status: int | None = None
        try:
            exempt = [kinds for part, kinds in self.exempt if part in request.path]
            fault = self.script.take(request.path, exempt[0] if exempt else ())
            if fault is not None:
                answer = await faults.perform(fault, request, self.script)
            else:
                answer = await routed(request, handler)
            if request.transport is not None and not request.transport.is_closing():
                status = answer.status
            return answer
        finally:
            self.script.answered(seen, status)
