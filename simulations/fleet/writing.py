"""The made-up fleet as Parquet, the way a merged fleet lies on a store."""

from __future__ import annotations

from collections.abc import Callable

from outlast.daemon.fleet.flat import Gather, Imported
from outlast.daemon.fleet.merge import merge_parquet
from outlast.daemon.fleet.place import Place
from outlast.simulations.fleet.made_up import Plan, by_provider, prices_of


def write(plan: Plan, place: Place, told: Callable[[str, int], None]) -> int:
    """Write the fleet into an empty place. Returns the number of spells; ``told`` hears of each provider."""
    total = 0
    for provider, flat in by_provider(plan):
        total += merge_parquet(place, Imported(flat))
        told(provider, len(flat))
    merge_parquet(place, Imported(Gather().flat(), prices=tuple(prices_of(plan))))
    return total
