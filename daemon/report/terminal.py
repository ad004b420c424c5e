"""The report in a terminal: rich where it is one, plain text where it is not, 100 columns at most."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from outlast.daemon.advice.values import Advice, BackTest
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import Claim, PoolRate, Study
from outlast.daemon.report import findings, sparks, times, words
from outlast.daemon.report.text import clean

WIDTH = 100
# More pools than these fill screens; the other forms have all of them.
MOST_POOLS = 60
# Longer names go on in the next line, so that the column for the data keeps its width.
_NAME, _NAME_WIDTH, _DATA_WIDTH = 56, 28, 16
NOTHING = "No history yet: not one instance-hour has been seen."
HEADINGS = ("pool", "hours seen", "losses", "per 100 h (90 %)", "typical stay", "data")
_COLOURS = {"ok": "green", "thin": "yellow", "stale": "yellow", "not enough": "dim"}


def show(
    study: Study,
    observed: Observed,
    zone: times.Zone,
    out: TextIO,
    advice: Advice | None = None,
    claims: tuple[Claim, ...] = (),
    backtest: BackTest | None = None,
) -> None:
    """Print the report to ``out``: with colour if it is a terminal, in ASCII if its encoding is no more."""
    printed((*_page(study, observed, zone, advice, claims), *_backtest(backtest)), out)


def _backtest(test: BackTest | None) -> Iterator[RenderableType]:
    if test is not None:
        yield Text(clean(test.sentence, 400))


def printed(page: tuple[RenderableType, ...], out: TextIO) -> None:
    """Print renderables to ``out`` as ``show`` does."""
    if out.isatty() and _can(out, sparks.BLOCKS):
        console = Console(file=out, highlight=False, markup=False, emoji=False)
        console = Console(
            file=out, width=min(console.width, WIDTH), highlight=False, markup=False, emoji=False
        )
        console.print(*page, sep="\n")
        return
    text = plain(page)
    out.write(text if _can(out, text) else sparks.in_ascii(text))


def text(study: Study, observed: Observed, zone: times.Zone, advice: Advice | None = None) -> str:
    """The report as plain text."""
    return plain(tuple(_page(study, observed, zone, advice, ())))


def plain(page: tuple[RenderableType, ...]) -> str:
    """Renderables as text without escape sequences, no line wider than WIDTH, none with a tail of blanks."""
    held = StringIO()
    console = Console(
        file=held, width=WIDTH, color_system=None, force_terminal=False, highlight=False, emoji=False
    )
    console.print(*page, sep="\n")
    return "".join(f"{line.rstrip()}\n" for line in held.getvalue().splitlines())


def _can(out: TextIO, text: str) -> bool:
    try:
        text.encode(out.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _page(
    study: Study,
    observed: Observed,
    zone: times.Zone,
    advice: Advice | None,
    claims: tuple[Claim, ...],
) -> Iterator[RenderableType]:
    if not study.pools:
        yield Text(NOTHING)
    else:
        yield from _header(study)
        yield Padding(pool_table(study.pools), (0, 0, 0, 2))
        if len(study.pools) > MOST_POOLS:
            yield Text(
                f"  and {len(study.pools) - MOST_POOLS} more pools: --csv, --json and --html have all."
            )
        yield from _when(study, observed, zone)
        yield from _claims(claims)
    if advice is not None:
        yield from _advice(advice, zone)
    for note in findings.notes(study.notes, observed.notes):
        yield Text(f"Note: {note}")


def _header(study: Study) -> Iterator[RenderableType]:
    title, totals = findings.title(study), findings.totals(study)
    gap = WIDTH - len(title) - len(totals)
    line = f"{title}{' ' * gap}{totals}" if gap >= 2 else f"{title}\n  {totals}"
    yield Text(line, style="bold")


def pool_table(pools: tuple[PoolRate, ...]) -> Grid:
    """The pool table, the calmest first, its first MOST_POOLS rows."""
    shown = pools[:MOST_POOLS]
    called = words.names([pool.pool for pool in shown], _NAME)
    names = [words.told_apart(called[pool.pool], pool.origin) for pool in shown]
    name_width = min(_NAME_WIDTH, max(map(cell_len, names), default=0))
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in HEADINGS:
        last = heading == HEADINGS[-1]
        numbers = heading not in (HEADINGS[0], HEADINGS[-1])
        grid.add_column(
            heading,
            justify="right" if numbers else "left",
            no_wrap=numbers,
            overflow="fold",
            min_width=_DATA_WIDTH if last else None,
            width=None if numbers or last else name_width,
        )
    for name, pool in zip(names, shown, strict=True):
        # Text, not str: brackets in a name that came from outside are no markup.
        grid.add_row(
            Text(name),
            words.figure(pool.exposure_h, 0 if pool.exposure_h >= 10 else 1),
            f"{pool.losses:,}",
            words.rate(pool),
            words.hours(pool.typical_stay_h),
            Text(words.state(pool), style=_COLOURS[pool.state]),
        )
    return grid


def _when(study: Study, observed: Observed, zone: times.Zone) -> Iterator[RenderableType]:
    for found in study.weekends:
        yield Text(findings.weekend(found))
    verdicts = findings.daily(study, observed.table, zone)
    lined = [verdict for verdict in verdicts if verdict.sparkline]
    if lined:
        yield Text("Hours of the day, 00 to 23 UTC, from half to twice the region's mean:")
        yield Padding(_sparklines(lined), (0, 0, 0, 2))
    for verdict in verdicts:
        if not verdict.sparkline:
            yield Text(verdict.sentence)
    for curve in study.ages:
        if told := findings.age(curve):
            yield Text(told)
    yield Text(findings.backtest(study))


def _sparklines(verdicts: list[findings.Daily]) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column(no_wrap=True)
    grid.add_column()
    for verdict in verdicts:
        style = "cyan" if verdict.pattern.state == "pattern" else "dim"
        grid.add_row(Text(verdict.sparkline, style=style), Text(verdict.sentence))
    return grid


def _claims(claims: tuple[Claim, ...]) -> Iterator[RenderableType]:
    if claims:
        hours = ", ".join(f"{hour:02d}" for hour in claims[0].hours)
        yield Text(f"More losses at {hours} UTC?")
    for claim in claims:
        name = findings.region(claim.provider, claim.region)
        told = clean(claim.sentence, 300).removeprefix(f"{claim.verdict}: ")
        yield Padding(Text(f"{claim.verdict} in {name}: {told}"), (0, 0, 0, 2))


def _advice(advice: Advice, zone: times.Zone) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(f"Advice: {clean(advice.sentence, 400)}", style="bold")
    for heading, lines in (("Because", advice.reasons), ("Not known", advice.not_known)):
        for line in lines:
            yield Text(f"  {heading}: {clean(line, 300)}")
    yield Text(f"  Valid until {times.stamp(advice.valid_until, zone)}.")
