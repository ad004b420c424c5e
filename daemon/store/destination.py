"""A store as one destination of one job: whether it can be used, what it has, and what can be asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from outlast.daemon.checkpoint.arriving import CannotLand
from outlast.daemon.checkpoint.destinations import IO, Progress, Refused, Shipped, Unreachable
from outlast.daemon.store import download, listing
from outlast.daemon.store.apart import apart
from outlast.daemon.store.durable import check_folder
from outlast.daemon.store.prune import prune
from outlast.daemon.store.target import StoreSettings, StoreUnusable, Target, open_target
from outlast.daemon.store.upload import upload
from outlast.providers.base import Clock
from outlast.wire.manifest import Manifest
from outlast.wire.store import Committed

__all__ = ["StoreDestination", "StoreSettings", "StoreState"]

T = TypeVar("T")
# A store that answered is asked again this often whether it still does; one that did not, sooner.
_LOOK_S = 300.0
# A folder that is there says so at once, unless its server is gone.
_REACH_S = 8.0
_BACKOFF_S = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)


@dataclass(frozen=True)
class StoreState:
    """The store as last heard. ``reachable`` is None until tried; ``newest`` is (epoch, tag, step).

    ``since`` is the monotonic second ``reachable`` took its value.
    """

    reachable: bool | None
    because: str
    newest: tuple[int, str, int] | None
    since: float


class StoreDestination:
    """One store of one job. Every request raises Unreachable or Refused, and leaves why in ``state``.

    ``on_change`` is called, in the event loop, whenever ``state`` has a new value.
    """

    def __init__(self, settings: StoreSettings, job: str, clock: Clock) -> None:
        self.settings = settings
        self._job = job
        self._clock = clock
        self._target: Target | None = None
        self._looking: asyncio.Future[Target] | None = None
        self._busy: str | None = None
        self.state = StoreState(None, "not tried yet", None, clock.monotonic())
        self.on_change: Callable[[StoreState], None] | None = None

    @property
    def name(self) -> str:
        """Its address, for records and messages."""
        return str(self.settings.address)

    async def run(self) -> None:
        """Keep ``state`` true, until cancelled: ask, and ask again sooner while there is no answer."""
        failures = 0
        while True:
            try:
                await self.newest()
            except (Unreachable, Refused):
                failures += 1
            else:
                failures = 0
            await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S)) - 1] if failures else _LOOK_S)

    async def newest(self) -> tuple[int, str, int] | None:
        """Ask for the newest whole checkpoint: (epoch, tag, step)."""
        found = await self._asking(listing.newest)
        place = (found.epoch, found.name, found.order[1]) if found else None
        self._heard(reachable=True, because="", newest=place)
        return place

    async def ship(
        self, committed: Committed, progress: Progress | None = None, *, deadline: float | None = None
    ) -> Shipped:
        """Have a checkpoint committed there, sending only what it lacks; can be cancelled at any time.

        ``progress`` is called with bytes there and bytes in all. Without a ``deadline`` (monotonic) one try
        is made; with one, tries follow each other until then, and at it Unreachable is raised. A file that is
        damaged here is not sent: Refused with code ``damaged``.
        """
        began = self._clock.monotonic()
        self._busy = committed.tag
        try:
            sent = await self._in_time(deadline, lambda: self._ship(committed, progress))
        finally:
            self._busy = None
        self._note_newest((committed.epoch, committed.tag, committed.step))
        return Shipped(sent, committed.manifest.total_bytes, self._clock.monotonic() - began)

    async def fetch(self, store: Path, progress: Progress | None = None) -> tuple[Committed, int] | None:
        """Have its newest whole checkpoint committed in a local store, and the bytes that came; None if it
        has none."""

        async def bring(target: Target) -> tuple[Committed, int] | None:
            found = await listing.newest(target)
            manifest = found.manifest if found else None
            return await download.fetch(target, manifest, store, progress) if manifest else None

        return await self._asking(bring)

    async def held(self) -> list[tuple[Manifest, str]]:
        """Its newest committed checkpoints, each with what is wrong with it, or an empty text."""
        return await self._asking(listing.held)

    async def fetch_one(
        self, manifest: Manifest, store: Path, progress: Progress | None = None, near: Sequence[Path] = ()
    ) -> tuple[Committed, int]:
        """Have one of those ``held`` committed in a local store, and the bytes that came."""
        return await self._asking(lambda target: download.fetch(target, manifest, store, progress, near))

    async def prune(self, keep: int | None = None) -> list[str]:
        """Delete there what is no longer needed; one sentence for each."""
        wanted = self.settings.keep if keep is None else keep
        return await self._asking(lambda target: prune(target, wanted, self._busy, self._clock.wall()))

    async def _ship(self, committed: Committed, progress: Progress | None) -> int:
        return await self._asking(lambda target: upload(target, committed, self._clock.wall(), progress))

    async def _in_time(self, deadline: float | None, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if deadline is None:
            return await work()
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                return await self._again_and_again(work)
        except TimeoutError:
            if self.state.reachable is None:
                self._heard(reachable=False, because=f"{self.name} does not answer")
            because = self.state.because or "the bytes did not all arrive"
            raise Unreachable(f"{self.name} did not have it in time: {because}") from None

    async def _again_and_again(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        failures = 0
        while True:
            try:
                return await work()
            except Unreachable:
                await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
                failures += 1

    async def _asking(self, work: Callable[[Target], Coroutine[Any, Any, T]]) -> T:
        """Do ``work``; what it says of the store's health is heard."""
        try:
            target = await self._reach()
            result = await work(target)
        except Unreachable as exc:
            self._heard(reachable=False, because=str(exc))
            raise
        except Refused as exc:
            # What is wrong with the checkpoint, or with this node, says nothing about the store.
            if exc.code not in {"damaged", "taken"} and not isinstance(exc, CannotLand):
                self._heard(reachable=False, because=exc.because)
            raise
        self._heard(reachable=True, because="")
        return result

    async def _reach(self) -> Target:
        """The store, if it is there. All who ask wait for one look: a dead mount holds one thread."""
        if self._looking is None or self._looking.done():
            self._looking = apart(self._look)
        try:
            async with asyncio.timeout(_REACH_S):
                return await asyncio.shield(self._looking)
        except TimeoutError:
            raise Unreachable(f"{self.name} has not answered for {_REACH_S:g} s: is it mounted?") from None

    def _look(self) -> Target:
        try:
            self._target = self._target or open_target(self.settings, self._job)
        except StoreUnusable as exc:
            raise Refused(IO, str(exc)) from None
        check_folder(self._target)
        return self._target

    def _note_newest(self, place: tuple[int, str, int]) -> None:
        known = self.state.newest
        if known is None or (place[0], place[2]) >= (known[0], known[2]):
            self._heard(reachable=True, because="", newest=place)

    def _heard(self, *, reachable: bool, because: str, **more: Any) -> None:
        since = self.state.since if reachable == self.state.reachable else self._clock.monotonic()
        new = replace(self.state, reachable=reachable, because=because, since=since, **more)
        if new != self.state:
            self.state = new
            if self.on_change:
                self.on_change(new)
