"""``outlast history share``: sums of each pool that can be given to others, and nothing of single nodes."""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO, cast

from outlast.daemon.cli import history_common as common
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.daemon.fleet.rollup import Shared
    from outlast.daemon.fleet.telling import Tell
    from outlast.daemon.rates.table import Table
    from outlast.providers.base import Clock

WHO = "outlast history share"
_EXAMPLES = """\
examples:
  outlast history share --out rollup.csv fleet.sqlite3
  outlast history share --out rollup.csv.gz s3://bucket/outlast --json

The file has, of each pool, day, hour (UTC) and age band, the instance-hours at risk, the nodes lost and the
bursts. There are no names of nodes or jobs, no ids, no prices and no single stays in it, and nothing of pools
with fewer than three nodes. Pools are named by provider, region, zone and instance type: read it before you
give it away.

exit status: 0 written, 1 a source cannot be read or the file not written, 2 usage
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``share`` to the sub-commands of ``outlast history``."""
    parser = subparsers.add_parser(
        "share",
        help="sums of each pool by day, hour and age, without single nodes",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="as for outlast history merge")
    parser.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="FILE",
        help="the CSV file to write, packed if it ends in .gz",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Write the sums. Returns DONE, or FAILED with what is wrong with a source or the file."""
    from outlast.daemon.fleet.load import observe
    from outlast.daemon.fleet.rollup import FLOOR
    from outlast.providers.base import SystemClock

    now = (clock or SystemClock()).wall()

    def share(tell: Tell) -> int:
        seen = observe(args.sources, now, tell)
        shared = _write(seen.table, args.out, tell)
        if args.json:
            print(
                json.dumps({"format": 1, "out": str(args.out), **asdict(shared), "notes": list(seen.notes)})
            )
            return ExitCode.DONE
        for note in seen.notes:
            print(f"{WHO}: {common.plain(note)}", file=sys.stderr)
        print(f"{shared.rows} rows of {shared.pools} pools written to {common.plain(str(args.out))}")
        if shared.left_out:
            print(f"{shared.left_out} pools left out: fewer than {FLOOR} nodes")
        return ExitCode.DONE

    return common.guarded(WHO, share)


def _write(table: Table, file: Path, tell: Tell) -> Shared:
    """Write beside and rename: there is a whole file or none."""
    from outlast.daemon.fleet.rollup import write_rollup

    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as held:
        new = Path(held.name)
        try:
            with _text(held, packed=file.suffix == ".gz") as out:
                shared = write_rollup(table, out, tell)
            new.chmod(0o644)
            new.replace(file)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    return shared


@contextlib.contextmanager
def _text(held: IO[bytes], *, packed: bool) -> Iterator[TextIO]:
    """A text file in an open one; without a name or time in it where it is packed."""
    raw = gzip.GzipFile("", "wb", 1, held, mtime=0) if packed else None
    out = io.TextIOWrapper(cast("IO[bytes]", raw or held), encoding="utf-8", newline="")
    try:
        yield out
        out.flush()
    finally:
        out.detach()
        if raw is not None:
            raw.close()
