"""What to bid, where there is anything to bid: the whole curve of bids against what a useful hour costs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from outlast.daemon.advice.goodput import Life, billed
from outlast.daemon.advice.interval import choose
from outlast.daemon.advice.values import Bid, BidCurve
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Price

# Bids are looked at as multiples of the lowest one that runs.
STEPS = (1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0)
BIDDERS = ("vast", "runpod")
_CAPS = {
    "aws": "none: do not set a maximum price, it only adds interruptions",
    "gcp": "none: the price is listed",
    "azure": "-1: pay up to the standard price, never evicted for the price",
}


def cap(provider: str) -> str:
    """What to put into the provider's price field where it takes no bid."""
    return _CAPS.get(provider, "none")


def curve(
    pool: Pool, minimum: float, hazard: float, outbid: Sequence[tuple[float, float]], job: Life
) -> BidCurve:
    """The curve ``b / G(hazard + outbid(b))`` of bids ``minimum * step``, dollars an hour, paid in full.

    ``hazard`` is the provider's own per hour; ``outbid`` pairs each multiple of the minimum with the rate
    per hour at which others outbid it. ``job`` gives stall and restart; its interval is chosen per bid.
    """
    points = tuple(_bid(minimum * step, hazard + rate, job) for step, rate in outbid)
    return BidCurve(pool, min(points, key=lambda bid: bid.per_useful_hour), points)


def _bid(price: float, hazard: float, job: Life) -> Bid:
    mtbf_s = 3600 / hazard
    interval = choose(job.stall_s, mtbf_s, job.flush_share)
    life = Life(interval, job.stall_s, mtbf_s, job.restart_s, job.wait_s, job.flush_share, job.flush_s)
    goodput = float(billed(life))
    return Bid(price, hazard, goodput, price / goodput)


def outbid_rates(prices: Sequence[Price], minimum: float, until: float) -> list[tuple[float, float]]:
    """How often the recorded minimum bid rose above each multiple of ``minimum``, per hour at or below it.

    ``prices`` are one pool's ``min_bid`` changes in order of time, ``until`` ends the last (UTC seconds). A
    multiple that never held is left out; one that was never exceeded counts half a time, since none is safe.
    """
    found = []
    for step in STEPS:
        level = round(minimum * step * 1e6)
        held, crossed = 0.0, 0
        ends = [price.at for price in prices[1:]] + [until]
        for price, end in zip(prices, ends, strict=True):
            held += (end - price.at) / 3600 if price.micro_usd <= level else 0.0
        for before, after in pairwise(prices):
            crossed += before.micro_usd <= level < after.micro_usd
        if held > 0:
            found.append((step, max(crossed, 0.5) / held))
    return found
