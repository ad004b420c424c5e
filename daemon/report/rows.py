"""The page's tables, row by row, in words that are clean; the template escapes them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from outlast.daemon.advice.values import Advice, BackTest, Row
from outlast.daemon.rates.table import CAUSES, Observed
from outlast.daemon.rates.values import PoolRate, Range, Study, Trend
from outlast.daemon.report import findings, sparks, times, words
from outlast.daemon.report.answer import money
from outlast.daemon.report.market import HEADINGS, Market
from outlast.daemon.report.text import clean

_RANKED = ("ok", "thin")
# A region's and a pool's raw hours are printed for this many, those with the most hours seen.
MOST_RAW = 12


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval on the scale of its table, in percent of its width; ``cut`` if it goes on beyond."""

    left: float
    width: float
    mean: float
    cut: bool


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One row of the pool table."""

    name: str
    probe: bool
    hours: str
    losses: str
    rate: str
    bar: Bar | None
    current: str
    stay: str
    state: str
    data: str
    spot: str
    published: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolTable:
    """The pool table with the columns that any of its rows fills."""

    rows: tuple[PoolRow, ...]
    priced: bool
    measures: tuple[str, ...]
    on_demand: tuple[tuple[str, str], ...]


def pools(study: Study, market: Market) -> PoolTable:
    """Every pool, the calmest first, with its price and published figures."""
    wanted = [pool.pool for pool in study.pools]
    named = words.names(wanted)
    measures = market.measures(wanted)
    scale = _scale(study)
    found = tuple(
        PoolRow(
            named[pool.pool],
            pool.origin == "probe",
            words.figure(pool.exposure_h, 0 if pool.exposure_h >= 10 else 1),
            f"{pool.losses:,}",
            words.typeset(words.rate(pool)),
            None if scale is None or pool.state not in _RANKED else _log_bar(pool.hazard, *scale),
            _current(pool),
            words.hours(pool.typical_stay_h),
            pool.state,
            words.state(pool).replace(" x", f" {words.TIMES}"),
            market.spot(pool.pool),
            tuple(market.published(pool.pool, measure) for measure in measures),
        )
        for pool in study.pools
    )
    on_demand = tuple((offer.name, words.dollars(offer.usd)) for offer in market.on_demand(wanted))
    priced = bool(on_demand) or any(row.spot for row in found)
    return PoolTable(found, priced, tuple(HEADINGS[measure] for measure in measures), on_demand)


def bar(found: Range, top: float) -> Bar | None:
    """Where an interval lies on a scale that ends at ``top``; None where there is no scale."""
    if top <= 0:
        return None
    low, mean, high = (min(value / top, 1.0) * 100 for value in (found.low, found.mean, found.high))
    return Bar(round(low, 1), round(max(high - low, 1.0), 1), round(mean, 1), found.high > top)


def _scale(study: Study) -> tuple[float, float] | None:
    """From the lowest to the highest bound of the ranked pools; rates of pools differ by factors."""
    ranked = [pool.hazard for pool in study.pools if pool.state == "ok" and pool.hazard.low > 0]
    if not ranked:
        return None
    return min(found.low for found in ranked), max(found.high for found in ranked)


def _log_bar(found: Range, bottom: float, top: float) -> Bar:
    span = math.log(top / bottom)
    low, mean, high = (
        100 * min(max(math.log(max(value, bottom) / bottom) / span, 0.0), 1.0)
        for value in (found.low, found.mean, found.high)
    )
    return Bar(round(low, 1), round(max(high - low, 1.0), 1), round(mean, 1), found.high > top * 1.001)


def _current(pool: PoolRate) -> str:
    if pool.state not in _RANKED:
        return "?"
    return words.typeset(words.spread(pool.current))


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run the job, as the advice compared it."""

    name: str
    market: str
    price: str
    useful: str
    goodput: str
    interval: str
    deadline: str
    best: str
    parts: str
    notes: tuple[str, ...]


def options(advice: Advice | None) -> tuple[Option, ...]:
    """The options that the advice weighed; none without advice."""
    if advice is None:
        return ()
    named = words.names(list(dict.fromkeys(row.pool for row in advice.rows)))
    return tuple(_option(row, named[row.pool]) for row in advice.rows)


