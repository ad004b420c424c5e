"""What this node's pool costs, asked now and then where that is configured; only changes are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from outlast.daemon.history.rows import Pool, PriceRow
from outlast.providers.base import Clock, Identity
from outlast.providers.market.base import Answer, Quote, Source, Want

log = structlog.get_logger("outlast.prices")

# The first look waits until the node has settled; each look has this long.
START_S = 60.0
ASK_S = 120.0
DAY_S = 86400.0


def open_market(clock: Clock) -> Callable[[str], Source]:
    """Price sources of providers by the provider's name."""

    def opened(provider: str) -> Source:
        from outlast.providers.market import registry
        from outlast.providers.market.base import Access

        try:
            return registry.create(f"{provider}-prices", Access(clock=clock))
        except ValueError as exc:
            raise LookupError(f"no prices are published for provider {provider}") from exc

    return opened


class Pricing:
    """Asks the node's own provider for its own instance type and region. Its trouble is a line in the log.

    ``open_source`` makes the source by the provider's name, in a thread, as it may have much to import; it
    raises LookupError where there is none.
    """

    def __init__(
        self,
        open_source: Callable[[str], Source],
        every_s: float,
        identity: Callable[[], Identity | None],
        note: Callable[[PriceRow], None],
        clock: Clock,
    ) -> None:
        self._open = open_source
        self._every_s = every_s
        self._identity = identity
        self._note = note
        self._clock = clock
        self._lacks: tuple[str, ...] = ()

    async def run(self) -> None:
        """Ask until cancelled; a life in which the provider is not known asks nobody."""
        pause = min(START_S, self._every_s)
        while True:
            await asyncio.sleep(pause)
            identity = self._identity()
            if identity is None or not identity.instance_type:
                continue
            pause = self._every_s
            try:
                source = await asyncio.to_thread(self._open, identity.provider)
            except LookupError as exc:
                self._say((str(exc),))
                continue
            try:
                await self._look(source, identity)
            finally:
                await source.close()

    async def _look(self, source: Source, identity: Identity) -> None:
        want = Want(
            instance_types=(identity.instance_type,),
            regions=(identity.region,) if identity.region else (),
            days=max(1.0, 2 * self._every_s / DAY_S),
        )
        answer = Answer(source.name, self._clock.wall(), lacks=("no answer in time",))
        with suppress(TimeoutError):
            async with asyncio.timeout(ASK_S + 10.0):
                answer = await source.ask(want, self._clock.monotonic() + ASK_S)
        self._say(answer.lacks)
        for quote in sorted(answer.quotes, key=lambda quote: quote.at):
            if _is_ours(quote, identity):
                pool = Pool(quote.provider, quote.region, quote.zone, quote.instance_type)
                self._note(PriceRow(pool, quote.kind, quote.at, quote.micro_usd))

    def _say(self, lacks: tuple[str, ...]) -> None:
        if lacks and lacks != self._lacks:
            log.info("prices_lack", what=list(lacks[:5]))
        self._lacks = lacks


def _is_ours(quote: Quote, identity: Identity) -> bool:
    return (
        quote.provider == identity.provider
        and quote.instance_type == identity.instance_type
        and quote.region == identity.region
    )
