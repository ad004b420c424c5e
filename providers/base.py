"""The one interface every provider fulfils, and the values that cross it.

A provider tells two things: who this node is (``identify``) and, over and over, everything its endpoint
shows at this instant (``watch``). A view is complete: what is no longer in it has been withdrawn. Whatever
keeps the endpoint from answering is a value too, :class:`Unknown`; ``watch`` never raises for the weather.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class Clock(Protocol):
    """Injected time. ``monotonic`` for durations and deadlines, ``wall`` (UTC epoch seconds) for records."""

    def monotonic(self) -> float: ...
    def wall(self) -> float: ...


class SystemClock:
    """The machine's own clocks. ``monotonic`` is CLOCK_MONOTONIC: shared by all processes of one boot."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class Action(str, Enum):
    """What happens to the node at the deadline."""

    TERMINATE = "terminate"
    STOP = "stop"
    HIBERNATE = "hibernate"
    PAUSE = "pause"


class ProviderError(Exception):
    """The endpoint did not answer usefully; try again later. The text says what and why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Where this node is. ``zone_id`` is the account-independent zone where the provider has one."""

    provider: str
    region: str = ""
    zone: str = ""
    zone_id: str = ""
    instance_type: str = ""
    instance_id: str = ""
    name: str = ""
    spot: bool | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """The provider's word that this node goes. ``deadline`` is monotonic seconds of the injected clock."""

    id: str
    action: Action
    deadline: float
    source: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Hint:
    """An early, non-binding word. ``kind``: rebalance, maintenance, lifecycle, freeze, unknown…"""

    id: str
    kind: str
    source: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """All that the endpoint shows now. ``at`` is monotonic seconds."""

    at: float
    notices: tuple[Notice, ...] = ()
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class Unknown:
    """The endpoint could not be asked: neither interrupted nor safe. ``because`` is one line."""

    at: float
    because: str


Sighting = View | Unknown


@dataclass(frozen=True, slots=True)
class Options:
    """How to watch. ``poll_s`` seconds between polls; ``notice_s`` the budget where none is announced.

    ``notice_s`` None means the provider's own default. ``endpoint`` overrides the metadata address.
    ``own_name`` overrides the VM name that Azure events are filtered by.
    """

    endpoint: str | None = None
    poll_s: float = 1.0
    notice_s: float | None = None
    own_name: str | None = None
    extra: dict[str, str] = field(default_factory=dict)


class Provider(Protocol):
    """One provider. ``close`` releases its HTTP session; it is safe to call twice."""

    name: str
    can_acknowledge: bool

    async def identify(self) -> Identity:
        """Who this node is. Raises ProviderError when the endpoint does not answer."""
        ...

    def watch(self) -> AsyncIterator[Sighting]:
        """Sightings for ever, at most ``poll_s`` apart where polled, at once where long-polled."""
        ...

    async def acknowledge(self, notice_id: str) -> None:
        """Tell the provider to go on. Raises ProviderError; a no-op where ``can_acknowledge`` is False."""
        ...

    async def close(self) -> None: ...
