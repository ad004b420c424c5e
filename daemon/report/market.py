"""Prices and published figures beside the measured rates, each figure in its own column and unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Price
from outlast.daemon.report import words
from outlast.daemon.report.text import clean
from outlast.providers.market.base import Measure, Quote, Risk

# A heading for each published figure: what it counts, of what, and by whom.
HEADINGS: dict[Measure, str] = {
    "reclaimed-per-month": "reclaimed in a month (AWS Spot Advisor)",
    "evicted-per-hour": "evicted in an hour (Azure)",
    "preempted-of-stopped": "preempted, of those that stopped (GCP)",
    "placement-score": "placement score, of a launch",
    "obtainability": "obtainability, 0 to 1 (GCP)",
    "estimated-uptime": "estimated uptime (GCP)",
    "stock": "stock (RunPod)",
}


@dataclass(frozen=True, slots=True)
class OnDemand:
    """An on-demand price, of one type in the regions where it is the same."""

    name: str
    usd: float


class Market:
    """Latest prices and published figures by pool, from the history and from what was asked of providers."""

    def __init__(self, prices: Iterable[Price], quotes: Iterable[Quote], risks: Iterable[Risk]) -> None:
        self._prices: dict[tuple[tuple[str, ...], str], tuple[float, float]] = {}
        for price in prices:
            self._note(_where(price.pool), price.kind, price.at, price.micro_usd)
        for quote in quotes:
            place = (quote.provider, quote.region, quote.zone, quote.instance_type)
            self._note(place, quote.kind, quote.at, quote.micro_usd)
        self._risks: dict[tuple[tuple[str, ...], Measure], Risk] = {}
        for risk in risks:
            key = ((risk.provider, risk.region, risk.zone, risk.instance_type), risk.measure)
            if key not in self._risks or self._risks[key].at <= risk.at:
                self._risks[key] = risk

    def _note(self, place: tuple[str, ...], kind: str, at: float, micro_usd: int) -> None:
        known = self._prices.get((place, kind))
        if known is None or known[0] <= at:
            self._prices[place, kind] = (at, micro_usd / 1e6)

    def usd(self, pool: Pool, kind: str) -> float | None:
        """The latest price of an instance-hour; the region's where the zone has none of its own."""
        for place in (_where(pool), _whole_region(pool)):
            if (place, kind) in self._prices:
                return self._prices[place, kind][1]
        return None

    def spot(self, pool: Pool) -> str:
        """The latest spot price in words, or what a bid must be at least; empty where none is known."""
        if (usd := self.usd(pool, "spot")) is not None:
            return words.dollars(usd)
        usd = self.usd(pool, "min_bid")
        return "" if usd is None else f"{words.dollars(usd)} least bid"

    def measures(self, pools: Sequence[Pool]) -> tuple[Measure, ...]:
        """The published measures of which any of ``pools`` has a figure."""
        return tuple(measure for measure in HEADINGS if any(self.published(pool, measure) for pool in pools))

    def published(self, pool: Pool, measure: Measure) -> str:
        """A published figure as it was published; empty where there is none."""
        for place in (_where(pool), _whole_region(pool)):
            if (place, measure) in self._risks:
                return clean(self._risks[place, measure].text, 60)
        return ""

    def on_demand(self, pools: Sequence[Pool]) -> tuple[OnDemand, ...]:
        """On-demand prices of the types of ``pools``, the cheapest first; regions of one price together."""
        found: dict[tuple[float, str, str], dict[str, None]] = {}
        for pool in pools:
            usd = self.usd(pool, "on_demand")
            if usd is not None:
                key = (usd, words.provider(pool.provider), clean(pool.instance_type, 60))
                found.setdefault(key, {})[clean(pool.region, 60)] = None
        return tuple(
            OnDemand(f"{provider} {kind}, {', '.join(sorted(regions))}", usd)
            for (usd, provider, kind), regions in sorted(found.items())
        )


def _where(pool: Pool) -> tuple[str, ...]:
    return (pool.provider, pool.region, pool.zone, pool.instance_type)


def _whole_region(pool: Pool) -> tuple[str, ...]:
    return (pool.provider, pool.region, "", pool.instance_type)
