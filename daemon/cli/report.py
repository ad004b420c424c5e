"""``outlast report``: what is known of each pool, for people; in the terminal or as one HTML file."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from outlast.daemon.cli import advise_args, studying
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.daemon.advice.values import Advice, BackTest, Request
    from outlast.daemon.rates.table import Observed
    from outlast.daemon.rates.values import Study
    from outlast.providers.base import Clock
    from outlast.providers.market.base import Quote, Risk

_EXAMPLES = """\
examples:
  outlast report                               this node's history, in the terminal
  outlast report --since 90d --html report.html
                                               the last 90 days, as one page to read, print or send
  outlast report a.sqlite3 b.sqlite3 --csv     several nodes' files, merged; one row a pool
  outlast report replicas/tune/stats --html fleet.html --zone Europe/Berlin
                                               the segments that a peer has received
  outlast report --hours 40 --gpus 8 --quotes prices.json --html report.html
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
    job.add_argument("--hours", type=advise_args.positive, metavar="H", help="useful training hours it needs")
    job.add_argument("--gpus", type=advise_args.count, default=1, metavar="N", help="GPUs (default 1)")
    job.add_argument("--type", default="", metavar="NAME", help="their type, such as a100")
    advise_args.add_quotes(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Make the report. Returns DONE, or FAILED with what is wrong with a source or the file to write."""
    from outlast.daemon.cli.page_file import WriteError
    from outlast.providers.base import SystemClock
    from outlast.providers.market.offline import OfflineError

    now = (clock or SystemClock()).wall()
    try:
        _make(args, now)
    except (studying.SourceError, OfflineError, WriteError) as exc:
        print(f"outlast report: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.DONE


def _make(args: argparse.Namespace, now: float) -> None:
    from outlast.daemon.advice.backtest import backtest
    from outlast.daemon.advice.values import Request

    quotes, risks = advise_args.market_of(args.quotes)
    study, observed = studying.studied(args, now)
    # The past is asked on behalf of a job of a day where none is named.
    request = Request(hours=args.hours or 24.0, gpus=args.gpus, gpu_type=args.type)
    test = backtest(observed, request)
    advice = None if args.hours is None else _advice(study, observed, request, test, quotes, risks, now)
    if args.html:
        from outlast.daemon.cli.page_file import write
        from outlast.daemon.report.html import page

        write(args.html, page(study, advice, observed, now, args.zone, quotes, risks, test), "outlast report")
    if not args.html or args.json or args.csv:
        _print(args, study, observed, advice, test)


def _advice(
    study: Study,
    observed: Observed,
    request: Request,
    test: BackTest,
    quotes: Sequence[Quote],
    risks: Sequence[Risk],
    now: float,
) -> Advice:
    from outlast.daemon.advice.recommend import advise

    return advise(study, observed, request, quotes, risks, now, test)


def _print(
    args: argparse.Namespace, study: Study, observed: Observed, advice: Advice | None, test: BackTest
) -> None:
    from outlast.daemon.report import machine, terminal

    if args.json:
        print(json.dumps(machine.body(study, observed, advice, backtest=test), allow_nan=False))
    elif args.csv:
        print(machine.pools_csv(study), end="")
    else:
        terminal.show(study, observed, args.zone, sys.stdout, advice, backtest=test)
