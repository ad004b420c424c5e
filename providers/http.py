"""The one HTTP client for metadata endpoints: no proxies, no redirects, bounded bodies, every try bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import aiohttp
from yarl import URL

from outlast.providers.base import Clock, ProviderError

MAX_BODY = 64 * 1024
# A node's clock that differs less than this from the endpoint's is believed: `Date` has whole seconds only.
SKEW_S = 5.0


class ThrottledError(ProviderError):
    """The endpoint asks for fewer requests."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer; ``headers`` have lower-case names, ``wall`` is now as the endpoint knows it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    wall: float

    def text(self) -> str:
        """The body as text, stripped; bytes that are not UTF-8 become U+FFFD."""
        return self.body.decode("utf-8", "replace").strip()


class MetadataClient:
    """Requests to one endpoint. Whatever keeps it from answering is a ProviderError of one line."""

    def __init__(self, endpoint: str, clock: Clock) -> None:
        self._base = _base(endpoint)
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def get(self, path: str, *, deadline: float, headers: Mapping[str, str] | None = None) -> Reply:
        """GET ``path`` (query included) before ``deadline``, monotonic seconds of the injected clock."""
        return await self.request("GET", path, deadline=deadline, headers=headers)

    async def request(
        self,
        method: str,
        path: str,
        *,
        deadline: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """One request, one complete answer. ThrottledError for 429, ProviderError for no usable answer."""
        left = max(0.0, deadline - self._clock.monotonic())
        name = f"{method} {path.partition('?')[0]}"
        try:
            async with asyncio.timeout(left):
                reply = await self._ask(method, path, headers, body)
        except TimeoutError as exc:
            raise ProviderError(f"{name}: no answer within {left:.1f} s") from exc
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise ProviderError(f"{name}: {_reason(exc)}") from exc
        if 300 <= reply.status < 400:
            raise ProviderError(f"{name}: HTTP {reply.status}, a redirect, is not followed")
        if reply.status == 429:
            raise ThrottledError(f"{name}: HTTP 429, too many requests")
        return reply

    async def close(self) -> None:
        """Close the connections; requests fail from now on."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _ask(
        self, method: str, path: str, headers: Mapping[str, str] | None, body: bytes | None
    ) -> Reply:
        url = URL(self._base + path, encoded=True)
        asked = self._open().request(method, url, headers=headers, data=body, allow_redirects=False)
        async with asked as answer:
            content = await _bounded(answer)
            named = {key.lower(): value for key, value in answer.headers.items()}
            return Reply(answer.status, named, content, self._wall(named.get("date")))

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ProviderError("the provider is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=8),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"User-Agent": "outlast", "Accept-Encoding": "identity"},
                skip_auto_headers=("Accept", "Content-Type"),
            )
        return self._session

    def _wall(self, date: str | None) -> float:
        """Times in a body are the endpoint's: where clocks differ, its `Date` counts."""
        here = self._clock.wall()
        try:
            there = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError, OverflowError, IndexError):
            return here
        return here if abs(there - here) < SKEW_S else there


def _base(endpoint: str) -> str:
    try:
        url = URL(endpoint)
        good = url.scheme in {"http", "https"} and bool(url.host) and url.port is not None
    except ValueError:
        good = False
    if not good:
        raise ProviderError(f"the endpoint {endpoint!r} is not an http:// or https:// address; correct it")
    return endpoint.rstrip("/")


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    content = b""
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) > MAX_BODY:
            answer.close()
            raise ProviderError(f"{answer.method} {answer.url.path}: the answer exceeds {MAX_BODY} bytes")
    return content


def _reason(exc: Exception) -> str:
    if isinstance(exc, aiohttp.ServerDisconnectedError):
        return "the connection was dropped"
    if isinstance(exc, aiohttp.ClientPayloadError):
        return "the answer broke off"
    lines = str(exc).splitlines()
    return lines[0][:200] if lines else type(exc).__name__
