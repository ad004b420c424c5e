"""What a market source answers: prices in their own unit, risk figures each in its own, and what it lacks.

A source never raises for the weather: an endpoint that fails is an answer whose ``lacks`` says so. Figures
of different measures are never made into one another here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from outlast.providers.base import Clock, SystemClock

QuoteKind = Literal["spot", "min_bid", "on_demand"]
Measure = Literal[
    "reclaimed-per-month",  # AWS Spot Advisor: a band, percent of what, over a trailing month, is unstated
    "evicted-per-hour",  # Azure: a band, percent an hour over the trailing 28 days
    "preempted-of-stopped",  # GCP: a fraction of the Spot VMs that stopped running; no hazard
    "placement-score",  # AWS 1 to 10, Azure High 3, Medium 2, Low 1: success of a launch, not of a stay
    "obtainability",  # GCP capacity advice, 0 to 1
    "estimated-uptime",  # GCP capacity advice, seconds
    "stock",  # RunPod: High 3, Medium 2, Low 1
    "savings",  # AWS Spot Advisor: percent off on-demand, may be negative; no risk, but published beside one
]


@dataclass(frozen=True, slots=True)
class Want:
    """What is asked for; ``days`` back for histories, ``count`` instances for the chance of a launch.

    Empty ``regions`` ask for all, empty ``instance_types`` for all GPU types in the catalogue. Names that
    cannot be this provider's are not asked for.
    """

    instance_types: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    days: float = 30.0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Quote:
    """A price of one instance-hour from UTC ``at`` on, millionths of a US dollar for the whole instance.

    ``zone`` is the zone id where the provider has one, empty for a price that holds in the whole region.
    """

    provider: str
    region: str
    zone: str
    instance_type: str
    kind: QuoteKind
    micro_usd: int
    at: float
    source: str


@dataclass(frozen=True, slots=True)
class Risk:
    """One published figure. ``low`` to ``high`` in the measure's own unit; ``text`` as it was published."""

    provider: str
    region: str
    zone: str
    instance_type: str
    measure: Measure
    low: float
    high: float
    text: str
    at: float
    source: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What one source knows. ``at`` is when it was asked (UTC); ``lacks`` one line a missing thing.

    ``complete`` is False where something that the source does have could not be got this time.
    """

    source: str
    at: float
    quotes: tuple[Quote, ...] = ()
    risks: tuple[Risk, ...] = ()
    lacks: tuple[str, ...] = ()
    cached: bool = False
    complete: bool = True


Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Access:
    """How sources reach the world: ``environ`` holds credentials, ``endpoints`` replaces addresses by name.

    Each source's module says which names it knows.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    endpoints: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    sleep: Sleep = asyncio.sleep


class Source(Protocol):
    """One place where prices or risk figures come from."""

    name: str

    async def ask(self, want: Want, deadline: float) -> Answer:
        """All it knows of ``want`` before ``deadline`` (monotonic seconds). Never raises for the weather."""
        ...

    async def close(self) -> None:
        """Release connections and threads; safe to call twice. Asked afterwards, it lacks everything."""
        ...
