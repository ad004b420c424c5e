"""``outlast history merge``: the histories of many nodes in one place."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from outlast.daemon.cli import history_common as common

if TYPE_CHECKING:
    from outlast.daemon.fleet.telling import Tell
    from outlast.providers.base import Clock

WHO = "outlast history merge"
_EXAMPLES = """\
examples:
  outlast history merge --into fleet.sqlite3 a.sqlite3 b.sqlite3 replicas/tune/stats
                                               files of nodes, and the segments that a peer has received
  outlast history merge --into fleet --parquet /srv/histories/*.sqlite3
                                               Parquet for any number of nodes, also for other programs
  outlast history merge --into s3://bucket/outlast fleet.sqlite3
                                               Parquet in an object store

What is there already is not added again, whatever the order, and several mergers may run at once. A source is
a history file, a folder of segments, a CSV file of spells, or a folder or URL of Parquet.

exit status: 0 all is there now, 1 a source cannot be read or DEST not written, 2 usage
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``merge`` to the sub-commands of ``outlast history``."""
    parser = subparsers.add_parser(
        "merge",
        help="the histories of many nodes in one place",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="what to merge")
    common.add_into(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Merge. Returns DONE, or FAILED with what is wrong with a source or the destination."""
    from outlast.daemon.fleet.load import read
    from outlast.providers.base import SystemClock

    now = (clock or SystemClock()).wall()

    def merge(tell: Tell) -> int:
        common.not_our_own(args.into)
        return common.fill(args, read(args.sources), args.sources, now, WHO, tell)

    return common.guarded(WHO, merge)
