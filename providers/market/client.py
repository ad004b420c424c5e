"""The HTTP client for public price interfaces: bounded, paced, patient until the deadline, and discreet.

Proxies of the environment are used; redirects are never followed, so that a token goes where it was meant
for and nowhere else. Errors name method and path, never a query, a header or a body that was sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
from yarl import URL

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Access
from outlast.providers.market.pace import Pace
from outlast.providers.parse import printable

MAX_BODY = 64 * 1024 * 1024
TRIES = 5
FIRST_PAUSE_S = 0.5
PASSING = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer; header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class PassingError(ProviderError):
    """It may work the next time; ``after_s`` is how long the endpoint asks to wait, None if it does not."""

    def __init__(self, text: str, after_s: float | None = None) -> None:
        super().__init__(text)
        self.after_s = after_s


class PublicClient:
    """Requests to one public interface; at least ``apart_s`` seconds lie between any two.

    ``max_body`` bounds an answer after decompression.
    """

    def __init__(
        self,
        access: Access,
        *,
        apart_s: float = 0.0,
        pause_s: float = FIRST_PAUSE_S,
        max_body: int = MAX_BODY,
    ) -> None:
        self._clock = access.clock
        self._sleep = access.sleep
        self._pace = Pace(access, apart_s)
        self._pause_s = pause_s
        self._max_body = max_body
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def get(
        self,
        url: str,
        *,
        deadline: float,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """GET ``url``, tried again on passing trouble until ``deadline``. Raises ProviderError."""
        return await self._patiently("GET", url, deadline, query, headers, None)

    async def post(
        self,
        url: str,
        body: Any,
        *,
        deadline: float,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """POST ``body`` as JSON; only for requests that change nothing. Raises ProviderError."""
        content = json.dumps(body).encode()
        told = {"Content-Type": "application/json", **(headers or {})}
        return await self._patiently("POST", url, deadline, query, told, content)

    async def close(self) -> None:
        """Close the connections; requests fail from now on."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _patiently(
        self,
        method: str,
        url: str,
        deadline: float,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        content: bytes | None,
    ) -> Reply:
        address = _address(url, query)
        pause = self._pause_s
        for left in range(TRIES - 1, -1, -1):
            await self._pace.turn(deadline)
            try:
                return await self._once(method, address, deadline, headers, content)
            except PassingError as exc:
                wait = pause if exc.after_s is None else max(exc.after_s, 0.0)
                if not left or self._clock.monotonic() + wait >= deadline:
                    raise
                await self._sleep(wait)
                pause *= 2
        raise AssertionError("unreachable")

    async def _once(
        self,
        method: str,
        url: URL,
        deadline: float,
        headers: Mapping[str, str] | None,
        content: bytes | None,
    ) -> Reply:
        name = f"{method} {url.host}{printable(url.path, 80)}"
        left = max(0.0, deadline - self._clock.monotonic())
        try:
            async with asyncio.timeout(left):
                reply = await self._ask(name, method, url, headers, content)
        except TimeoutError as exc:
            raise ProviderError(f"{name}: no answer within {left:.1f} s") from exc
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            raise PassingError(f"{name}: {_reason(exc)}") from exc
        return self._checked(name, reply)

    def _checked(self, name: str, reply: Reply) -> Reply:
        if 300 <= reply.status < 400:
            raise ProviderError(f"{name}: HTTP {reply.status}, a redirect, is not followed")
        if reply.status in PASSING:
            after = self._retry_after(reply.headers.get("retry-after", ""))
            told = "" if after is None else f"; it asks to wait {after:.0f} s"
            why = ", too many requests" if reply.status == 429 else ""
            raise PassingError(f"{name}: HTTP {reply.status}{why}{told}", after)
        if reply.status in {401, 403}:
            raise ProviderError(f"{name}: HTTP {reply.status}; the credentials are missing or not accepted")
        if reply.status != 200:
            raise ProviderError(f"{name}: HTTP {reply.status}")
        return reply

    async def _ask(
        self, name: str, method: str, url: URL, headers: Mapping[str, str] | None, content: bytes | None
    ) -> Reply:
        session, proxy = self._open(), proxy_for(url)
        asked = session.request(
            method, url, headers=headers, data=content, allow_redirects=False, proxy=proxy
        )
        async with asked as answer:
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > self._max_body:
                    answer.close()
                    raise ProviderError(f"{name}: the answer exceeds {self._max_body} bytes")
            named = {key.lower(): value for key, value in answer.headers.items()}
            return Reply(answer.status, named, bytes(body))

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise ProviderError("the source is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                trust_env=False,  # it would read ~/.netrc too, and send what is there
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=8, limit_per_host=4),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
                headers={"User-Agent": "outlast", "Accept": "application/json"},
            )
        return self._session

    def _retry_after(self, text: str) -> float | None:
        """Seconds of a Retry-After header: a number of them, or a date."""
        if text.isascii() and text.isdigit() and len(text) <= 9:
            return float(text)
        try:
            return max(0.0, parsedate_to_datetime(text).timestamp() - self._clock.wall())
        except (ValueError, TypeError, OverflowError, IndexError):
            return None


def proxy_for(url: URL) -> str | None:
    """The proxy that the environment names for an address, unless NO_PROXY excepts its host."""
    proxy = getproxies_environment().get(url.scheme)
    if not proxy or (url.host and proxy_bypass(f"{url.host}:{url.port}")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def same_origin(url: str, other: str) -> bool:
    """Whether two addresses have one scheme, host and port: whether a next page may be asked for there."""
    try:
        one, two = URL(url), URL(other)
        return (one.scheme, one.host, one.port) == (two.scheme, two.host, two.port)
    except ValueError:
        return False


def _address(url: str, query: Mapping[str, str] | None) -> URL:
    try:
        address = URL(url)
        if address.scheme not in {"http", "https"} or not address.host:
            raise ValueError
    except ValueError as exc:
        raise ProviderError(f"{printable(url.partition('?')[0], 80)!r} is no http(s) address") from exc
    return address.update_query(query) if query else address


def _reason(exc: Exception) -> str:
    """Why it failed, in words of our own: an exception's text may hold an address with a query."""
    if isinstance(exc, aiohttp.ClientConnectorError):
        return f"no connection ({exc.os_error.strerror or type(exc.os_error).__name__})"
    if isinstance(exc, aiohttp.ServerDisconnectedError):
        return "the connection was dropped"
    if isinstance(exc, aiohttp.ClientPayloadError):
        return "the answer broke off"
    return type(exc).__name__
