"""Google Cloud Spot: `instance/preempted` and `maintenance-event`, each followed by long poll."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass

from outlast.providers import parse
from outlast.providers.base import (
    Action,
    Clock,
    Hint,
    Identity,
    Notice,
    Options,
    ProviderError,
    Sighting,
    Unknown,
    View,
)
from outlast.providers.http import MetadataClient, Reply
from outlast.providers.polling import Deadlines, Sleep

ENDPOINT = "http://169.254.169.254"
ROOT = "/computeMetadata/v1/instance/"
FLAVOR = {"Metadata-Flavor": "Google"}
NOTICE_S = 30.0
TRY_S = 2.0
IDENTIFY_S = 5.0
# How long one hang lasts: also how long a connection that died silently can go unnoticed.
HANG_S = 10
RETRY_S = 0.05

PREEMPTED = "preempted"
MAINTENANCE = "maintenance-event"
_VALUES = {
    PREEMPTED: ("TRUE", "FALSE"),
    MAINTENANCE: ("NONE", "MIGRATE_ON_HOST_MAINTENANCE", "TERMINATE_ON_HOST_MAINTENANCE"),
}


@dataclass(frozen=True, slots=True)
class _Told:
    """What one key said at ``at``: its value, or why there is none."""

    key: str
    at: float
    value: str = ""
    because: str = ""


class Gcp:
    """Sees a change as the endpoint makes it; otherwise a sighting each 10 s. The flag carries no time:
    the deadline is the first sighting plus ``notice_s`` (30 s, or what the deployment configured)."""

    name = "gcp"
    can_acknowledge = False

    def __init__(
        self, options: Options, clock: Clock, sleep: Sleep = asyncio.sleep, *, hang_s: int = HANG_S
    ) -> None:
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._hang_s = hang_s
        self._notice_s = NOTICE_S if options.notice_s is None else options.notice_s
        self._client = MetadataClient(options.endpoint or ENDPOINT, clock)
        self._deadlines = Deadlines()
        self._me: str | None = None

    async def identify(self) -> Identity:
        """Who this node is. Raises ProviderError."""
        deadline = self._clock.monotonic() + IDENTIFY_S
        instance = parse.name(await self._word("id", deadline), "id")
        name, zone, kind = [
            parse.name((await self._word(key, deadline)).rpartition("/")[2], key)
            for key in ("name", "zone", "machine-type")
        ]
        spot = {"TRUE": True, "FALSE": False}.get(await self._word("scheduling/preemptible", deadline))
        region = zone.rpartition("-")[0]
        self._me = instance
        return Identity("gcp", region, zone, "", kind, instance, name, spot)

    async def watch(self) -> AsyncGenerator[Sighting, None]:
        """A sighting at once, at every change, and each time a hang ends without one."""
        told: asyncio.Queue[_Told] = asyncio.Queue(maxsize=16)
        tasks = [asyncio.create_task(self._follow(key, told), name=key) for key in (PREEMPTED, MAINTENANCE)]
        last: dict[str, _Told] = {}
        try:
            while True:
                news = await _next(told, tasks)
                if news.key == MAINTENANCE and news.because:
                    continue
                last[news.key] = news
                flag = last.get(PREEMPTED)
                if flag is None or (flag.because and news.key != PREEMPTED):
                    continue
                yield await self._sighting(flag, last.get(MAINTENANCE), news.at)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def acknowledge(self, notice_id: str) -> None:
        """Nothing: Google takes no acknowledgement."""

    async def close(self) -> None:
        """Release the connections."""
        await self._client.close()

    async def _sighting(self, flag: _Told, maintenance: _Told | None, at: float) -> Sighting:
        if flag.because:
            return Unknown(at, flag.because)
        hints: tuple[Hint, ...] = ()
        if maintenance is not None and maintenance.value != "NONE":
            kind = f"gcp-{maintenance.value.lower()}"
            hints = (Hint(kind, "maintenance", MAINTENANCE, maintenance.value),)
        if flag.value != "TRUE":
            return View(at, self._deadlines.settle(()), hints)
        self._me = self._me or await self._own_id(RETRY_S) or "self"
        notice = Notice(f"gcp-{self._me}-preempted", Action.TERMINATE, at + self._notice_s, PREEMPTED, "TRUE")
        return View(at, self._deadlines.settle((notice,)), hints)

    async def _own_id(self, within_s: float) -> str | None:
        with suppress(ProviderError):
            return parse.name(await self._word("id", self._clock.monotonic() + within_s), "id")
        return None

    async def _follow(self, key: str, told: asyncio.Queue[_Told]) -> None:
        """Read ``key`` once, then hang on it; after an error start over, quickly at first."""
        etag, value, failures = "", "", 0
        while True:
            began = self._clock.monotonic()
            try:
                reply = await self._read(key, etag)
                news = _Told(key, self._clock.monotonic(), _value(key, reply))
            except ProviderError as exc:
                failures += 1
                await told.put(_Told(key, self._clock.monotonic(), because=str(exc)))
                etag = ""
                await self._sleep(self._pause(failures))
                continue
            failures = 0
            await told.put(news)
            if key == PREEMPTED and self._me is None:
                self._me = await self._own_id(TRY_S)
            hung = bool(etag) and (news.value != value or news.at - began > self._hang_s / 2)
            first = not etag and bool(_etag(reply))
            etag, value = _etag(reply), news.value
            # An endpoint that does not hang is polled; this must never become a tight loop.
            if not hung and not first:
                await self._sleep(max(0.0, began + self._options.poll_s - news.at))

    def _pause(self, failures: int) -> float:
        longest = min(max(self._options.poll_s, RETRY_S), RETRY_S * 2 ** min(failures, 10))
        return random.uniform(longest / 2, longest)  # noqa: S311 - jitter, no secret

    async def _read(self, key: str, etag: str) -> Reply:
        if not etag:
            return await self._get(key, self._clock.monotonic() + TRY_S)
        wait = f"?wait_for_change=true&timeout_sec={self._hang_s}&last_etag={etag}"
        return await self._get(key + wait, self._clock.monotonic() + self._hang_s + TRY_S)

    async def _word(self, key: str, deadline: float) -> str:
        reply = await self._get(key, deadline)
        return reply.text() if reply.status == 200 else ""

    async def _get(self, key: str, deadline: float) -> Reply:
        """200 or 404 from Google's own server; everything else is a ProviderError."""
        reply = await self._client.get(ROOT + key, deadline=deadline, headers=FLAVOR)
        what = key.partition("?")[0]
        if reply.status not in {200, 404}:
            raise ProviderError(f"{what}: HTTP {reply.status}")
        if reply.headers.get("metadata-flavor") != "Google":
            raise ProviderError(f"{what}: the answer is not from Google's metadata server")
        return reply


async def _next(told: asyncio.Queue[_Told], tasks: list[asyncio.Task[None]]) -> _Told:
    """The next word from a follower; a follower's bug is raised here instead of starving the watch."""
    getting = asyncio.ensure_future(told.get())
    try:
        await asyncio.wait({getting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        return await getting
    finally:
        getting.cancel()


def _etag(reply: Reply) -> str:
    etag = reply.headers.get("etag", "")
    return etag if etag.isalnum() and etag.isascii() and len(etag) <= 128 else ""


def _value(key: str, reply: Reply) -> str:
    """The exact value of ``key``. Raises ProviderError for anything else, HTML for one."""
    text = reply.text()
    if key == MAINTENANCE and reply.status == 404:
        return "NONE"
    if reply.status != 200 or text not in _VALUES[key]:
        raise ProviderError(f"{key}: HTTP {reply.status}, value {parse.printable(text, 40)!r} not understood")
    return text
