"""The recommendation in a terminal: the answer first, then the table it rests on, then what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from outlast.daemon.advice.values import Advice, BidCurve, Row
from outlast.daemon.report import times, words
from outlast.daemon.report.answer import money
from outlast.daemon.report.terminal import printed
from outlast.daemon.report.text import clean

# More ways to run than these fill screens; --json has all of them.
MOST_ROWS = 15
_SENTENCE = 500
HEADINGS = ("pool", "$/h", "$/useful h (90 %)", "useful", "in time", "cheapest")
_VERDICTS = {
    "run": "RUN",
    "tie": "TIE",
    "on-demand": "ON-DEMAND",
    "not enough data": "NOT ENOUGH DATA",
}


def show(advice: Advice, zone: times.Zone, out: TextIO) -> None:
    """Print the recommendation to ``out``: with colour if it is a terminal, plain text if it is not."""
    printed(tuple(_page(advice, zone)), out)


def _page(advice: Advice, zone: times.Zone) -> Iterator[RenderableType]:
    yield Text(f"{_VERDICTS[advice.verdict]}: {clean(advice.sentence, _SENTENCE)}", "bold")
    yield from (Padding(Text(line), (0, 0, 0, 2)) for line in _facts(advice, zone))
    if advice.rows:
        yield _table(advice)
    for heading, lines in (
        ("why", advice.reasons),
        ("not known", advice.not_known),
        ("taken as given", (*advice.assumed, *_costs(advice))),
    ):
        if lines:
            yield Text(heading)
        yield from (Padding(Text(clean(line, _SENTENCE)), (0, 0, 0, 2)) for line in lines)
    yield from (Text(_bids(found)) for found in advice.bids)
    if advice.backtest is not None:
        yield Text(clean(advice.backtest.sentence, _SENTENCE))


def _facts(advice: Advice, zone: times.Zone) -> Iterator[str]:
    named = words.names([*advice.order, *([advice.standby] if advice.standby else [])])
    if not advice.order:
        return
    yield f"start       {clean(advice.window, 80)}"
    shown = ", ".join(named[pool] for pool in advice.order[:5])
    yield f"pools       {shown}"
    standby = named[advice.standby] if advice.standby else "none known in another region"
    yield f"standby     {standby}"
    yield f"price cap   {clean(advice.cap, 80)}"
    if advice.interval_s is not None:
        steps = f" ({words.counted(advice.interval_steps, 'step')})" if advice.interval_steps else ""
        yield f"checkpoint  every {advice.interval_s:,.0f} s{steps}"
    if advice.policy:
        yield f"policy      {clean(advice.policy, 200)}"
    yield f"data        {times.period(advice.data_from, advice.data_to)}"
    yield f"valid until {times.stamp(advice.valid_until, zone)}"


def _table(advice: Advice) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for number, heading in enumerate(HEADINGS):
        grid.add_column(heading, justify="right" if number else "left", overflow="fold")
    named = words.names([row.pool for row in advice.rows])
    for row in advice.rows[:MOST_ROWS]:
        grid.add_row(*(Text(cell) for cell in _cells(row, named[row.pool])))
    return grid


def _cells(row: Row, name: str) -> tuple[str, ...]:
    where = f"{name} (on-demand)" if row.market == "on_demand" else name
    in_time = "" if row.p_deadline is None else words.percent(row.p_deadline)
    best = words.percent(row.p_best) if row.market == "spot" else ""
    price = words.dollars(row.price_usd_h)
    return (where, price, money(row.per_useful_hour), f"{row.goodput:.1%}", in_time, best)


def _costs(advice: Advice) -> Iterator[str]:
    stated = advice.request.costs
    yield (
        f"Costs: storage ${stated.storage_usd_gb_month:g} a GB-month, traffic ${stated.egress_usd_gb:g} a GB,"
        f" a failure {stated.engineer_h_per_failure:g} h of an engineer at ${stated.engineer_usd_h:g} and"
        f" ${stated.failed_run_usd:g} of lost runs."
    )


def _bids(found: BidCurve) -> str:
    points = ", ".join(
        f"{words.dollars(point.bid_usd_h)}: {words.dollars(point.per_useful_hour)}" for point in found.points
    )
    best = words.dollars(found.best.bid_usd_h)
    return f"bid in {words.place(found.pool)}: {best}; a useful hour at each bid: {points}"
