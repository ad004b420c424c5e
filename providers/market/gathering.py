"""What every source does alike: gather what came before the deadline, and say what did not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from outlast.providers.base import Clock, ProviderError
from outlast.providers.market import catalogue
from outlast.providers.market.base import Answer, Quote, Risk, Want
from outlast.providers.parse import printable

T = TypeVar("T")
MOST_LACKS = 20
_REGIONS = {
    "aws": re.compile(r"[a-z]{2}(-[a-z]+){1,3}-\d{1,2}", re.ASCII),
    "azure": re.compile(r"[a-z]{3,30}\d{0,2}", re.ASCII),
    "gcp": re.compile(r"[a-z]+-[a-z]+\d{1,2}", re.ASCII),
    "runpod": re.compile(r"[A-Z]{2,3}(-[A-Z]{2,4}){1,2}-\d{1,2}", re.ASCII),
    "vast": re.compile(r"[A-Z]{2}", re.ASCII),
}
_TYPES = {
    "aws": re.compile(r"[a-z][a-z0-9-]{1,20}\.[a-z0-9-]{1,20}", re.ASCII),
    "azure": re.compile(r"Standard_[A-Za-z0-9_-]{1,40}", re.ASCII),
    "gcp": re.compile(r"[a-z]\d[a-z]?-[a-z0-9-]{1,40}", re.ASCII),
    "runpod": re.compile(r"\d{1,2}x(NVIDIA_|AMD_|Tesla_V100-)[A-Za-z0-9_-]{1,60}", re.ASCII),
    "vast": re.compile(r"\d{1,3}x(?!NVIDIA_|AMD_|Tesla_V100-)[A-Za-z0-9_-]{1,60}", re.ASCII),
}


class Gathering:
    """The answer while it is made. A repeated lack is said once; more than twenty are counted."""

    def __init__(self, source: str, at: float) -> None:
        self.source = source
        self.at = at
        self.quotes: list[Quote] = []
        self.risks: list[Risk] = []
        self._lacks: dict[str, None] = {}
        self._complete = True

    def lack(self, text: str) -> None:
        """Something could not be got this time."""
        self._complete = False
        self.say(text)

    def say(self, text: str) -> None:
        """Something that the source does not have at any time."""
        self._lacks.setdefault(f"{self.source}: {printable(text, 300)}")

    def answer(self) -> Answer:
        """What was gathered, in order and without doubles."""
        lacks = tuple(self._lacks)
        if len(lacks) > MOST_LACKS:
            lacks = (*lacks[:MOST_LACKS], f"{self.source}: {len(lacks) - MOST_LACKS} more")
        quotes, risks = dict.fromkeys(self.quotes), dict.fromkeys(self.risks)
        return Answer(
            self.source, self.at, tuple(quotes), tuple(risks), lacks, cached=False, complete=self._complete
        )


async def gather(
    source: str, clock: Clock, deadline: float, ask: Callable[[Gathering], Awaitable[None]]
) -> Answer:
    """Run ``ask``; what it gathered before ``deadline`` counts, and what stopped it is a lack."""
    into = Gathering(source, clock.wall())
    left = max(0.0, deadline - clock.monotonic())
    try:
        async with asyncio.timeout(left):
            await ask(into)
    except TimeoutError:
        into.lack(f"not done within {left:.1f} s; give it more time, fewer types or fewer regions")
    except ProviderError as exc:
        into.lack(str(exc))
    return into.answer()


async def each(
    things: Iterable[T], at_once: int, into: Gathering, ask: Callable[[T], Awaitable[None]]
) -> None:
    """``ask`` each thing, a few at once. One that fails is a lack and stops none of the others."""
    door = asyncio.Semaphore(at_once)

    async def one(thing: T) -> None:
        async with door:
            try:
                await ask(thing)
            except ProviderError as exc:
                into.lack(str(exc))

    async with asyncio.TaskGroup() as group:
        for thing in things:
            group.create_task(one(thing))


def types_for(provider: str, want: Want) -> tuple[str, ...]:
    """The instance types to ask ``provider`` for, sorted; none where those wanted are all others'."""
    if not want.instance_types:
        return catalogue.of_provider(provider)
    return tuple(sorted({name for name in want.instance_types if _TYPES[provider].fullmatch(name)}))


def regions_for(provider: str, want: Want) -> tuple[str, ...] | None:
    """The regions to ask for, sorted: () for all of them, None where those wanted are all others'."""
    found = tuple(sorted({name for name in want.regions if _REGIONS[provider].fullmatch(name)}))
    return None if want.regions and not found else found


def is_instance_type(name: str) -> bool:
    """Whether ``name`` is written as some provider writes its instance types."""
    return any(pattern.fullmatch(name) for pattern in _TYPES.values())
