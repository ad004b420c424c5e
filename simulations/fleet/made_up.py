"""Spells of many nodes over months, seeded: hazards that differ, bursts, age, weekends, one daily cycle.

Everything is drawn in "hazard time", in which a busy hour is longer than a quiet one; the clock follows by
inverting that. So a region's cycle and the weekends are in the data exactly as they are stated here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlast.daemon.fleet.flat import CAUSE_NUMBER, Flat
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Columns, Price

BEGINS = 1_767_225_600.0  # 2026-01-01 00:00 UTC, a Thursday
# The only region with a daily cycle: its hazard follows 1 + SWING cos(2 pi (hour - PEAK) / 24).
PATTERN = ("aws", "us-east-1")
PEAK, SWING = 16.0, 0.5
WEEKEND = 0.6
NODES_A_POOL = 20
# A fifth of the stays is young: gone within half an hour on average.
YOUNG, YOUNG_H = 0.2, 0.5
GAP_H = 0.5
BURSTS_A_DAY, HIT = 0.25, 0.4
_REGIONS = {
    "aws": ("us-east-1", "us-east-2", "us-west-2", "eu-west-1"),
    "gcp": ("us-central1", "europe-west4", "asia-southeast1"),
    "azure": ("eastus", "westeurope"),
    "runpod": ("EU-RO-1",),
}
_TYPES = {
    "aws": ("p4d.24xlarge", "p5.48xlarge", "g5.48xlarge"),
    "gcp": ("a2-highgpu-8g", "a3-highgpu-8g"),
    "azure": ("Standard_ND96asr_v4",),
    "runpod": ("8xNVIDIA A100 80GB PCIe",),
}

Numbers = NDArray[np.int64]
Times = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is made up: ``nodes`` over ``days``, their stays ``stay_h`` long on average."""

    nodes: int = 10_000
    days: int = 365
    stay_h: float = 11.0
    seed: int = 1


def pools_of(plan: Plan) -> tuple[Pool, ...]:
    """One pool for every NODES_A_POOL nodes, over all providers, regions, zones and types in turn."""
    count = max(1, plan.nodes // NODES_A_POOL)
    places = [
        (provider, region, kind)
        for provider, regions in _REGIONS.items()
        for region in regions
        for kind in _TYPES[provider]
    ]
    return tuple(
        Pool(provider, region, f"{region}-z{number // len(places) + 1}", kind)
        for number, (provider, region, kind) in ((n, places[n % len(places)]) for n in range(count))
    )


def by_provider(plan: Plan) -> Iterator[tuple[str, Flat]]:
    """The fleet's spells, one provider at a time; each spell has an id of its own."""
    pools = pools_of(plan)
    rng = np.random.default_rng(plan.seed)
    hazards = np.exp(rng.uniform(np.log(0.5), np.log(2.0), len(pools))) / plan.stay_h
    for provider in _REGIONS:
        mine = [index for index, pool in enumerate(pools) if pool.provider == provider]
        if mine:
            yield provider, _spells(plan, [pools[i] for i in mine], hazards[mine], mine, rng)


def prices_of(plan: Plan) -> Iterator[Price]:
    """What an hour of each pool costs, new each Thursday, a few percent off the week before."""
    rng = np.random.default_rng((plan.seed, 1))
    weeks = -(-plan.days // 7)
    for pool in pools_of(plan):
        level = np.exp(rng.uniform(np.log(3.0), np.log(12.0)) + np.cumsum(rng.normal(0, 0.03, weeks)))
        for week, usd in enumerate(level.tolist()):
            yield Price(pool, BEGINS + week * 7 * 86400.0, round(usd * 1e6))


def _spells(
    plan: Plan, pools: list[Pool], hazards: Times, numbers: list[int], rng: np.random.Generator
) -> Flat:
    parts = []
    for place, (pool, hazard) in enumerate(zip(pools, hazards, strict=True)):
        parts.append((place, *_pool(plan, pool, float(hazard), rng)))
    pool_of = np.concatenate([np.full(len(began), place) for place, began, *_ in parts])
    began, ended, cause, node = (np.concatenate([part[n] for part in parts]) for n in (1, 2, 3, 4))
    base = np.array(numbers, dtype=np.int64)[pool_of] * 1_000_000
    order = np.concatenate([np.arange(len(part[1])) for part in parts])
    columns = Columns(
        pools=tuple(pools),
        origin=tuple("held" for _ in pools),
        pool=pool_of,
        node=base + node,
        began=began,
        ended=ended,
        cause=cause,
        known=np.ones(len(began), dtype=np.bool_),
        hinted=np.zeros(len(began), dtype=np.bool_),
    )
    return Flat(base + order + 1, columns)


def _pool(
    plan: Plan, pool: Pool, hazard: float, rng: np.random.Generator
) -> tuple[Times, Times, Numbers, Numbers]:
    """Begin, end, cause and node of each spell of one pool."""
    hours = plan.days * 24
    stays = int(hours * hazard * 1.6) + 20
    lives = rng.exponential(1 / hazard, (NODES_A_POOL, stays))
    young = rng.random((NODES_A_POOL, stays)) < YOUNG
    lives[young] = rng.exponential(YOUNG_H, int(young.sum()))
    ends = np.cumsum(lives + GAP_H, axis=1)
    clock, warped = _warp(pool, hours)
    began = np.interp(ends - lives, warped, clock)
    ended = np.interp(ends, warped, clock) - GAP_H / 2
    ended = np.maximum(ended, began + 1 / 60)
    node, _ = np.nonzero(ends < warped[-1])
    inside = ends < warped[-1]
    began, ended = began[inside], ended[inside]
    ended, hit = _burst(began, ended, hours, rng)
    return BEGINS + began * 3600, BEGINS + ended * 3600, _causes(hit, rng), node.astype(np.int64)


def _warp(pool: Pool, hours: int) -> tuple[Times, Times]:
    """The clock in hours, and hazard time at each: it runs slowly at weekends, fast around the peak."""
    clock = np.arange(hours + 1, dtype=np.float64)
    middle = clock[:-1] + 0.5
    speed = np.ones(hours)
    if (pool.provider, pool.region) == PATTERN:
        speed += SWING * np.cos(2 * np.pi * (middle % 24 - PEAK) / 24)
    weekday = ((clock[:-1] // 24) + 3) % 7  # the first day is a Thursday
    speed[weekday >= 5] *= WEEKEND
    return clock, np.concatenate([[0.0], np.cumsum(speed)])


def _burst(began: Times, ended: Times, hours: int, rng: np.random.Generator) -> tuple[Times, Flags]:
    """Cut a share of the stays at the pool's bursts, all within a minute."""
    at = np.sort(rng.uniform(0, hours, rng.poisson(hours / 24 * BURSTS_A_DAY)))
    if not len(at):
        return ended, np.zeros(len(ended), dtype=np.bool_)
    next_one = np.searchsorted(at, began + 1 / 60)
    when = np.append(at, np.inf)[next_one]
    hit = (when < ended) & (rng.random(len(ended)) < HIT)
    return np.where(hit, when + rng.uniform(0, 1 / 60, len(ended)), ended), hit


def _causes(hit: Flags, rng: np.random.Generator) -> Numbers:
    """Most stays are taken by the provider, some without a word, some are left by their user."""
    drawn = rng.choice(
        [CAUSE_NUMBER["interruption"], CAUSE_NUMBER["silent-loss"], CAUSE_NUMBER["user-stop"]],
        size=len(hit),
        p=[0.8, 0.05, 0.15],
    )
    return np.where(hit, CAUSE_NUMBER["interruption"], drawn).astype(np.int64)
