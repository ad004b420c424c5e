"""What a stand-in has been told to do, and the record of what happened to it and when."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from outlast.providers.base import Clock

KINDS = ("hang", "drop", "half", "html", "empty", "huge", "garbage", "redirect")


@dataclass(slots=True)
class Seen:
    """One request. ``status`` is None while it is unanswered, and stays so where it never was."""

    wall: float
    monotonic: float
    method: str
    path: str
    query: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The instant at which what the endpoint shows changed."""

    wall: float
    monotonic: float
    what: str
    detail: str = ""


@dataclass(slots=True)
class Fault:
    """A misbehaviour: ``count`` more times, or until ``until`` (monotonic), on paths holding ``path``."""

    kind: str
    count: int | None
    until: float | None
    path: str

    def spent(self, now: float) -> bool:
        """Whether it no longer applies."""
        return (self.count is not None and self.count <= 0) or (self.until is not None and now >= self.until)


@dataclass
class Script:
    """Faults to come, requests seen, changes made. ``bump`` wakes every hanging request."""

    clock: Clock
    on_request: Callable[[Seen], None] | None = None
    requests: deque[Seen] = field(default_factory=lambda: deque(maxlen=10_000))
    changes: list[Change] = field(default_factory=list)
    closing: bool = False
    _faults: list[Fault] = field(default_factory=list)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def misbehave(
        self, kind: str, *, count: int | None = None, for_s: float | None = None, path: str = ""
    ) -> None:
        """From now on answer wrongly: a status such as "503", or one of KINDS. Raises ValueError.

        ``count`` requests, or for ``for_s`` seconds; with neither, until ``behave``.
        """
        if kind not in KINDS and not (kind.isdigit() and 400 <= int(kind) <= 599):
            raise ValueError(
                f"kind {kind!r} is not known; give a status from 400 to 599 or {', '.join(KINDS)}"
            )
        until = None if for_s is None else self.clock.monotonic() + for_s
        self._faults.append(Fault(kind, count, until, path))
        self.changed("misbehave", f"{kind} {path}".strip())

    def behave(self) -> None:
        """Forget all misbehaviour; what hangs is let go."""
        self._faults.clear()
        self.changed("behave")

    def take(self, path: str, exempt: tuple[str, ...] = ()) -> Fault | None:
        """The fault this request meets, counted."""
        now = self.clock.monotonic()
        self._faults = [fault for fault in self._faults if not fault.spent(now)]
        for fault in self._faults:
            if fault.path in path and fault.kind not in exempt:
                fault.count = None if fault.count is None else fault.count - 1
                return fault
        return None

    def holds(self, fault: Fault) -> bool:
        """Whether a hanging request still hangs."""
        forgotten = fault.count is None and fault not in self._faults
        over = fault.until is not None and self.clock.monotonic() >= fault.until
        return not (forgotten or over or self.closing)

    def arrived(self, method: str, path: str, query: str) -> Seen:
        """Record a request."""
        seen = Seen(self.clock.wall(), self.clock.monotonic(), method, path, query)
        self.requests.append(seen)
        self.bump()
        return seen

    def answered(self, seen: Seen, status: int | None) -> None:
        """Record how a request ended."""
        seen.status = status
        if self.on_request is not None:
            self.on_request(seen)
        self.bump()

    def changed(self, what: str, detail: str = "") -> None:
        """Record a change and wake every hanging request."""
        self.changes.append(Change(self.clock.wall(), self.clock.monotonic(), what, detail))
        self.bump()

    def bump(self) -> None:
        """Wake every hanging request."""
        self._woken.set()
        self._woken = asyncio.Event()

    async def change(self, within_s: float) -> None:
        """Return at the next ``bump``, or after ``within_s`` seconds."""
        woken = self._woken
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                await woken.wait()
        except TimeoutError:
            return
