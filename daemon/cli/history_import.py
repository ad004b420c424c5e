"""``outlast history import``: what other programs recorded, as spells, launches and prices."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.daemon.cli import history_common as common

if TYPE_CHECKING:
    from outlast.daemon.fleet.flat import Imported
    from outlast.daemon.fleet.load import Found
    from outlast.daemon.fleet.telling import Tell
    from outlast.daemon.history.rows import Pool
    from outlast.providers.base import Clock

WHO = "outlast history import"
# Which options each format takes, beside those that all do.
FORMATS = {
    "spells": ("map", "set", "utc", "max_life"),
    "availability": ("set", "utc", "begins", "gap"),
    "launches": ("set", "utc"),
    "prices": ("pool", "begins", "gap", "kind"),
}
_EXAMPLES = """\
examples:
  outlast history import spells vms.csv --into fleet.sqlite3
          the file has provider,region,zone,instance_type,node,began,ended,cause
  outlast history import spells vms.csv --into fleet.sqlite3 --set provider=gcp \\
      --map node=vm --map began=start --map ended=end --map cause=how --max-life 23.5h
          another program's columns; a life beyond the cap was no interruption
  outlast history import availability probes.csv --into fleet --parquet --utc \\
      --set provider=aws --set zone=us-east-1a --set instance_type=p3.2xlarge
          a trace date,availability of one pool
  outlast history import launches probes.csv --into fleet.sqlite3 \\
      --set provider=gcp --set instance_type=a3-highgpu-8g
  outlast history import prices ticks.json --into fleet.sqlite3 \\
      --pool v100=aws/us-east-1/us-east-1a/p3.2xlarge --begins 2026-01-01T00:00:00Z --gap 5m --kind spot

docs/fleet.md has the formats. Nothing of a file is imported if a line of it is wrong; importing it again adds
nothing. The Spot Advisor's file says nothing of single stays and is not merged: give it to
'outlast advise --quotes' or 'outlast prices --offline' as it is.

exit status: 0 all is there now, 1 a file cannot be read or DEST not written, 2 usage
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``import`` to the sub-commands of ``outlast history``."""
    parser = subparsers.add_parser(
        "import",
        help="what other programs recorded: spells, probes, launches, prices",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind_of_file", choices=FORMATS, metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what to import")
    common.add_into(parser)
    pair, pool = "NAME=COLUMN", "NAME=PROVIDER/REGION/ZONE/INSTANCE-TYPE"
    parser.add_argument("--map", action="append", type=_pair, metavar=pair, help="what a column is called")
    parser.add_argument(
        "--set", action="append", type=_pair, metavar="NAME=VALUE", help="one value for all lines"
    )
    parser.add_argument("--utc", action="store_true", help="times without an offset are UTC")
    parser.add_argument(
        "--max-life", type=_length, metavar="TIME", help="taken after longer than this: the provider's cap"
    )
    parser.add_argument("--begins", type=_instant, metavar="TIME", help="when the first probe or tick was")
    parser.add_argument("--gap", type=_length, metavar="TIME", help="from one probe or tick to the next")
    parser.add_argument("--pool", action="append", type=_named_pool, metavar=pool, help="whose a list is")
    parser.add_argument("--kind", choices=("spot", "min_bid", "on_demand"), help="what price (default: spot)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, clock: Clock | None = None) -> int:
    """Import. Returns DONE, FAILED with every fault of a file, or USAGE."""
    from outlast.daemon.fleet.load import Found
    from outlast.providers.base import SystemClock

    now = (clock or SystemClock()).wall()

    def take(tell: Tell) -> int:
        _fitting(args)
        common.not_our_own(args.into)
        found = Found()
        for done, file in enumerate(args.files):
            tell("reading", done, len(args.files))
            _take(_read(args, file), found)
        return common.fill(args, found, [str(file) for file in args.files], now, WHO, tell)

    return common.guarded(WHO, take)


def _take(imported: Imported, found: Found) -> None:
    from outlast.daemon.fleet.database import rows_of
    from outlast.daemon.history.merging import merge

    found.spells.append(imported.spells)
    found.rows = merge(found.rows, rows_of(imported.launches, imported.prices))
    found.notes.extend(imported.notes)


def _read(args: argparse.Namespace, file: Path) -> Imported:
    """One file. Raises ImportFaultError and WrongError."""
    from outlast.daemon.fleet.imports import read_spells
    from outlast.daemon.fleet.probes import read_availability, read_launches

    if args.kind_of_file == "spells":
        life = None if args.max_life is None else args.max_life / 3600
        mapping, fixed = dict(args.map or ()), dict(args.set or ())
        return read_spells(file, mapping, fixed, naive_utc=args.utc, max_life_h=life)
    if args.kind_of_file == "prices":
        return _prices(args, file)
    pool = _one_pool(dict(args.set or ()))
    if args.kind_of_file == "launches":
        return read_launches(file, pool, naive_utc=args.utc)
    return read_availability(file, pool, naive_utc=args.utc, begins=args.begins, gap_s=args.gap)


def _prices(args: argparse.Namespace, file: Path) -> Imported:
    from outlast.daemon.fleet.flat import Gather, Imported
    from outlast.daemon.fleet.ticks import even_clock, read_ticks

    pools = dict(args.pool or ())
    if not pools or args.begins is None or args.gap is None:
        raise common.WrongError("prices need --pool, --begins and --gap: whose they are and when they held.")
    clock = even_clock(args.begins, args.gap, file)
    return Imported(Gather().flat(), prices=read_ticks(file, pools, clock, args.kind or "spot"))


def _one_pool(fixed: dict[str, str]) -> Pool:
    from outlast.daemon.fleet.places import pool_of

    names = ("provider", "region", "zone", "instance_type")
    if not fixed.get("provider") or not fixed.get("instance_type"):
        raise common.WrongError("say whose they are: --set provider=NAME --set instance_type=NAME")
    try:
        return pool_of(*(fixed.get(name, "") for name in names))
    except ValueError as exc:
        raise common.WrongError(f"{exc}.") from exc


def _fitting(args: argparse.Namespace) -> None:
    """Refuse options that the format knows nothing of, rather than leave them unheard."""
    from outlast.daemon.fleet.imports import NAMES

    every = {name for names in FORMATS.values() for name in names}
    for name in sorted(every - set(FORMATS[args.kind_of_file])):
        if getattr(args, name):
            fits = " and ".join(kind for kind, names in FORMATS.items() if name in names)
            raise common.WrongError(f"--{name.replace('_', '-')} is for {fits}, not for {args.kind_of_file}.")
    for name, _ in (*(args.map or ()), *(args.set or ())):
        if name not in NAMES:
            raise common.WrongError(f"there is no column {common.plain(name)}; use {', '.join(NAMES)}.")


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError("must be NAME=VALUE, such as provider=gcp")
    return name, value


def _named_pool(text: str) -> tuple[str, Pool]:
    from outlast.daemon.cli.launch import _pool as pool

    name, value = _pair(text)
    return name, pool(value)


def _length(text: str) -> float:
    from outlast.daemon.config.duration import seconds

    try:
        return seconds(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def _instant(text: str) -> float:
    from outlast.daemon.fleet.texts import instant

    try:
        return instant(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc
