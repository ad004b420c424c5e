"""Price sources against stand-ins of the interfaces they ask, on a clock whose waits take no time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outlast.providers.market import registry
from outlast.providers.market.base import Access, Answer, Source, Want
from outlast.simulations.standins import market as standins
from outlast.simulations.standins.market import Market
from outlast.simulations.standins.market.server import TOKEN

# What must never be seen in a text, a file or at another host.
SECRET = "s3cret-key-of-ours"
SECRETS = (TOKEN, SECRET)
ENVIRON = {
    "AZURE_ACCESS_TOKEN": TOKEN,
    "AZURE_SUBSCRIPTION_ID": "00000000-0000-4000-8000-00000000000a",
    "GOOGLE_OAUTH_ACCESS_TOKEN": TOKEN,
    "GOOGLE_CLOUD_PROJECT": "our-project",
    "RUNPOD_API_KEY": SECRET,
    "VAST_API_KEY": SECRET,
}
ND, NC = "Standard_ND96asr_v4", "Standard_NC24ads_A100_v4"
WANTS = {
    "aws": Want(("p4d.24xlarge",), ("us-east-1",)),
    "azure": Want((ND, NC), ("eastus", "westus2")),
    "gcp": Want(("a2-highgpu-1g",), ("us-central1",)),
    "runpod": Want(("1xNVIDIA_A100-SXM4-80GB", "8xNVIDIA_A100-SXM4-80GB", "8xNVIDIA_H100_80GB_HBM3")),
    "vast": Want(("8xA100_SXM4_80GB", "1xA100_SXM4_40GB", "4xRTX_4090")),
}


@dataclass
class SkippingClock:
    """Real time, plus what was slept: a wait costs none of the test's time."""

    epoch: float = 1_796_200_000.0  # 2 December 2026
    slept: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def monotonic(self) -> float:
        """Seconds, those slept included."""
        return time.monotonic() + sum(self.slept)

    def wall(self) -> float:
        """UTC epoch seconds, those slept included."""
        return self.epoch + self.monotonic() - self.began

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` have passed."""
        self.slept.append(max(0.0, seconds))
        await asyncio.sleep(0)


def provider_of(name: str) -> str:
    """The provider of a source."""
    return name.partition("-")[0]


def access_to(
    market: Market | None, clock: SkippingClock, environ: Mapping[str, str] | None = None
) -> Access:
    """Access to a stand-in, and to nothing else: other addresses are closed ports of this machine."""
    nowhere = "http://127.0.0.1:9"
    names = ("ec2", "advisor", "azure-retail", "azure-manage", "azure-identity", "gcp-compute", "gcp-billing")
    endpoints = dict.fromkeys((*names, "runpod", "vast"), nowhere)
    endpoints |= market.endpoints if market else {}
    return Access(ENVIRON if environ is None else environ, endpoints, clock, clock.sleep)


@dataclass
class Asked:
    """A source, the market it asks, and how the asking goes."""

    source: Source
    market: Market
    clock: SkippingClock
    want: Want

    async def ask(self, want: Want | None = None, within_s: float = 60.0) -> Answer:
        """An answer within ``within_s`` seconds, waits included."""
        return await self.source.ask(want or self.want, self.clock.monotonic() + within_s)


@pytest.fixture(autouse=True)
def _own_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials, caches and proxies of whoever runs the tests are out of reach."""
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA0EXAMPLE0EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def clock() -> SkippingClock:
    """A clock that skips waits."""
    return SkippingClock()


@pytest.fixture
async def asked(request: pytest.FixtureRequest, clock: SkippingClock) -> AsyncIterator[Asked]:
    """The source named by the test's parameter, and its market."""
    name = request.param
    provider = provider_of(name)
    market = standins.create(provider, clock=clock)
    await market.start()
    source = registry.create(name, access_to(market, clock))
    try:
        yield Asked(source, market, clock, WANTS[provider])
    finally:
        await source.close()
        await market.close()


def texts(answer: Answer) -> list[str]:
    """Every text in an answer."""
    found = list(answer.lacks)
    for quote in answer.quotes:
        found += [quote.provider, quote.region, quote.zone, quote.instance_type, quote.source]
    for risk in answer.risks:
        found += [risk.provider, risk.region, risk.zone, risk.instance_type, risk.text, risk.source]
    return found
