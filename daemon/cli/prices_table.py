"""The table of ``outlast prices``: a row a pool, a column a measure, never two measures in one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outlast.providers.market.base import Answer, Measure, QuoteKind
from outlast.providers.market.catalogue import gpus_of

PRICES: dict[QuoteKind, str] = {
    "spot": "spot $/h",
    "min_bid": "lowest bid $/h",
    "on_demand": "on-demand $/h",
}
MEASURES: dict[Measure, str] = {
    "reclaimed-per-month": "reclaimed (month)",
    "savings": "savings",
    "evicted-per-hour": "evicted %/h",
    "preempted-of-stopped": "preempted/stopped",
    "placement-score": "launch score",
    "obtainability": "obtainable 0-1",
    "estimated-uptime": "uptime, est.",
    "stock": "stock",
}

Place = tuple[str, str, str, str]


@dataclass(slots=True)
class _Line:
    """The latest of everything about one pool, with the time from which it holds."""

    prices: dict[QuoteKind, tuple[float, int]] = field(default_factory=dict)
    figures: dict[Measure, tuple[float, str]] = field(default_factory=dict)

    def order(self, place: Place) -> tuple[float, Place]:
        """By the lowest price of one GPU; without a price last."""
        least = min((micro for _at, micro in self.prices.values()), default=None)
        gpus = gpus_of(place[3])
        return (float("inf") if least is None else least / (gpus[1] if gpus else 1), place)


def table(answers: Iterable[Answer], most: int) -> tuple[list[str], list[list[str]], int]:
    """Headings, the ``most`` cheapest rows, and how many more there are. Cells are printable text.

    A column is there if any row has something in it. Prices of a whole region stand in rows of their own.
    """
    lines = _latest(answers)
    ordered = sorted(lines, key=lambda place: lines[place].order(place))
    prices = [kind for kind in PRICES if any(kind in line.prices for line in lines.values())]
    figures = [measure for measure in MEASURES if any(measure in line.figures for line in lines.values())]
    headings = ["provider", "region", "zone", "type", "GPUs"]
    headings += [PRICES[kind] for kind in prices] + [MEASURES[measure] for measure in figures]
    rows = [_cells(place, lines[place], prices, figures) for place in ordered[:most]]
    return headings, rows, max(0, len(ordered) - most)


def _latest(answers: Iterable[Answer]) -> dict[Place, _Line]:
    lines: dict[Place, _Line] = {}
    for answer in answers:
        for quote in answer.quotes:
            line = lines.setdefault((quote.provider, quote.region, quote.zone, quote.instance_type), _Line())
            if quote.at >= line.prices.get(quote.kind, (0.0, 0))[0]:
                line.prices[quote.kind] = (quote.at, quote.micro_usd)
        for risk in answer.risks:
            line = lines.setdefault((risk.provider, risk.region, risk.zone, risk.instance_type), _Line())
            if risk.at >= line.figures.get(risk.measure, (0.0, ""))[0]:
                line.figures[risk.measure] = (risk.at, risk.text)
    return lines


def _cells(place: Place, line: _Line, prices: Sequence[QuoteKind], figures: Sequence[Measure]) -> list[str]:
    gpus = gpus_of(place[3])
    cells = [*place, f"{gpus[1]} {gpus[0]}" if gpus else ""]
    cells += [f"{line.prices[kind][1] / 1e6:.4f}" if kind in line.prices else "" for kind in prices]
    cells += [line.figures[measure][1] if measure in line.figures else "" for measure in figures]
    return ["".join(c if c.isprintable() else " " for c in cell) or "-" for cell in cells]
