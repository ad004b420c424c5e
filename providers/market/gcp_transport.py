"""What google-auth sends its own requests by; `requests`, its usual choice, is not among our needs.

Imported only where google-auth is installed. Calls block: they run in a thread.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from google.auth import exceptions, transport

TRY_S = 10.0
MAX_BODY = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Fetched:
    status: int
    headers: Mapping[str, str]
    data: bytes


class Answer(transport.Response):
    """A complete answer, as google-auth reads it."""

    def __init__(self, fetched: _Fetched) -> None:
        self._fetched = fetched

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._fetched.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""
        return self._fetched.headers

    @property
    def data(self) -> bytes:
        """The body."""
        return self._fetched.data


class Transport(transport.Request):
    """One request, no redirects, bounded in time and size."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_more: Any,
    ) -> Answer:
        """The answer, whatever its status. Raises google-auth's TransportError."""
        try:
            return Answer(_fetch(url, method, body, dict(headers or {}), min(timeout or TRY_S, TRY_S)))
        except (OSError, HTTPException, ValueError) as exc:
            failed: Exception = exceptions.TransportError(type(exc).__name__)  # type: ignore[no-untyped-call]
            raise failed from exc


def _fetch(url: str, method: str, body: bytes | None, headers: dict[str, str], timeout: float) -> _Fetched:
    """Plain http is only the metadata server's, and never goes by a proxy."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("no http(s) address")
    asked = urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310 - checked above
    proxies: dict[str, str] | None = {} if url.startswith("http://") else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _NoRedirect)
    try:
        with opener.open(asked, timeout=timeout) as answer:
            return _Fetched(answer.status, dict(answer.headers.items()), answer.read(MAX_BODY))
    except urllib.error.HTTPError as exc:
        with exc:
            return _Fetched(exc.code, dict(exc.headers.items()), exc.read(MAX_BODY))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A credential goes where it was meant for."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        """Follow nothing."""
