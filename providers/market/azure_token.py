"""A token for Azure Resource Manager: from AZURE_ACCESS_TOKEN, or of the machine's managed identity.

Endpoint "azure-identity" replaces the metadata address.
"""

from __future__ import annotations

import asyncio

from outlast.providers.base import ProviderError
from outlast.providers.http import MetadataClient
from outlast.providers.market.base import Access
from outlast.providers.market.reading import decode_object, number

IDENTITY = "http://169.254.169.254"
PATH = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F"
TRY_S = 3.0
EARLY_S = 300.0
HOW = "set AZURE_ACCESS_TOKEN (az account get-access-token --query accessToken -o tsv)"


class AzureToken:
    """The token, asked for once and renewed five minutes before it ends."""

    def __init__(self, access: Access) -> None:
        self._environ = access.environ
        self._clock = access.clock
        self._identity = MetadataClient(access.endpoints.get("azure-identity", IDENTITY), access.clock)
        self._value = ""
        self._ends = float("-inf")
        self._lock = asyncio.Lock()

    async def headers(self, deadline: float) -> dict[str, str]:
        """The header that carries the token. Raises ProviderError, which says how to give one."""
        return {"Authorization": f"Bearer {await self._get(deadline)}"}

    async def close(self) -> None:
        """Release the connections."""
        await self._identity.close()

    async def _get(self, deadline: float) -> str:
        given = self._environ.get("AZURE_ACCESS_TOKEN", "").strip()
        if given:
            return checked(given)
        async with self._lock:
            if self._clock.monotonic() >= self._ends - EARLY_S:
                await self._renew(min(deadline, self._clock.monotonic() + TRY_S))
            return self._value

    async def _renew(self, deadline: float) -> None:
        try:
            reply = await self._identity.get(PATH, deadline=deadline, headers={"Metadata": "true"})
            if reply.status != 200:
                raise ProviderError(f"HTTP {reply.status}")
            body = decode_object(reply.body, "the identity endpoint")
        except ProviderError as exc:
            raise ProviderError(f"no token for Azure, and no managed identity here; {HOW}") from exc
        self._value = checked(body.get("access_token"))
        left = number(body.get("expires_in"))
        self._ends = self._clock.monotonic() + (float(left) if left is not None else 0.0)


def checked(token: object) -> str:
    """A token that can be a header's value. Raises ProviderError, which does not show it."""
    text = token if isinstance(token, str) else ""
    if not text.isascii() or not text.isprintable() or " " in text or not 0 < len(text) <= 16_384:
        raise ProviderError(f"the token for Azure is no token; {HOW}")
    return text
