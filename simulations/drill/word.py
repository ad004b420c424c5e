"""The provider's word: a stand-in's process, told what to say through its admin paths."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp

from outlast.simulations.drill.sandbox import DrillError

# What each provider gives between its word and the end, in seconds.
NOTICE_S = {"aws": 120.0, "gcp": 30.0, "azure": 30.0}
_ANSWER_S = 5.0
_MOST = 2_000


@dataclass(frozen=True)
class Said:
    """A change of what the endpoint shows. ``mono`` is seconds of the clock all processes share, ``wall``
    UTC epoch seconds of the same instant."""

    what: str
    mono: float
    wall: float = 0.0


class Word:
    """A stand-in at ``url``. Every method raises DrillError if it does not answer, or refuses."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def answers(self) -> bool:
        """Whether the stand-in serves already."""
        try:
            await self.said()
        except DrillError:
            return False
        return True

    async def tell(self, what: str, **body: Any) -> Said:
        """Have it ``notice`` (action, in_s), ``withdraw``, ``hint`` (kind)… Returns the change."""
        await self._ask("POST", what, body)
        changes = await self.said()
        if not changes:
            raise DrillError(f"the stand-in at {self.url} took '{what}' and shows no change")
        return changes[-1]

    async def said(self) -> list[Said]:
        """All changes so far."""
        body = await self._ask("GET", "log")
        try:
            return [Said(str(c["what"]), float(c["monotonic"]), float(c["wall"])) for c in body["changes"]]
        except (KeyError, TypeError, ValueError) as exc:
            raise DrillError(f"the stand-in's log cannot be read: {exc!r}") from exc

    async def _ask(self, method: str, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        assert self._session is not None, "use it as a context"
        url = f"{self.url}/_standin/{what}"
        try:
            async with self._session.request(method, url, json=body, allow_redirects=False) as answer:
                if answer.status != 200:
                    text = (await answer.content.read(_MOST)).decode(errors="replace")
                    raise DrillError(f"the stand-in refused '{what}': {answer.status} {text}")
                parsed = await answer.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
            raise DrillError(f"the stand-in at {url} does not answer: {exc!r}") from exc
        if not isinstance(parsed, dict):
            raise DrillError(f"the stand-in answered '{what}' with no JSON object")
        return parsed
