"""The one door to boto3: its calls block, so each runs in a thread, a few at once, until a deadline.

Endpoint "ec2" replaces AWS's own. Credentials are found as every AWS tool finds them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Access

THREADS = 4
PAGES = 400
CONNECT_S = 3.0
READ_S = 10.0
FIRST_PAUSE_S = 1.0
INSTALL = "boto3 is not installed: pip install 'outlast[aws]'"
_THROTTLED = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"}
    | {"RequestThrottled", "RequestThrottledException", "SlowDown", "PriorRequestNotComplete"}
)
# What an answer to each operation holds at least; botocore takes any XML for an answer.
_HOLDS = {
    "describe_regions": "Regions",
    "describe_availability_zones": "AvailabilityZones",
    "describe_spot_price_history": "SpotPriceHistory",
    "get_spot_placement_scores": "SpotPlacementScores",
}
# Making clients is not thread-safe, not for two doors either: they share boto3's session. Using them is.
_MAKING = threading.Lock()
_DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AuthFailure", "InvalidClientTokenId"})


class AwsDoor:
    """EC2 calls by operation name, those in _HOLDS.

    Whatever keeps a call from succeeding is a ProviderError of one line.
    """

    def __init__(self, access: Access) -> None:
        self._clock = access.clock
        self._sleep = access.sleep
        self._endpoint = access.endpoints.get("ec2")
        self._threads: ThreadPoolExecutor | None = None
        self._clients: dict[str, Any] = {}
        self._closed = False

    async def call(self, region: str, operation: str, deadline: float, **told: Any) -> dict[str, Any]:
        """One answer; throttling is waited out until ``deadline`` (monotonic). Raises ProviderError."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                return await self._run(region, operation, told)
            except _ThrottledError as exc:
                if self._clock.monotonic() + pause >= deadline:
                    raise ProviderError(f"{exc}; no time is left to wait") from exc
                await self._sleep(pause)
                pause *= 2

    async def pages(
        self, region: str, operation: str, deadline: float, **told: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """All pages of an answer, by NextToken. Raises ProviderError."""
        token = ""
        for _ in range(PAGES):
            page = await self.call(region, operation, deadline, **told, **_next(token))
            yield page
            before, token = token, str(page.get("NextToken") or "")
            if not token:
                return
            if token == before:
                raise ProviderError(f"{operation} in {region}: the pages go in a circle")
        raise ProviderError(f"{operation} in {region}: more than {PAGES} pages")

    async def close(self) -> None:
        """Let no further call begin; what is under way ends by its own time-out."""
        self._closed = True
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, region: str, operation: str, told: dict[str, Any]) -> dict[str, Any]:
        if self._closed:
            raise ProviderError("the source is closed")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="outlast-aws")
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, self._blocking, region, operation, told
        )

    def _blocking(self, region: str, operation: str, told: dict[str, Any]) -> dict[str, Any]:
        try:
            from botocore.exceptions import BotoCoreError, ClientError
            from botocore.parsers import ResponseParserError
        except ImportError as exc:
            raise ProviderError(INSTALL) from exc
        name = f"{operation} in {region}"
        try:
            answer: dict[str, Any] = getattr(self._client(region), operation)(**told)
        except ClientError as exc:
            raise _refusal(name, exc.response) from exc
        except BotoCoreError as exc:
            raise ProviderError(f"{name}: {_reason(exc)}") from exc
        except ResponseParserError as exc:
            raise ProviderError(f"{name}: the answer is not what AWS answers") from exc
        except ValueError as exc:  # an address that botocore cannot read
            raise ProviderError(f"{name}: {type(exc).__name__}") from exc
        if not isinstance(answer.get(_HOLDS[operation]), list):
            raise ProviderError(f"{name}: the answer is not what AWS answers")
        return answer

    def _client(self, region: str) -> Any:
        import boto3
        from botocore.config import Config

        with _MAKING:
            if region not in self._clients:
                config = Config(
                    connect_timeout=CONNECT_S,
                    read_timeout=READ_S,
                    # Not "adaptive": its waits know no deadline, and throttling is waited out above.
                    retries={"mode": "standard", "total_max_attempts": 2},
                    user_agent_extra="outlast",
                )
                self._clients[region] = boto3.client(
                    "ec2", region_name=region, endpoint_url=self._endpoint, config=config
                )
            return self._clients[region]


class _ThrottledError(ProviderError):
    """AWS asks for fewer requests."""


def _next(token: str) -> dict[str, str]:
    return {"NextToken": token} if token else {}


def _refusal(name: str, response: Any) -> ProviderError:
    """What AWS's error code means. Its message is left out: it may name accounts and keys."""
    error = response.get("Error", {}) if isinstance(response, dict) else {}
    code = "".join(c for c in str(error.get("Code", "unknown")) if c.isalnum() or c in "._-")[:60]
    if code in _THROTTLED:
        return _ThrottledError(f"{name}: AWS throttles ({code})")
    if code in _DENIED:
        return ProviderError(f"{name}: AWS refuses these credentials ({code}); allow the action by IAM")
    return ProviderError(f"{name}: AWS answers {code}")


def _reason(exc: Exception) -> str:
    kind = type(exc).__name__
    if kind in {"NoCredentialsError", "PartialCredentialsError"}:
        return "no AWS credentials; set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run `aws configure`"
    return kind
