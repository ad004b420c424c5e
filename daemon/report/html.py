"""The report as one HTML file: no script, nothing from elsewhere, all labels escaped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from outlast import __version__
from outlast.daemon.advice.values import Advice, BackTest
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import Study
from outlast.daemon.report import findings, rows, times, words
from outlast.daemon.report.answer import answer
from outlast.daemon.report.market import Market
from outlast.daemon.report.panels import panels
from outlast.providers.market.base import Quote, Risk

# Nothing may be fetched and no script runs; style sheets only from the page itself.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(
    study: Study,
    advice: Advice | None,
    observed: Observed,
    now: float,
    zone: times.Zone,
    quotes: Sequence[Quote] = (),
    risks: Sequence[Risk] = (),
    backtest: BackTest | None = None,
) -> str:
    """The whole page. ``quotes`` and ``risks`` are shown beside the rates, never mixed into them.

    ``backtest`` is what asking the past for advice said; left out, it is the advice's own.
    """
    market = Market(observed.prices, quotes, risks)
    shown = panels(study, observed, advice, zone)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            policy=POLICY,
            style=_style(),
            version=__version__,
            title=findings.title(study),
            totals=findings.totals(study),
            made=times.stamp(now, zone),
            zone="" if times.is_utc(zone, now) else times.abbreviation(zone, now),
            answer=answer(study, advice, observed, zone),
            options=rows.options(advice),
            pools=rows.pools(study, market),
            shown=shown,
            weekends=study.weekends,
            daily=findings.daily(study, observed.table, zone),
            backtests=rows.backtests(study, backtest or (advice.backtest if advice else None)),
            raw=rows.raw(study, observed),
            weeks=rows.weeks(shown.trends),
            ages=study.ages,
            sources=findings.notes(observed.sources),
            notes=findings.notes(study.notes, observed.notes),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("outlast.daemon.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"words": words, "findings": findings}
    environment.filters["per100"] = lambda found: words.typeset(words.spread(found))
    return environment


def _style() -> Markup:
    file = resources.files("outlast.daemon.report") / "templates" / "page.css"
    return Markup(file.read_text(encoding="utf-8"))  # noqa: S704 - our own file, no word from outside
