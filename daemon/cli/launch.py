"""``outlast history launch``: what a launch script tells the history, so that the chance of one is known."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.daemon.cli.config import DEFAULT_FILE
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from outlast.daemon.history.rows import Pool
    from outlast.providers.base import Clock

MOST_NODES = 1_000_000
_EXAMPLES = """\
examples:
  outlast history launch --pool aws/us-east-1/use1-az4/p4d.24xlarge --asked 16 --got 13
  outlast history launch --pool gcp/us-central1/us-central1-a/a3-highgpu-8g --asked 1 --got 0 \\
      --id "$REQUEST" --at 2026-03-01T12:00:00Z --db /srv/launches.sqlite3

One attempt is one line of the history, also when nothing came. Told again under the same --id it is still
one attempt, and the larger figures count, so that a script may repeat it. Use zone ids where the provider
has them. The daemon may be running or not; on a machine without one, --db names a file of your own.

exit status: 0 recorded, 1 not (the message says why), 2 usage
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``launch`` to the sub-commands of ``outlast history``."""
    parser = subparsers.add_parser(
        "launch",
        help="record an attempt to get instances",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``launch``."""
    pool = "PROVIDER/REGION/ZONE/INSTANCE-TYPE"
    parser.add_argument("--pool", required=True, type=_pool, metavar=pool, help="the zone may be empty")
    parser.add_argument("--asked", required=True, type=_count, metavar="N", help="instances asked for")
    parser.add_argument("--got", required=True, type=_count, metavar="N", help="instances that came")
    parser.add_argument(
        "--at", type=_instant, metavar="TIME", help="ISO 8601 with zone, or UTC epoch seconds"
    )
    parser.add_argument("--id", type=_id, help="a name of this attempt (default: a new one)")
    parser.add_argument("--by", default="", metavar="WHO", help="who asked, such as a launcher's name")
    parser.add_argument(
        "--db", type=Path, metavar="FILE", help=f"the history (default: the state folder of {DEFAULT_FILE})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Record the attempt durably. Returns DONE, or FAILED with what is wrong with the file."""
    from outlast.daemon.history.launches import NotRecordedError, record
    from outlast.daemon.history.rows import LaunchRow
    from outlast.providers.base import SystemClock

    if args.got > args.asked:
        print(f"outlast history launch: --got {args.got} is more than --asked {args.asked}", file=sys.stderr)
        return ExitCode.USAGE
    at = args.at if args.at is not None else (clock or SystemClock()).wall()
    name = args.id or f"{int(at)}-{secrets.token_hex(6)}"
    path = args.db or _own_file()
    try:
        record(path, LaunchRow(name, args.pool, at, args.asked, args.got, args.by), make=args.db is not None)
    except NotRecordedError as exc:
        print(f"outlast history launch: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    if args.json:
        print(json.dumps({"format": 1, "id": name, "at": at, "file": str(path)}))
    else:
        print(f"recorded as {name}")
    return ExitCode.DONE


def _own_file() -> Path:
    from outlast.daemon.cli.history import _own_file as own_file

    return own_file()


def _pool(text: str) -> Pool:
    from outlast.daemon.history.rows import Pool

    parts = text.split("/")
    if len(parts) != 4 or not all(parts[i] for i in (0, 1, 3)) or not text.isprintable() or len(text) > 512:
        raise argparse.ArgumentTypeError(
            "must be PROVIDER/REGION/ZONE/INSTANCE-TYPE, such as aws/us-east-1/use1-az4/p4d.24xlarge"
        )
    return Pool(*parts)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > MOST_NODES:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to {MOST_NODES}")
    return int(text)


def _id(text: str) -> str:
    if not text or not text.isprintable() or len(text) > 256:
        raise argparse.ArgumentTypeError("must be 1 to 256 printable characters")
    return text


def _instant(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = _iso(text)
    if not 0 <= value < 1e11:
        raise argparse.ArgumentTypeError("must be a time since 1970")
    return value


def _iso(text: str) -> float:
    try:
        when = dt.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a time such as 2026-03-01T12:00:00Z") from None
    if when.tzinfo is None:
        raise argparse.ArgumentTypeError("needs its zone: end it with Z for UTC")
    return when.timestamp()
