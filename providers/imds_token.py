"""The session token of AWS's metadata service, version 2."""

from __future__ import annotations

import asyncio

from outlast.providers.base import Clock, ProviderError
from outlast.providers.http import MetadataClient, ThrottledError

TOKEN_TTL_S = 21_600
TOKEN_EARLY_S = 300.0


class Token:
    """The session token of IMDSv2: asked for once, renewed before it ends, replaced when refused."""

    def __init__(self, client: MetadataClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._value = ""
        self._ends = 0.0
        self._lock = asyncio.Lock()

    async def get(self, deadline: float, *, refused: str | None = None) -> str:
        """A token, other than the one that was ``refused``. Raises ProviderError."""
        async with self._lock:
            left = self._ends - self._clock.monotonic()
            # Several requests may be refused together; the first one brings the new token for all.
            useless = not self._value or left <= 0 or self._value == refused
            if useless or left < TOKEN_EARLY_S:
                try:
                    await self._renew(deadline)
                except ProviderError:
                    if useless:
                        raise
            return self._value

    async def _renew(self, deadline: float) -> None:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        try:
            reply = await self._client.request("PUT", "/latest/api/token", deadline=deadline, headers=ttl)
        except ThrottledError:
            raise
        except ProviderError as exc:
            why = "in a container the instance needs HttpPutResponseHopLimit 2 or more"
            raise ProviderError(f"no IMDSv2 token: {exc}; {why}") from exc
        if reply.status == 403:
            raise ProviderError(
                "no IMDSv2 token: HTTP 403; the metadata service is disabled for this instance"
            )
        token = reply.text()
        if (
            reply.status != 200
            or not token.isascii()
            or not token.isprintable()
            or not 0 < len(token) <= 1024
        ):
            raise ProviderError(f"no IMDSv2 token: HTTP {reply.status}, {len(token)} characters")
        self._value = token
        self._ends = self._clock.monotonic() + TOKEN_TTL_S
