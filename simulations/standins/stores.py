"""The way to an object store that is really there: it can refuse, throttle, cut and alter, and it counts.

``gcs`` makes a server of S3's protocol out as Google's: their XML interfaces differ in the headers alone.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

import aiohttp
from aiohttp import web
from yarl import URL

from outlast.simulations.standins.listening import Listening

Headers = dict[str, str]
Translate = Callable[[str, Mapping[str, str]], tuple[str, Headers]]
_HOP = {"host", "connection", "transfer-encoding", "content-length", "keep-alive", "expect"}
_REFUSAL = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{}</Code><Message>as told</Message></Error>"
# A server that checks no signature still wants to see one before it lets anybody read.
_SOMEBODY = (
    "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
)
_OWN_HEADERS = ("Content-Type", "Accept", "Accept-Encoding", "User-Agent")
_CODES = {403: "AccessDenied", 429: "SlowDown", 503: "SlowDown", 500: "InternalError"}


@dataclass
class Fault:
    """What happens to the next ``times`` requests that ``fits`` takes: their method and path.

    ``status`` is answered instead of the store's; without one the connection is cut, or with ``alter`` a byte
    of the body is changed (of the answer, for a GET), or with ``hang`` nothing is ever answered.
    """

    times: int
    status: int | None = None
    alter: bool = False
    hang: bool = False
    fits: Callable[[str, str], bool] = field(default=lambda _method, _path: True)


def as_it_is(target: str, headers: Mapping[str, str]) -> tuple[str, Headers]:
    """The request's target and headers, for a server that speaks the protocol itself."""
    return target, dict(headers)


def gcs(target: str, headers: Mapping[str, str]) -> tuple[str, Headers]:
    """A request for Google Cloud Storage as one for S3."""
    told = {name.lower(): value for name, value in headers.items()}
    told["authorization"] = _SOMEBODY
    if told.pop("x-goog-if-generation-match", None) == "0":
        told["if-none-match"] = "*"
    if "x-goog-copy-source" in told:
        told["x-goog-copy-source"] = _plain(told["x-goog-copy-source"])
    path, mark, query = target.partition("?")
    return _plain(path) + mark + query, {name.replace("x-goog-", "x-amz-"): v for name, v in told.items()}


def _plain(path: str) -> str:
    """Google's clients write every sign of a name as a number, slashes too; S3 wants to see the slashes."""
    return quote(unquote(path), safe="/")


class Way(Listening):
    """Forwards a loopback port to ``upstream``. ``requests``: method, path with query, status.

    ``keys``: how requests were signed; ``headers``: the names of all headers that were seen.
    """

    # What is on its way to the store arrives there, as it would without us.
    gives_up = False
    patience_s = 0.5

    def __init__(self, upstream: str, translate: Translate = as_it_is) -> None:
        super().__init__()
        self.upstream = upstream
        self._translate = translate
        self._session: aiohttp.ClientSession | None = None
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, int]] = []
        self.keys: set[str] = set()
        self.headers: set[str] = set()
        self.bytes_in = 0
        self._over = asyncio.Event()

    def application(self) -> web.Application:
        """See Listening."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{key:.*}", self._handle)
        return app

    def let_go(self) -> None:
        """See Listening."""
        self._over.set()

    async def start(self) -> None:
        """See Listening."""
        self._session = aiohttp.ClientSession(auto_decompress=False)
        await super().start()

    async def close(self) -> None:
        """See Listening."""
        await super().close()
        if self._session is not None:
            await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.keys.add(request.headers.get("Authorization", ""))
        self.headers.update(name.lower() for name in request.headers)
        fault = self._fault(request)
        if fault is not None and fault.hang:
            await self._over.wait()
            return self._cut(request)
        if fault is not None and fault.status is not None:
            return self._note(request, _refusal(fault.status))
        if fault is not None and not fault.alter:
            return self._cut(request)
        self.bytes_in += len(body)
        altered = fault is not None and request.method in {"PUT", "POST"}
        response = await self._forward(request, _altered(body) if altered else body)
        if fault is not None and not altered:
            response.body = _altered(response.body if isinstance(response.body, bytes) else b"")
        return self._note(request, response)

    def _fault(self, request: web.Request) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.fits(request.method, request.raw_path):
                fault.times -= 1
                return fault
        return None

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        assert self._session is not None
        target, told = self._translate(request.raw_path, request.headers)
        headers = {name: value for name, value in told.items() if name.lower() not in _HOP}
        url = URL(self.upstream + target, encoded=True)
        async with self._session.request(
            request.method,
            url,
            headers=headers,
            data=io.BytesIO(body) if body else None,
            allow_redirects=False,
            skip_auto_headers=_OWN_HEADERS,
        ) as answer:
            data = await answer.read()
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            if request.method == "HEAD":
                kept["Content-Length"] = answer.headers.get("Content-Length", "0")
            return web.Response(status=answer.status, headers=kept, body=data)

    def _cut(self, request: web.Request) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return self._note(request, web.Response(status=500))

    def _note(self, request: web.Request, response: web.Response) -> web.Response:
        self.requests.append((request.method, request.raw_path, response.status))
        return response


def _refusal(status: int) -> web.Response:
    text = _REFUSAL.format(_CODES.get(status, "Refused"))
    return web.Response(status=status, text=text, content_type="application/xml")


def _altered(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :] if body else body
