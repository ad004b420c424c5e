"""What every price source does alike, whatever its interface does: one suite over all of them."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.market.conftest import ND, SECRETS, Asked, texts

from outlast.providers.market.base import Answer, Want
from outlast.providers.market.registry import NAMES

EVERY = pytest.mark.parametrize("asked", NAMES, indirect=True)
# (pool's place, kind or measure) to what is published there: prices in millionths of a dollar.
EXPECTED: dict[str, dict[tuple[str, str, str, str], object]] = {
    "aws-prices": {
        ("us-east-1", "use1-az4", "p4d.24xlarge", "spot"): (9_831_600, 10_100_000),
        ("us-east-1", "use1-az6", "p4d.24xlarge", "spot"): (12_012_345,),
    },
    "aws-scores": {
        ("us-east-1", "use1-az4", "p4d.24xlarge", "placement-score"): (9.0,),
        ("us-east-1", "use1-az6", "p4d.24xlarge", "placement-score"): (3.0,),
        ("us-west-2", "usw2-az1", "p4d.24xlarge", "placement-score"): (1.0,),
    },
    "aws-advisor": {
        ("us-east-1", "", "p4d.24xlarge", "reclaimed-per-month"): (10.0,),
        ("us-east-1", "", "p4d.24xlarge", "savings"): (62.0,),
    },
    "azure-prices": {
        ("eastus", "", ND, "on_demand"): (27_197_000,),
        ("eastus", "", ND, "spot"): (10_878_800,),
        ("westus2", "", ND, "spot"): (8_703_041,),
        ("eastus", "", "Standard_NC24ads_A100_v4", "spot"): (1_469_000,),
    },
    "azure-evictions": {
        ("eastus", "", ND, "evicted-per-hour"): (5.0,),
        ("westus2", "", ND, "evicted-per-hour"): (20.0,),
        ("eastus", "", "Standard_NC24ads_A100_v4", "evicted-per-hour"): (0.0,),
        ("eastus", "", ND, "spot"): (10_878_800, 11_250_000),
    },
    "azure-scores": {
        ("eastus", "", ND, "placement-score"): (3.0,),
        ("eastus", "", "Standard_NC24ads_A100_v4", "placement-score"): (1.0,),
    },
    "gcp-prices": {
        # 12 cores, 85 GB and one GPU: the parts of the list, added up without rounding.
        ("us-central1", "", "a2-highgpu-1g", "on_demand"): (3_673_385,),
        ("us-central1", "", "a2-highgpu-1g", "spot"): (1_469_354,),
    },
    "gcp-advice": {
        ("us-central1", "us-central1-a", "a2-highgpu-1g", "obtainability"): (0.7,),
        ("us-central1", "us-central1-a", "a2-highgpu-1g", "estimated-uptime"): (3600.0,),
        ("us-central1", "us-central1-a", "a2-highgpu-1g", "preempted-of-stopped"): (0.25, 0.4),
        ("us-central1", "us-central1-b", "a2-highgpu-1g", "preempted-of-stopped"): (0.25, 0.4),
        ("us-central1", "", "a2-highgpu-1g", "spot"): (1_805_000, 2_805_000),
    },
    "runpod": {
        ("US-KS-2", "", "1xNVIDIA_A100-SXM4-80GB", "min_bid"): (790_000,),
        ("US-KS-2", "", "1xNVIDIA_A100-SXM4-80GB", "on_demand"): (1_890_000,),
        ("US-KS-2", "", "1xNVIDIA_A100-SXM4-80GB", "stock"): (3.0,),
        ("US-KS-2", "", "8xNVIDIA_A100-SXM4-80GB", "min_bid"): (6_320_000,),
        ("US-KS-2", "", "8xNVIDIA_A100-SXM4-80GB", "on_demand"): (15_120_000,),
        ("US-KS-2", "", "8xNVIDIA_A100-SXM4-80GB", "stock"): (3.0,),
    },
    "vast": {
        ("SE", "m11", "8xA100_SXM4_80GB", "min_bid"): (5_200_000,),
        ("SE", "m11", "8xA100_SXM4_80GB", "on_demand"): (9_600_000,),
        ("US", "m12", "1xA100_SXM4_40GB", "min_bid"): (400_000,),
        ("US", "m12", "1xA100_SXM4_40GB", "on_demand"): (1_100_000,),
        ("CA", "m13", "4xRTX_4090", "min_bid"): (640_000,),
        ("CA", "m13", "4xRTX_4090", "on_demand"): (1_360_000,),
    },
}
# What a source says that it never has.
SAYS = {
    "aws-prices": ["on-demand prices are not published here"],
    "azure-scores": ["no score of Standard_ND96asr_v4 in westus2: DataNotFoundOrStale"],
    "gcp-prices": ["local SSDs"],
}
BROKEN = ("half", "html", "empty", "garbage", "huge", "redirect", "drop", "400", "401", "403", "404", "500")


def figures(answer: Answer) -> dict[tuple[str, str, str, str], object]:
    """Everything an answer tells of each pool, sorted."""
    found: dict[tuple[str, str, str, str], list[float]] = {}
    for q in answer.quotes:
        found.setdefault((q.region, q.zone, q.instance_type, q.kind), []).append(q.micro_usd)
    for r in answer.risks:
        found.setdefault((r.region, r.zone, r.instance_type, r.measure), []).append(r.low)
    return {key: tuple(sorted(values)) for key, values in found.items()}


@EVERY
async def test_a_source_answers_what_is_published(asked: Asked) -> None:
    """Every page is read, money is exact, rows of other products are left out, and it says what it lacks."""
    answer = await asked.ask()
    assert figures(answer) == EXPECTED[asked.source.name]
    assert answer.complete
    assert not answer.cached
    said = SAYS.get(asked.source.name, [])
    assert len(answer.lacks) == len(said)
    assert all(part in line for part, line in zip(said, answer.lacks, strict=True))
    assert {q.source for q in answer.quotes} | {r.source for r in answer.risks} == {asked.source.name}
    assert abs(answer.at - asked.clock.wall()) < 30.0


@EVERY
async def test_a_source_keeps_its_deadline(asked: Asked) -> None:
    """An interface that never answers costs no more than the time given, and is a lack."""
    asked.market.misbehave("hang")
    began = time.monotonic()
    answer = await asked.ask(within_s=0.3)
    assert time.monotonic() - began < 1.5
    assert not answer.complete
    assert not answer.quotes
    assert answer.lacks


@EVERY
async def test_a_source_that_is_asked_too_late_asks_nobody(asked: Asked) -> None:
    """A deadline that is over is a lack, not a request."""
    answer = await asked.ask(within_s=-1.0)
    assert not answer.complete
    assert asked.market.requests == []


@EVERY
async def test_a_throttled_source_waits_and_answers(asked: Asked) -> None:
    """Too many requests is waited out, for as long as the interface asks, and the answer is whole."""
    asked.market.throttle(2, after="7")
    answer = await asked.ask()
    assert answer.complete
    assert figures(answer) == EXPECTED[asked.source.name]
    waits = [wait for wait in asked.clock.slept if wait >= 0.5]
    if asked.source.name not in {"aws-prices", "aws-scores", "vast"}:  # these tell no time to wait
        assert waits == [7.0, 7.0]
    else:
        assert waits


@EVERY
async def test_a_source_that_is_throttled_for_good_says_so(asked: Asked) -> None:
    """It ends before its deadline and names what it met."""
    asked.market.throttle(10_000)
    answer = await asked.ask(within_s=8.0)
    assert not answer.complete
    assert any("429" in line or "throttle" in line for line in answer.lacks)


@EVERY
@pytest.mark.parametrize("kind", BROKEN)
async def test_a_broken_answer_is_a_lack(asked: Asked, kind: str) -> None:
    """No body or status makes a source raise, tell a figure, or follow where it is sent."""
    asked.market.misbehave(kind)
    answer = await asked.ask()
    assert (answer.quotes, answer.risks) == ((), ())
    assert not answer.complete
    assert answer.lacks
    assert all(line.startswith(asked.source.name + ": ") for line in answer.lacks)
    assert not any(secret in line for secret in SECRETS for line in answer.lacks)
    assert all(line.isprintable() and len(line) < 400 for line in answer.lacks)
    assert "/trap" not in {seen.path for seen in asked.market.requests}


@EVERY
async def test_a_source_answers_again_once_its_interface_does(asked: Asked) -> None:
    """Trouble leaves nothing behind in the source."""
    asked.market.misbehave("500")
    assert not (await asked.ask(within_s=3.0)).complete
    asked.market.behave()
    assert figures(await asked.ask()) == EXPECTED[asked.source.name]


@EVERY
async def test_a_source_passes_a_cancellation_on(asked: Asked) -> None:
    """Whoever cancels the asking is not kept, and the source can still be closed."""
    asked.market.misbehave("hang")
    task = asyncio.create_task(asked.ask())
    async with asyncio.timeout(5.0):
        while not asked.market.requests:
            await asked.market.script.change(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asked.source.close()


@EVERY
async def test_a_closed_source_lacks_everything(asked: Asked) -> None:
    """Closing twice is safe; asked afterwards it makes no request."""
    await asked.source.close()
    await asked.source.close()
    answer = await asked.ask()
    assert (answer.quotes, answer.risks, answer.complete) == ((), (), False)
    assert asked.market.requests == []


@EVERY
async def test_a_source_asks_for_nothing_of_other_providers(asked: Asked) -> None:
    """Types or regions that are all others' are no question, and no lack."""
    for want in (
        Want(("x9.other-cloud!",)),
        Want((), ("Not A Region",)),
        Want(("'; drop",), ("eastus' or 1",)),
    ):
        answer = await asked.ask(want)
        assert (answer.quotes, answer.risks, answer.lacks, answer.complete) == ((), (), (), True)
    assert asked.market.requests == []


@EVERY
async def test_credentials_travel_in_headers_only(asked: Asked) -> None:
    """No address that was asked, which proxies log, holds a secret; nor does any text of the answer."""
    answer = await asked.ask()
    seen = [f"{s.path}?{s.query}" for s in asked.market.requests]
    assert seen
    assert not any(secret in text for secret in SECRETS for text in (*seen, *texts(answer)))
