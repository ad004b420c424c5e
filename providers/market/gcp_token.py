"""A token for Google's interfaces: from GOOGLE_OAUTH_ACCESS_TOKEN, or by google-auth in a thread.

google-auth finds credentials as every Google tool does. The project is GOOGLE_CLOUD_PROJECT, or the one
that the credentials name.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Access
from outlast.providers.market.reading import word

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
INSTALL = "google-auth is not installed: pip install 'outlast[gcp]'"
HOW = "run `gcloud auth application-default login`, or set GOOGLE_OAUTH_ACCESS_TOKEN"


class GcpToken:
    """The token and the project; google-auth keeps the token and renews it when it ends."""

    def __init__(self, access: Access) -> None:
        self._environ = access.environ
        self._clock = access.clock
        self._credentials: Any = None
        self._project = ""
        self._making = threading.Lock()

    async def headers(self, deadline: float) -> dict[str, str]:
        """The header that carries the token. Raises ProviderError, which says how to give one."""
        token = self._environ.get("GOOGLE_OAUTH_ACCESS_TOKEN", "").strip()
        if not token:
            token = await self._in_thread(self._renewed, deadline)
        if not token.isascii() or not token.isprintable() or " " in token or not 0 < len(token) <= 16_384:
            raise ProviderError(f"the token for Google is no token; {HOW}")
        return {"Authorization": f"Bearer {token}"}

    async def project(self, deadline: float) -> str:
        """The project to ask in. Raises ProviderError, which says how to name one."""
        named = self._environ.get("GOOGLE_CLOUD_PROJECT", "").strip()
        if not named and not self._environ.get("GOOGLE_OAUTH_ACCESS_TOKEN"):
            named = await self._in_thread(lambda: self._found()[1], deadline)
        project = word(named)
        if project is None or "/" in project:
            raise ProviderError("no Google Cloud project is known; set GOOGLE_CLOUD_PROJECT")
        return project

    async def _in_thread(self, work: Callable[[], str], deadline: float) -> str:
        left = max(0.0, deadline - self._clock.monotonic())
        try:
            async with asyncio.timeout(left):
                return await asyncio.to_thread(work)
        except TimeoutError as exc:
            raise ProviderError(f"no credentials for Google within {left:.1f} s") from exc

    def _renewed(self) -> str:
        with self._making:
            credentials = self._found()[0]
            from google.auth.exceptions import GoogleAuthError

            from outlast.providers.market.gcp_transport import Transport

            try:
                if not credentials.valid:
                    credentials.refresh(Transport())
            except (GoogleAuthError, ValueError) as exc:
                raise ProviderError(f"no token for Google ({type(exc).__name__}); {HOW}") from exc
            return str(credentials.token or "")

    def _found(self) -> tuple[Any, str]:
        try:
            import google.auth
            from google.auth.exceptions import GoogleAuthError
        except ImportError as exc:
            raise ProviderError(INSTALL) from exc
        if self._credentials is None:
            try:
                found, project = google.auth.default(scopes=[SCOPE])
            except (GoogleAuthError, OSError, ValueError) as exc:
                raise ProviderError(f"no credentials for Google ({type(exc).__name__}); {HOW}") from exc
            self._credentials, self._project = found, project or ""
        return self._credentials, self._project
