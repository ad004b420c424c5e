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
  outlast report s3://bucket/fleet --html fleet.html --zone Europe/Berlin
  outlast report --hours 40 --gpus 8 --html report.html
                                               with a recommendation for a job of 40 hours

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
    job = parser.add_argument_group("a recommendation, for a job (outlast advise has more to say about it)")
    job.add_argument("--hours", type=_positive, metavar="H", help="useful training hours that it needs")
    job.add_argument("--gpus", type=_count, default=1, metavar="N", help="GPUs that it needs (default 1)")
    job.add_argument("--type", default="", metavar="NAME", help="their type, such as a100")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Make the report. Returns DONE, or FAILED with what is wrong with a source or the file to write."""
    from outlast.providers.base import SystemClock

    now = (clock or SystemClock()).wall()
    try:
        study, observed = studying.studied(args, now)
        advice = _advice(args, study, observed, now)
        if args.html:
            _write_page(args, study, observed, advice, now)
        if not args.html or args.json or args.csv:
            _print(args, study, observed, advice)
    except studying.SourceError as exc:
        print(f"outlast report: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.DONE


def _advice(args: argparse.Namespace, study: Study, observed: Observed, now: float) -> Advice | None:
    if args.hours is None:
        return None
    from outlast.daemon.advice.recommend import advise
    from outlast.daemon.advice.values import Request

    request = Request(hours=args.hours, gpus=args.gpus, gpu_type=args.type)
    return advise(study, observed, request, (), (), now)


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


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of hours above nothing")
    return value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of GPUs above nothing")
    return int(text)
