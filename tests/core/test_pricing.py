"""Prices on change, of this node's own pool, from a source that may fail in any way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.core.conftest import until

from outlast.daemon.core import pricing
from outlast.daemon.core.pricing import Pricing
from outlast.daemon.history.db import History
from outlast.daemon.history.reading import read_rows
from outlast.daemon.history.rows import Pool, PriceRow
from outlast.providers.base import Clock, Identity, SystemClock
from outlast.providers.market.base import Answer, Quote, Source, Want

WHO = Identity("aws", "us-east-1", "us-east-1a", "use1-az4", "p4d.24xlarge", "i-1")


def quote(at: float, micro: int, region: str = "us-east-1", zone: str = "use1-az4") -> Quote:
    return Quote("aws", region, zone, "p4d.24xlarge", "spot", micro, at, "aws")


@dataclass
class Prices:
    """A source that answers what it is told to."""

    answers: list[Answer | None]
    name: str = "aws"
    wants: list[Want] = field(default_factory=list)
    closed: int = 0

    async def ask(self, want: Want, deadline: float) -> Answer:
        assert deadline > 0
        self.wants.append(want)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            await asyncio.sleep(3600)
        assert answer is not None
        return answer

    async def close(self) -> None:
        self.closed += 1


async def noted(
    open_source: Callable[[str], Source], identity: Identity | None, enough: Callable[[], object]
) -> list[PriceRow]:
    """What is recorded until ``enough``."""
    rows: list[PriceRow] = []
    part = Pricing(open_source, 0.02, lambda: identity, rows.append, SystemClock())
    task = asyncio.create_task(part.run())
    await until(enough)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return rows


async def test_only_this_nodes_own_type_and_region_are_kept() -> None:
    """All zones of the region, in the order of time; other regions are dropped, the source is closed."""
    told = (quote(2.0, 7), quote(1.0, 5), quote(1.0, 4, zone="use1-az1"), quote(1.0, 1, region="eu-west-1"))
    source = Prices([Answer("aws", 0.0, told), Answer("aws", 0.0)])
    rows = await noted(lambda _: source, WHO, lambda: len(source.wants) >= 2)
    assert [(row.at, row.micro_usd, row.pool.zone) for row in rows] == [
        *((1.0, 5, "use1-az4"), (1.0, 4, "use1-az1"), (2.0, 7, "use1-az4")),
    ]
    assert (source.wants[0].instance_types, source.wants[0].regions) == (("p4d.24xlarge",), ("us-east-1",))
    assert source.closed >= 1


async def test_a_source_that_lacks_or_hangs_is_weather(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer, and no source for this provider, cost nothing but a line; the next hour asks again."""
    monkeypatch.setattr(pricing, "ASK_S", -9.95)
    source = Prices(
        [None, Answer("aws", 0.0, lacks=("no credentials",)), Answer("aws", 0.0, (quote(1.0, 5),))]
    )
    rows = await noted(lambda _: source, WHO, lambda: len(source.wants) >= 4)
    assert {row.micro_usd for row in rows} == {5}
    asked = []

    def nowhere(name: str) -> Source:
        asked.append(name)
        raise LookupError(f"no prices for {name}")

    assert await noted(nowhere, WHO, lambda: len(asked) >= 2) == []


async def test_nobody_is_asked_before_the_node_knows_itself() -> None:
    """Without a provider's word on the instance type there is nothing to ask for."""
    source = Prices([Answer("aws", 0.0)])
    calls = 0

    def identity() -> Identity | None:
        nonlocal calls
        calls += 1
        return None

    part = Pricing(lambda _: source, 0.01, identity, lambda _: None, SystemClock())
    task = asyncio.create_task(part.run())
    await until(lambda: calls >= 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert source.wants == []


def test_a_price_is_recorded_where_it_changes(tmp_path: Path, manual_clock: Clock) -> None:
    """The same price at a later time is no row, whatever order the answers come in."""
    history = History.open(tmp_path / "h.sqlite3", manual_clock)
    for at, micro in ((1.0, 5), (2.0, 5), (3.0, 6), (4.0, 5), (3.5, 6), (4.0, 5)):
        history.price(PriceRow(read_pool(), "spot", at, micro))
    history.price(PriceRow(read_pool(), "on_demand", 1.0, 50))
    rows = read_rows(history.path).prices
    history.close()
    assert sorted((r.kind, r.at, r.micro_usd) for r in rows) == [
        ("on_demand", 1.0, 50), ("spot", 1.0, 5), ("spot", 3.0, 6), ("spot", 4.0, 5),
    ]  # fmt: skip


def read_pool() -> Pool:
    return Pool("aws", "us-east-1", "use1-az4", "p4d.24xlarge")


def test_a_provider_has_its_own_price_source() -> None:
    """The daemon's providers have one each; another name is said to have none."""
    opened = pricing.open_market(SystemClock())
    for provider in ("aws", "azure", "gcp"):
        source = opened(provider)
        assert source.name == f"{provider}-prices"
        asyncio.run(source.close())
    with pytest.raises(LookupError, match="elsewhere"):
        opened("elsewhere")
