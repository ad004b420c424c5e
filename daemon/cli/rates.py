"""``outlast rates``: how often each pool is taken back, and whether the hour of the day matters."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from outlast.daemon.cli import studying
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from outlast.providers.base import Clock

_EXAMPLES = """\
examples:
  outlast rates                                this node's pools, with 90 % ranges
  outlast rates --since 30d a.sqlite3 b.sqlite3
  outlast rates --claim 0,6,12,18 s3://bucket/fleet
                                               is more lost in those UTC hours? one verdict a region
  outlast rates --json | jq '.pools[] | select(.state == "ok") | .pool.zone'

A claim is supported, refused, or open where the data cannot tell.

exit status: 0 also where there is too little to say anything, 1 a source cannot be read, 2 usage
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``rates``."""
    parser = subparsers.add_parser(
        "rates",
        help="interruption rates by pool, and the verdicts on weekends and hours of the day",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    studying.add_arguments(parser)
    parser.add_argument(
        "--claim",
        type=_hours,
        metavar="HOURS",
        help="test a claimed set of UTC hours, such as 0,6,12,18; with --csv one row a verdict",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Print the rates. Returns DONE, or FAILED with what is wrong with a source."""
    from outlast.providers.base import SystemClock

    now = (clock or SystemClock()).wall()
    try:
        study, observed = studying.studied(args, now)
    except studying.SourceError as exc:
        print(f"outlast rates: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    from outlast.daemon.rates.claim import claims
    from outlast.daemon.report import machine, terminal

    found = claims(observed.table, args.claim) if args.claim else ()
    if args.json:
        body = machine.body(study, observed, claims=found)
        del body["advice"]
        print(json.dumps(body, allow_nan=False))
    elif args.csv:
        print(machine.claims_csv(found) if args.claim else machine.pools_csv(study), end="")
    else:
        terminal.show(study, observed, args.zone, sys.stdout, claims=found)
    return ExitCode.DONE


def _hours(text: str) -> tuple[int, ...]:
    try:
        hours = sorted({int(word) for word in text.split(",")})
    except ValueError:
        hours = []
    if not hours or not 0 <= hours[0] <= hours[-1] <= 23 or len(hours) == 24:
        message = f"{text!r} is not a set of hours: whole numbers from 0 to 23 with commas, such as 0,6,12,18"
        raise argparse.ArgumentTypeError(message)
    return tuple(hours)
