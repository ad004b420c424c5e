"""What each pool costs, from the history's prices and from what the providers quote; the latest counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Launch, Price
from outlast.providers.market.base import Quote

Place = tuple[str, str, str, str]

# Attempts this much older than a pool's latest say little of whether there is capacity now.
RECENT_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class OnDemand:
    """An instance that nobody takes back: where, and dollars an hour."""

    pool: Pool
    usd_h: float


class Offers:
    """Prices by pool and kind, dollars an hour of one instance; a zone without one has its region's."""

    def __init__(self, prices: Iterable[Price], quotes: Iterable[Quote]) -> None:
        self._found: dict[tuple[Place, str], tuple[float, float]] = {}
        for price in prices:
            pool = price.pool
            self._note(
                (pool.provider, pool.region, pool.zone, pool.instance_type),
                price.kind,
                price.at,
                price.micro_usd,
            )
        for quote in quotes:
            place = (quote.provider, quote.region, quote.zone, quote.instance_type)
            self._note(place, quote.kind, quote.at, quote.micro_usd)

    def _note(self, place: Place, kind: str, at: float, micro_usd: int) -> None:
        known = self._found.get((place, kind))
        if known is None or known[0] <= at:
            self._found[place, kind] = (at, micro_usd / 1e6)

    def usd(self, pool: Pool, kind: str) -> float | None:
        """The latest price of that kind, or None."""
        for zone in (pool.zone, ""):
            found = self._found.get(((pool.provider, pool.region, zone, pool.instance_type), kind))
            if found is not None:
                return found[1]
        return None

    def spot(self, pool: Pool) -> float | None:
        """What spot costs, the lowest bid that runs where there are bids."""
        spot = self.usd(pool, "spot")
        return self.usd(pool, "min_bid") if spot is None else spot

    def on_demand(self, types: Sequence[str]) -> tuple[OnDemand, ...]:
        """On-demand prices of ``types`` (all, if empty), the cheapest first."""
        found = {
            # Zones of one region do not differ in what they cost on demand.
            OnDemand(Pool(place[0], place[1], "", place[3]), price)
            for (place, kind), (_, price) in self._found.items()
            if kind == "on_demand" and (not types or place[3] in types)
        }
        return tuple(sorted(found, key=lambda one: (one.usd_h, one.pool)))


def capacity(launches: Iterable[Launch], pool: Pool) -> float | None:
    """The share of instances that came in this pool's latest attempts; None where none was recorded."""
    own = [launch for launch in launches if launch.pool == pool]
    if not own:
        return None
    newest = max(launch.at for launch in own)
    recent = [launch for launch in own if launch.at >= newest - RECENT_S]
    asked = sum(launch.asked for launch in recent)
    return sum(launch.got for launch in recent) / asked if asked else None
