"""``outlast report``: what is known of each pool, for people; in the terminal or as one HTML file."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.daemon.cli import studying
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from outlast.daemon.advice.values import Advice
    from outlast.daemon.rates.table import Observed
    from outlast.daemon.rates.values import Study
    from outlast.providers.base import Clock

_EXAMPLES = """\
examples:
  outlast report                               this node's history, in the terminal
  outlast report --since 90d --html report.html
                                               the last 90 days, as one page to read, print or send
  outlast report a.sqlite3 b.sqlite3 --csv     several nodes' files, merged; one row a pool
  outlast report replicas/tune/stats --html fleet.html --zone Europe/Berlin
                                               the segments that a peer has received

The page needs no network and no script. A history in which nothing was seen yet makes a report that says so.

exit status: 0 a report was made, 1 a source cannot be read or the file not written, 2 usage
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``report``."""
    parser = subparsers.add_parser(
        "report",
        help="interruption rates with their ranges, when and where to run, as text or one HTML page",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    studying.add_arguments(parser)
    parser.add_argument("--html", metavar="FILE", help="write one HTML page there; - is standard output")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Make the report. Returns DONE, or FAILED with what is wrong with a source or the file to write."""
    from outlast.providers.base import SystemClock

    now = (clock or SystemClock()).wall()
    try:
        study, observed = studying.studied(args, now)
        advice: Advice | None = None
        if args.html:
            _write_page(args, study, observed, advice, now)
        if not args.html or args.json or args.csv:
            _print(args, study, observed, advice)
    except studying.SourceError as exc:
        print(f"outlast report: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.DONE


def _print(args: argparse.Namespace, study: Study, observed: Observed, advice: Advice | None) -> None:
    from outlast.daemon.report import machine, terminal

    if args.json:
        print(json.dumps(machine.body(study, observed, advice), allow_nan=False))
    elif args.csv:
        print(machine.pools_csv(study), end="")
    else:
        terminal.show(study, observed, args.zone, sys.stdout, advice)


def _write_page(
    args: argparse.Namespace, study: Study, observed: Observed, advice: Advice | None, now: float
) -> None:
    from outlast.daemon.report.html import page

    text = page(study, advice, observed, now, args.zone)
    if args.html == "-":
        print(text)
        return
    file = Path(args.html)
    try:
        _replace(file, text)
    except OSError as exc:
        message = (
            f"cannot write {file}: {exc.strerror or exc}; name a file in a folder that may be written to"
        )
        raise studying.SourceError(message) from exc
    print(f"outlast report: written to {file}", file=sys.stderr)


def _replace(file: Path, text: str) -> None:
    """Write beside and rename: a page that was there before is whole until the new one is."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as held:
        new = Path(held.name)
        try:
            held.write(text)
            held.close()
            new.chmod(0o644)
            new.replace(file)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
