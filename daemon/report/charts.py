"""What is drawn: a pool over time, the age curve, the bid curve. Each chart is a panel of its own width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DateFormatter
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from outlast.daemon.advice.values import BidCurve
from outlast.daemon.rates.table import Floats, Price
from outlast.daemon.rates.values import AgeCurve, Trend
from outlast.daemon.report import findings, svg, words

WIDTH = 360
_LEFT, _RIGHT = 44, 12
_DAY_S = 86400.0
_WEEK_S = 7 * _DAY_S
# Longer series are thinned: a panel has no more pixels to show them with.
_MOST_POINTS = 360
# A band that reaches higher than so many times the highest mean is cut off.
_HEADROOM = 2.0


@dataclass(frozen=True, slots=True)
class History:
    """What is drawn of one pool over time, on one axis from ``begins`` to ``ends``."""

    trend: Trend
    burst_at: Floats
    burst_size: Floats
    prices: tuple[Price, ...]
    begins: float
    ends: float


def over_time(found: History, key: str, label: str) -> str:
    """Weekly rate with its band, bursts as lines of their size, and the price, one above the other."""
    heights = [130, 46, 46] if found.prices else [130, 46]
    gap, bottom = 30, 24
    height = sum(heights) + gap * len(heights) + bottom
    with svg.style():
        figure = svg.new_figure(WIDTH, height)
        top = float(height)
        panels = []
        for part in heights:
            top -= gap + part
            box = (_LEFT / WIDTH, top / height, (WIDTH - _LEFT - _RIGHT) / WIDTH, part / height)
            panels.append(figure.add_axes(box))
        _weeks(panels[0], found.trend)
        _bursts(panels[1], found)
        if found.prices:
            _prices(panels[2], found)
        for panel in panels:
            _time_axis(panel, found.begins, found.ends, last=panel is panels[-1])
        return svg.render(figure, key, label)


def _weeks(panel: Axes, trend: Trend) -> None:
    weeks = [week for week in trend.weeks if week.exposure_h > 0]
    _titled(panel, "losses per 100 h, by week, with 90 % band")
    if not weeks:
        return
    edges, means, lows, highs = [], [], [], []
    for week in weeks:
        edges += [week.begins / _DAY_S, (week.begins + _WEEK_S) / _DAY_S]
        means += [week.hazard.mean * words.PER_H] * 2
        lows += [week.hazard.low * words.PER_H] * 2
        highs += [week.hazard.high * words.PER_H] * 2
    panel.fill_between(edges, lows, highs, color=svg.BAND, linewidth=0)
    panel.plot(edges, means, color=svg.LINE, linewidth=1.8)
    panel.set_ylim(0, max(min(max(highs), _HEADROOM * max(means)), 1e-9) * 1.04)


def _bursts(panel: Axes, found: History) -> None:
    _titled(panel, "nodes lost at once")
    at, size = _peaks(found.burst_at, found.burst_size)
    if at.size:
        gaps = np.full(at.size, np.nan)
        days = at / _DAY_S
        panel.plot(
            np.column_stack((days, days, gaps)).ravel(),
            np.column_stack((np.zeros(at.size), size, gaps)).ravel(),
            color=svg.HOT,
            linewidth=1.2,
        )
    panel.set_ylim(0, max(2.0, float(size.max(initial=1)) * 1.08))


def _peaks(at: Floats, size: Floats) -> tuple[Floats, Floats]:
    """At most _MOST_POINTS bursts: the largest of each stretch of time."""
    if at.size <= _MOST_POINTS:
        return at, size
    slot = np.linspace(0, _MOST_POINTS, at.size, endpoint=False).astype(int)
    keep = np.lexsort((-size, slot))[np.searchsorted(np.sort(slot), np.arange(_MOST_POINTS))]
    return at[keep], size[keep]


def _prices(panel: Axes, found: History) -> None:
    _titled(panel, "price, $ an hour")
    points = sorted((price.at, price.micro_usd / 1e6) for price in found.prices)
    step = max(1, len(points) // _MOST_POINTS)
    kept = [*points[::step], points[-1]]
    first = (min(max(kept[0][0], found.begins), found.ends), kept[0][1])
    kept = [first, *kept[1:], (max(found.ends, kept[-1][0]), kept[-1][1])]
    panel.step(
        [at / _DAY_S for at, _ in kept], [usd for _, usd in kept], where="post", color=svg.LINE, linewidth=1.4
    )
    highest = max(usd for _, usd in kept)
    panel.set_ylim(0, highest * 1.15 if highest > 0 else 1.0)


def _titled(panel: Axes, title: str) -> None:
    panel.text(0, 1.0, title, transform=panel.transAxes, va="bottom", ha="left", fontsize=svg.FONT)
    panel.yaxis.set_major_locator(
        MaxNLocator(3 if panel.bbox.height > 80 else 2, min_n_ticks=2, steps=[1, 2, 5, 10])
    )
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.grid(axis="y", color=svg.SOFT, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(length=3)


def _time_axis(panel: Axes, begins: float, ends: float, *, last: bool) -> None:
    days = (ends - begins) / _DAY_S
    shown = "%d %H:%M" if days < 3 else "%m-%d" if days < 300 else "%Y-%m"
    panel.set_xlim(begins / _DAY_S, max(ends, begins + 3600.0) / _DAY_S)
    # matplotlib's dates carry no annotations.
    panel.xaxis.set_major_locator(AutoDateLocator(minticks=2, maxticks=5))  # type: ignore[no-untyped-call]
    panel.xaxis.set_major_formatter(DateFormatter(shown))  # type: ignore[no-untyped-call]
    panel.tick_params(axis="x", labelbottom=last)


def age_curve(curve: AgeCurve, key: str, label: str) -> str:
    """The hazard of each band of age with its interval, on a logarithmic scale."""
    bands = [band for band in curve.bands if band.exposure_h > 0 and band.hazard.low > 0]
    with svg.style():
        figure = svg.new_figure(WIDTH, 230)
        panel = figure.add_axes((_LEFT / WIDTH, 0.13, (WIDTH - _LEFT - _RIGHT) / WIDTH, 0.75))
        panel.set_yscale("log")
        means = [band.hazard.mean * words.PER_H for band in bands]
        below = [(band.hazard.mean - band.hazard.low) * words.PER_H for band in bands]
        above = [(band.hazard.high - band.hazard.mean) * words.PER_H for band in bands]
        panel.errorbar(
            range(len(bands)), means, yerr=(below, above), fmt="o", color=svg.LINE, capsize=5, linewidth=1.8
        )
        panel.plot(range(len(bands)), means, color=svg.LINE, linewidth=0.9, linestyle="--")
        panel.set_xlim(-0.5, max(len(bands), 1) - 0.5)
        panel.set_xticks(range(len(bands)), [_ages(band.from_h, band.to_h) for band in bands])
        panel.text(0, 1.02, "losses per 100 h, by age of the stay", transform=panel.transAxes, va="bottom")
        panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=8))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.grid(axis="y", color=svg.SOFT, linewidth=0.6)
        panel.tick_params(length=3)
        return svg.render(figure, key, label)


def _ages(from_h: float, to_h: float | None) -> str:
    if to_h is None:
        return f"{findings.length(from_h)} +"
    if from_h == 0:
        return f"< {findings.length(to_h)}"
    if from_h < 1:
        return f"{from_h * 60:g}{words.DASH}{to_h * 60:g} min"
    return f"{from_h:g}{words.DASH}{to_h:g} h"


def bid_curve(curve: BidCurve, key: str, label: str) -> str:
    """What a useful hour costs at each bid; the cheapest is marked."""
    with svg.style():
        figure = svg.new_figure(WIDTH, 200)
        panel = figure.add_axes((_LEFT / WIDTH, 0.2, (WIDTH - _LEFT - _RIGHT) / WIDTH, 0.66))
        points = sorted(curve.points, key=lambda bid: bid.bid_usd_h)
        panel.plot(
            [bid.bid_usd_h for bid in points],
            [bid.per_useful_hour for bid in points],
            color=svg.LINE,
            linewidth=1.8,
        )
        panel.plot([curve.best.bid_usd_h], [curve.best.per_useful_hour], "o", color=svg.HOT)
        _titled(panel, "$ a useful hour, by bid in $ an hour")
        panel.xaxis.set_major_locator(MaxNLocator(4))
        return svg.render(figure, key, label)
