"""What is drawn on the page, and for which pools: those with the most hours seen, in the table's order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from outlast.daemon.advice.values import Advice
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Observed, Origin, Price
from outlast.daemon.rates.values import AgeCurve, PoolRate, Study, Trend
from outlast.daemon.report import charts, times, words
from outlast.daemon.report.grid import Cell, HeatMap, heat_map, part_label, position
from outlast.daemon.report.rows import Bar, bar

# So many pools get a heat-map and a panel over time; of more, nobody looks at the charts.
MOST = 12
_MOST_BIDS = 6

Key = tuple[Pool, Origin]


@dataclass(frozen=True, slots=True)
class Chart:
    """One drawing with its caption."""

    caption: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One cell as shown: its text, its class, and what lies behind it."""

    text: str
    style: str
    title: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One part of the day in UTC and on the reader's clock, with its margin over all days."""

    label: str
    local: str
    cells: tuple[HeatCell, ...]
    margin: HeatCell
    bar: Bar | None


@dataclass(frozen=True, slots=True)
class HeatPanel:
    """A heat-map ready for the template; ``days`` are its columns, ``footer`` their margins."""

    name: str
    mean: str
    cut: str
    days: tuple[str, ...]
    rows: tuple[HeatRow, ...]
    footer: tuple[tuple[str, HeatCell, Bar | None], ...]


@dataclass(frozen=True, slots=True)
class Panels:
    """Everything that is drawn. ``left_out`` says how many pools are not, empty if all are."""

    heat: tuple[HeatPanel, ...]
    over_time: tuple[Chart, ...]
    ages: tuple[Chart, ...]
    bids: tuple[Chart, ...]
    trends: tuple[Trend, ...]
    left_out: str


def panels(study: Study, observed: Observed, advice: Advice | None, zone: times.Zone) -> Panels:
    """Heat-maps, panels over time, age and bid curves."""
    by_hours = sorted((pool for pool in study.pools if pool.losses), key=lambda pool: -pool.exposure_h)
    keep = {_key(pool) for pool in by_hours[:MOST]}
    chosen = [pool for pool in study.pools if _key(pool) in keep]
    names = words.names([pool.pool for pool in study.pools])
    named = {_key(pool): words.told_apart(names[pool.pool], pool.origin) for pool in study.pools}
    trends = {_key(trend): trend for trend in study.trends}
    drawn = [pool for pool in chosen if _key(pool) in trends]
    prices = _spot_prices(observed, {pool.pool for pool in drawn})
    maps = [heat for pool in chosen if (heat := heat_map(observed.table, pool)) is not None]
    return Panels(
        tuple(_heat(heat, named[_key(heat.pool)], zone, study.now) for heat in maps),
        tuple(
            _over_time(i, pool, trends[_key(pool)], observed, tuple(prices[pool.pool]), named, study)
            for i, pool in enumerate(drawn)
        ),
        tuple(_ages(i, curve) for i, curve in enumerate(study.ages)),
        _bids(advice),
        tuple(trends[_key(pool)] for pool in drawn),
        _left_out(len(study.pools), len(by_hours), len(chosen)),
    )


def _spot_prices(observed: Observed, pools: Collection[Pool]) -> dict[Pool, list[Price]]:
    found: dict[Pool, list[Price]] = {pool: [] for pool in pools}
    for price in observed.prices:
        if price.kind != "on_demand" and price.pool in found:
            found[price.pool].append(price)
    return found


def _key(found: PoolRate | Trend) -> Key:
    """Held nodes and probes of one pool have drawings of their own."""
    return (found.pool, found.origin)


def _left_out(pools: int, lost: int, chosen: int) -> str:
    if pools == chosen:
        return ""
    if lost == chosen:
        return f"Drawn are the {words.counted(chosen, 'pool')} in which anything was lost."
    return f"Drawn are the {chosen} of {pools} pools with the most hours seen; the tables have all."


def _over_time(
    number: int,
    pool: PoolRate,
    trend: Trend,
    observed: Observed,
    prices: tuple[Price, ...],
    named: dict[Key, str],
    study: Study,
) -> Chart:
    table = observed.table
    mine = table.burst_pool == position(table, pool)
    found = charts.History(
        trend,
        np.asarray(table.burst_at[mine], dtype=np.float64),
        np.asarray(table.burst_size[mine], dtype=np.float64),
        prices,
        study.begins,
        study.ends,
    )
    name = named[_key(pool)]
    label = (
        f"{name} over time: {words.counted(len(trend.weeks), 'week')}, "
        f"{words.counted(pool.bursts, 'burst')}, "
        f"the largest of {words.counted(pool.largest_burst, 'node')}. The weeks are in a table below."
    )
    return Chart(name, _markup(charts.over_time(found, f"t{number}", label)))


def _ages(number: int, curve: AgeCurve) -> Chart:
    name = words.provider(curve.provider)
    label = f"{name}: losses by age of the stay. The figures are in a table below."
    return Chart(name, _markup(charts.age_curve(curve, f"a{number}", label)))


def _bids(advice: Advice | None) -> tuple[Chart, ...]:
    curves = () if advice is None else advice.bids[:_MOST_BIDS]
    named = words.names([curve.pool for curve in curves])
    found = []
    for number, curve in enumerate(curves):
        name = f"{named[curve.pool]}: best bid {words.dollars(curve.best.bid_usd_h)}"
        label = f"{name}, {words.dollars(curve.best.per_useful_hour)} a useful hour."
        found.append(Chart(name, _markup(charts.bid_curve(curve, f"b{number}", label))))
    return tuple(found)


def _markup(svg: str) -> Markup:
    """What svg.render has made: the SVG backend escapes every text in it."""
    return Markup(svg)  # noqa: S704


def _heat(heat: HeatMap, name: str, zone: times.Zone, now: float) -> HeatPanel:
    margins = [cell.hazard.high for cell in (*heat.by_part, *heat.by_day) if cell.hazard]
    top = max(margins, default=0.0)
    step = 24 // heat.parts
    local = not times.is_utc(zone, now) and heat.parts > 1
    found = tuple(
        HeatRow(
            part_label(part, heat.parts),
            times.clock(part * step, zone, now) if local else "",
            tuple(_cell(cell) for cell in cells),
            _cell(heat.by_part[part]),
            _bar(heat.by_part[part], top),
        )
        for part, cells in enumerate(heat.cells)
    )
    footer = (
        ()
        if heat.parts == 1
        else tuple(
            (day, _cell(cell), _bar(cell, top)) for day, cell in zip(heat.days, heat.by_day, strict=True)
        )
    )
    cut = {24: "hours", 6: "4-hour blocks", 1: "whole days"}[heat.parts]
    cut += " by day of the week" if len(heat.days) == 7 else ", weekdays and weekend"
    return HeatPanel(name, words.figure(heat.mean * words.PER_H), cut, heat.days, found, footer)


def _bar(cell: Cell, top: float) -> Bar | None:
    return None if cell.hazard is None else bar(cell.hazard, top)


def _cell(cell: Cell) -> HeatCell:
    seen = f"{words.counted(cell.losses, 'loss')} in {words.figure(cell.exposure_h, 1)} h"
    if cell.hazard is None:
        return HeatCell("n/a", "na", f"{seen}: too little to tell")
    told = words.typeset(words.spread(cell.hazard))
    sign = "m" if cell.level < 0 else "p"
    return HeatCell(
        words.figure(cell.hazard.mean * words.PER_H), f"{sign}{abs(cell.level)}", f"{seen}: {told} per 100 h"
    )
