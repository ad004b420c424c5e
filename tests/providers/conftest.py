"""A provider with its stand-in, and a watch that a test steps through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass

import pytest

from outlast.providers import gcp, registry
from outlast.providers.base import Clock, Options, Provider, Sighting, SystemClock, Unknown, View
from outlast.simulations import standins
from outlast.simulations.standins import StandIn

# Azure's stand-in, like Azure, refuses more than five requests a second.
POLL_S = {"aws": 0.05, "gcp": 0.05, "azure": 0.25}


class Watch:
    """The sightings of one watch, taken one by one."""

    def __init__(self, sightings: AsyncGenerator[Sighting, None]) -> None:
        self._sightings = sightings

    async def next(self, within_s: float = 10.0) -> Sighting:
        """The next sighting."""
        async with asyncio.timeout(within_s):
            return await anext(self._sightings)

    async def until(self, holds: Callable[[Sighting], bool], within_s: float = 10.0) -> Sighting:
        """The first sighting that ``holds``."""
        async with asyncio.timeout(within_s):
            while not holds(sighting := await anext(self._sightings)):
                pass
            return sighting

    async def view(self, holds: Callable[[View], bool] = lambda _view: True, within_s: float = 10.0) -> View:
        """The first view that ``holds``."""
        seen = await self.until(lambda s: isinstance(s, View) and holds(s), within_s)
        assert isinstance(seen, View)
        return seen

    async def noticed(self) -> View:
        """The first view with a notice."""
        return await self.view(lambda view: bool(view.notices))

    async def quiet(self) -> View:
        """The first view without a notice."""
        return await self.view(lambda view: not view.notices)

    async def hinted(self) -> View:
        """The first view with a hint."""
        return await self.view(lambda view: bool(view.hints))

    async def unknown(self) -> Unknown:
        """The first sighting that is Unknown."""
        seen = await self.until(lambda s: isinstance(s, Unknown))
        assert isinstance(seen, Unknown)
        return seen


@dataclass
class Bench:
    """Makes providers and watches that are closed when the test ends."""

    stack: AsyncExitStack
    clock: Clock

    def provider(self, endpoint: StandIn | str, name: str = "", **options: object) -> Provider:
        """A provider pointed at ``endpoint``; ``options`` are those of Options, and `hang_s`."""
        url, kind = (endpoint, name) if isinstance(endpoint, str) else (endpoint.url, endpoint.provider)
        hang_s = int(str(options.pop("hang_s", 1)))
        told = Options(**{"endpoint": url, "poll_s": POLL_S[kind], **options})  # type: ignore[arg-type]  # options of several types by name
        made = registry.create(kind, told, self.clock)
        if kind == "gcp":
            made = gcp.Gcp(told, self.clock, hang_s=hang_s)
        self.stack.push_async_callback(made.close)
        return made

    async def watch(self, endpoint: StandIn | str, name: str = "", **options: object) -> Watch:
        """A watch of a new provider."""
        return await self.watching(self.provider(endpoint, name, **options))

    async def watching(self, provider: Provider) -> Watch:
        """A watch of ``provider``."""
        sightings = provider.watch()
        assert isinstance(sightings, AsyncGenerator)
        return Watch(await self.stack.enter_async_context(aclosing(sightings)))


@asynccontextmanager
async def _bench(clock: Clock) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        yield Bench(stack, clock)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Providers and watches on the machine's own clock."""
    async with _bench(SystemClock()) as made:
        yield made


@pytest.fixture(params=["aws", "gcp", "azure"])
async def endpoint(request: pytest.FixtureRequest) -> AsyncIterator[StandIn]:
    """Each provider's stand-in in turn."""
    async with standins.create(request.param) as started:
        yield started