def _option(row: Row, name: str) -> Option:
    parts = ", ".join(f"{clean(part, 40)} {words.dollars(usd)}" for part, usd in row.parts.items())
    return Option(
        name,
        row.market.replace("_", "-"),
        words.dollars(row.price_usd_h),
        money(row.per_useful_hour),
        f"{row.goodput:.1%}",
        words.DASH if row.interval_s is None else f"{row.interval_s:,.0f} s",
        words.DASH if row.p_deadline is None else words.percent(row.p_deadline),
        words.percent(row.p_best),
        parts,
        tuple(clean(note, 300) for note in row.notes),
    )


def backtests(study: Study, test: BackTest | None) -> tuple[str, ...]:
    """What asking the past said: of the ranges, and of the advice where it was asked."""
    told = [findings.backtest(study)]
    if test is not None:
        told.append(clean(test.sentence, 400))
    return tuple(told)


@dataclass(frozen=True, slots=True)
class RawPool:
    """What was counted in one pool; ``ends`` in the order of Raw.causes."""

    name: str
    spells: str
    nodes: str
    hours: str
    losses: str
    bursts: str
    largest: str
    on_hint: str
    ends: tuple[str, ...]
    newest: str


@dataclass(frozen=True, slots=True)
class Raw:
    """Raw counts: of every pool, and of the hours of the day in each region."""

    causes: tuple[str, ...]
    pools: tuple[RawPool, ...]
    regions: tuple[str, ...]
    by_hour: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


def raw(study: Study, observed: Observed) -> Raw:
    """Counts as they are, nothing estimated."""
    causes = tuple(cause for cause in CAUSES if any(pool.causes.get(cause) for pool in study.pools))
    named = words.names([pool.pool for pool in study.pools])
    table = observed.table
    index = {pair: number for number, pair in enumerate(zip(table.pools, table.origin, strict=True))}
    found = []
    for pool in study.pools:
        number = index.get((pool.pool, pool.origin))
        name = words.told_apart(named[pool.pool], pool.origin)
        nodes, hinted = (
            "?" if number is None or number >= len(counts) else f"{int(counts[number]):,}"
            for counts in (table.nodes, table.left_on_hint)
        )
        found.append(_raw_pool(pool, name, nodes, hinted, causes))
    regions = _regions(study)
    sums = [sparks.of_region(table, *region) for region in regions]
    by_hour = tuple(
        (f"{hour:02d}", tuple((words.figure(e[hour], 1), f"{round(d[hour]):,}") for e, d in sums))
        for hour in range(24)
    )
    return Raw(causes, tuple(found), tuple(findings.region(*region) for region in regions), by_hour)


def _raw_pool(pool: PoolRate, name: str, nodes: str, hinted: str, causes: tuple[str, ...]) -> RawPool:
    return RawPool(
        name,
        f"{pool.spells:,}",
        nodes,
        words.figure(pool.exposure_h, 1),
        f"{pool.losses:,}",
        f"{pool.bursts:,}",
        f"{pool.largest_burst:,}",
        hinted,
        tuple(f"{pool.causes.get(cause, 0):,}" for cause in causes),
        f"{times.utc(pool.newest):%Y-%m-%d %H:%M}",
    )


def _regions(study: Study) -> tuple[tuple[str, str], ...]:
    seen: dict[tuple[str, str], float] = {}
    for pool in study.pools:
        region = (pool.pool.provider, pool.pool.region)
        seen[region] = seen.get(region, 0.0) + pool.exposure_h
    return tuple(sorted(seen, key=lambda region: -seen[region])[:MOST_RAW])


def weeks(trends: tuple[Trend, ...]) -> tuple[tuple[str, str, str, str, str], ...]:
    """The weeks that are drawn, those in which the pool was seen: pool, beginning, hours, losses, rate."""
    named = words.names([trend.pool for trend in trends])
    return tuple(
        (
            words.told_apart(named[trend.pool], trend.origin),
            f"{times.utc(week.begins):%Y-%m-%d}",
            words.figure(week.exposure_h, 1),
            f"{week.losses:,}",
            words.typeset(words.spread(week.hazard)),
        )
        for trend in trends
        for week in trend.weeks
        if week.exposure_h > 0
    )
