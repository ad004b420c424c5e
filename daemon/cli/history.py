"""``outlast history``: what happened on these nodes, in plain counts."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.daemon.cli import history_import, history_merge, history_share, launch
from outlast.daemon.cli.config import DEFAULT_FILE, config_file
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from outlast.daemon.history.counting import Counts, PoolCounts
    from outlast.daemon.history.rows import Event, Pool
    from outlast.providers.base import Clock

DEFAULT_DB = Path("/var/lib/outlast/history.sqlite3")
MOST_EVENTS = 1000

_EXAMPLES = """\
examples:
  outlast history                              this node
  outlast history --since 30d --events         the last 30 days, with the timeline
  outlast history --db a.sqlite3 --db b.sqlite3 --json
                                               several nodes' files, counted together
  outlast history merge --into fleet.sqlite3 a.sqlite3 b.sqlite3
                                               several nodes' files, made one (merge --help has more)

exit status: 0, 1 if a file is missing or unreadable, 2 usage
"""
_HEADINGS = (
    "pool",
    "exposure",
    "spells",
    "interruptions",
    "silent",
    "bursts",
    "hints",
    "withdrawn",
    "drills",
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``history``."""
    parser = subparsers.add_parser(
        "history",
        help="count interruptions, bursts and instance-hours",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--db",
        type=Path,
        action="append",
        metavar="FILE",
        help=f"a history file; repeat for several (default: the state folder of {DEFAULT_FILE})",
    )
    parser.add_argument(
        "--since", type=_length, metavar="TIME", help="only this far back, such as 12h or 30d"
    )
    parser.add_argument(
        "--events", action="store_true", help=f"the timeline too, its last {MOST_EVENTS} lines"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)
    more = parser.add_subparsers(metavar="COMMAND", title="commands")
    for command in (history_merge, history_import, history_share, launch):
        command.register(more)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Print the counts. Returns DONE, or FAILED with what is wrong with a file."""
    from outlast.daemon.cli.history_common import count_imported
    from outlast.daemon.history.counting import count, merge
    from outlast.daemon.history.reading import UnreadableError, read_file_events, read_rows
    from outlast.providers.base import SystemClock

    now = (clock or SystemClock()).wall()
    since = 0.0 if args.since is None else now - args.since
    files = args.db or [_own_file()]
    try:
        counts = count(merge(*map(read_rows, files)), now, since)
        events = [e for file in files for e in read_file_events(file, since, MOST_EVENTS) if args.events]
        imported = sum(map(count_imported, files))
    except UnreadableError as exc:
        print(f"outlast history: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    events = sorted(events, key=lambda event: event.wall)[-MOST_EVENTS:]
    if imported:
        told = f"{imported} imported spells are not counted here, but by 'outlast report'"
        print(f"outlast history: {told}", file=sys.stderr)
    if args.json:
        print(json.dumps(_body(files, since, now, counts, events if args.events else None)))
    else:
        _print_table(counts)
        print(_verdict(counts.total))
        _print_events(events)
    return ExitCode.DONE


def _length(text: str) -> float:
    from outlast.daemon.config.duration import seconds

    try:
        return seconds(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def _own_file() -> Path:
    """The running daemon's file, as its configuration says; its usual place if there is none to read."""
    file = config_file(None)
    if not file.is_file():
        return DEFAULT_DB
    from outlast.daemon.config import ConfigError, load

    try:
        return load(file, assume_credentials=True).node.state / DEFAULT_DB.name
    except ConfigError:
        return DEFAULT_DB


def _body(
    files: list[Path], since: float, now: float, counts: Counts, events: list[Event] | None
) -> dict[str, object]:
    total = asdict(counts.total)
    del total["pool"]
    body: dict[str, object] = {
        "format": 1,
        "files": [str(file) for file in files],
        "since": since,
        "until": now,
        "pools": [asdict(pool) for pool in counts.pools],
        "total": total,
    }
    if events is not None:
        body["events"] = [asdict(event) for event in events]
    return body


def _cells(pool: PoolCounts, name: str) -> tuple[str, ...]:
    whole = (
        pool.spells,
        pool.interruptions,
        pool.silent,
        pool.bursts,
        pool.hints,
        pool.withdrawn,
        pool.drills,
    )
    return (name, f"{pool.exposure_hours:.1f} h", *map(str, whole))


def _name(pool: Pool) -> str:
    place = pool.zone or pool.region
    return " ".join(part for part in (pool.provider, place, pool.instance_type) if part) or "unknown"


def _print_table(counts: Counts) -> None:
    lines = [_cells(pool, _name(pool.pool)) for pool in counts.pools]
    if len(lines) > 1:
        lines.append(_cells(counts.total, "all"))
    if sys.stdout.isatty():
        _print_rich(lines)
        return
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *lines, strict=True)]
    for line in (_HEADINGS, *lines):
        first, *rest = line
        numbers = "  ".join(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        print(f"{first.ljust(widths[0])}  {numbers}")


def _print_rich(lines: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for number, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="right" if number else "left")
    for line in lines:
        # Text, not str: brackets in a name that came from outside are no markup.
        table.add_row(*map(Text, line))
    Console().print(table)


def _verdict(total: PoolCounts) -> str:
    hours = f"{total.exposure_hours:.1f} instance-hours"
    if total.interruptions == 0:
        return f"No interruption in {hours}: not enough data to say anything about a rate."
    strokes = f"{total.interruptions} interruption{'s' if total.interruptions != 1 else ''}"
    groups = f"{total.bursts} burst{'s' if total.bursts != 1 else ''}"
    return f"{strokes} in {groups} over {hours}. These are counts; a rate without its interval would mislead."


def _print_events(events: list[Event]) -> None:
    if events:
        print()
    for event in events:
        when = dt.datetime.fromtimestamp(event.wall, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        fields = " ".join(f"{name}={_shown(value)}" for name, value in event.fields.items())
        print(" ".join(part for part in (f"{when}Z", _shown(event.kind), _shown(event.job), fields) if part))


def _shown(value: object) -> str:
    """On one line, without control characters: fields hold words of providers and peers."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if text.isprintable() else repr(text)
