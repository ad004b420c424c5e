"""The advice asked of the past of a made-up history whose pools differ."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from outlast.daemon.advice.backtest import WEEK_S, backtest, replay
from outlast.daemon.advice.values import Request
from outlast.daemon.fleet.load import observe
from outlast.daemon.rates.table import Observed, Price

_SPEC = importlib.util.spec_from_file_location("spell_files", Path(__file__).with_name("spell_files.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
spell_files = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(spell_files)

REQUEST = Request(hours=24.0)
HAZARDS = {"aws/us-west-2/usw2-az2": 0.02, "aws/us-east-1/use1-az1": 0.5, "aws/us-east-2/use2-az1": 2.0}


def history(folder: Path, prices: dict[str, float], days: float = 45) -> Observed:
    """The three pools at constant prices, by region."""
    file = spell_files.spells(folder / "spells.csv", HAZARDS, days=days)
    seen = observe([str(file)], spell_files.BEGINS + days * 86400)
    told = tuple(
        Price(pool, spell_files.BEGINS, round(prices[pool.region] * 1e6))
        for pool in seen.table.pools
        if pool.region in prices
    )
    return replace(seen, prices=told)


def test_following_the_advice_is_the_best_where_pools_differ(tmp_path: Path) -> None:
    """At one price the calm pool wins every week; a random one costs more."""
    found = backtest(history(tmp_path, {"us-west-2": 1.0, "us-east-1": 1.0, "us-east-2": 1.0}), REQUEST)
    assert found.weeks == 5
    assert found.advised is not None
    assert found.random_pool is not None
    assert found.advised == pytest.approx(found.hindsight)
    assert found.random_pool > found.advised * 1.1
    assert "Over 5 weeks" in found.sentence


def test_the_cheapest_price_is_a_trap(tmp_path: Path) -> None:
    """A pool that loses a node every half hour is dear at 10 % less."""
    found = backtest(history(tmp_path, {"us-west-2": 1.0, "us-east-2": 0.9}), REQUEST)
    assert found.advised is not None
    assert found.cheapest_pool is not None
    assert found.cheapest_pool > found.advised


def test_only_the_past_is_seen(tmp_path: Path) -> None:
    """What comes after an origin changes nothing of what is chosen there."""
    seen = history(tmp_path, {"us-west-2": 1.0, "us-east-1": 1.0, "us-east-2": 1.0})
    calm = next(pool for pool in seen.table.pools if pool.region == "us-west-2")
    first = replay(seen, REQUEST)[0]
    dear = Price(calm, first.begins + WEEK_S / 2, 50_000_000)
    again = replay(replace(seen, prices=(*seen.prices, dear)), REQUEST)[0]
    assert again.advised == first.advised == calm
    assert again.costs[calm] > 5 * first.costs[calm]


def test_what_cannot_be_asked_says_so(tmp_path: Path) -> None:
    """Without prices, and within the first days, there is no week to check."""
    assert backtest(history(tmp_path, {}), REQUEST).sentence.startswith("Not back-tested")
    short = backtest(history(tmp_path, {"us-west-2": 1.0, "us-east-1": 1.0}, days=8), REQUEST)
    assert (short.weeks, short.advised) == (0, None)
