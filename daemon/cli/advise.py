"""``outlast advise``: where and when to run a job, at which checkpoint interval, for what cost."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from outlast.daemon.cli import studying
from outlast.daemon.cli.advise_args import add_job, add_prices, market_of, quotes_of, request_of
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.daemon.advice.values import Advice
    from outlast.daemon.rates.table import Observed
    from outlast.daemon.rates.values import Study
    from outlast.providers.base import Clock
    from outlast.providers.market.base import Quote, Risk

_EXAMPLES = """\
examples:
  outlast advise --hours 40 --gpus 8 --type a100
                                               from this node's own history
  outlast advise fleet.sqlite3 --hours 40 --type v100 --deadline 60h --params 1.3e9
                                               done within 60 hours? checkpoints of a 1.3B model
  outlast advise --hours 40 --type a100 --quotes prices.json --price aws/us-east-1=32.77/od
                                               with prices of 'outlast prices --json', and one by hand
  outlast advise --hours 40 --stall 5s --restart 8m --engineer 150 --engineer-hours 2.3 --json
                                               what is known of the job, and what a failure costs people

"A tie" and "not enough data" are answers. Without prices, pools are ranked by the time that they lose.

exit status: 0 an answer was given, 1 a source or a file of prices cannot be read, 2 usage
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``advise``."""
    parser = subparsers.add_parser(
        "advise",
        help="where and when to run a job, how often to save, and what it will cost",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    studying.add_sources(parser)
    add_job(parser)
    add_prices(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument(
        "--html", metavar="FILE", help="write the whole report with this advice; - is standard output"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Print the advice. Returns DONE, FAILED with what cannot be read, or USAGE for a type nobody knows."""
    from outlast.daemon.advice.backtest import backtest
    from outlast.daemon.advice.recommend import advise
    from outlast.daemon.report import advising, machine
    from outlast.providers.base import SystemClock
    from outlast.providers.market.catalogue import UnknownTypeError
    from outlast.providers.market.offline import OfflineError

    now = (clock or SystemClock()).wall()
    try:
        quotes, risks = market_of(args.quotes)
        study, observed = studying.studied(args, now)
        request = request_of(args, now, {rate.pool.instance_type for rate in study.pools})
        quotes = (*quotes, *quotes_of(args.price, study, now))
    except (studying.SourceError, OfflineError) as exc:
        print(f"outlast advise: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    except UnknownTypeError as exc:
        print(f"outlast advise: {exc}", file=sys.stderr)
        return ExitCode.USAGE
    advice = advise(study, observed, request, quotes, risks, now, backtest(observed, request))
    if args.html:
        return _page(args, study, observed, advice, quotes, risks, now)
    if args.json:
        print(json.dumps(machine.advice_body(advice, observed), allow_nan=False))
    else:
        advising.show(advice, args.zone, sys.stdout)
    return ExitCode.DONE


def _page(
    args: argparse.Namespace,
    study: Study,
    observed: Observed,
    advice: Advice,
    quotes: Sequence[Quote],
    risks: Sequence[Risk],
    now: float,
) -> int:
    from outlast.daemon.cli.page_file import WriteError, write
    from outlast.daemon.report.html import page

    try:
        write(args.html, page(study, advice, observed, now, args.zone, quotes, risks), "outlast advise")
    except WriteError as exc:
        print(f"outlast advise: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    return ExitCode.DONE
