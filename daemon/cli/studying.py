"""What ``report`` and ``rates`` share: what is read, how far back, and whose clock stands beside UTC."""

from __future__ import annotations

import argparse
import contextlib
import sys
import zoneinfo
from dataclasses import replace
from typing import TYPE_CHECKING

from outlast.daemon.cli.config import DEFAULT_FILE
from outlast.daemon.cli.history import _own_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlast.daemon.rates.table import Observed, Price
    from outlast.daemon.rates.values import Study


class SourceError(Exception):
    """A source cannot be read. The text says what, why and what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say what is read, for whom and in which form."""
    add_sources(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--csv", action="store_true", help="print one CSV row a pool")


def add_sources(parser: argparse.ArgumentParser) -> None:
    """The arguments that say what is read and for whom."""
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="a history file, a folder of segments, or a folder or URL of Parquet; several are merged "
        f"(default: this node's own, in the state folder of {DEFAULT_FILE})",
    )
    parser.add_argument("--since", type=_length, metavar="TIME", help="only this far back, such as 90d")
    parser.add_argument(
        "--zone",
        type=_zone,
        metavar="NAME",
        help="show this zone's times beside UTC, such as Europe/Berlin (default: the machine's)",
    )


def studied(args: argparse.Namespace, now: float) -> tuple[Study, Observed]:
    """What the sources hold and what is found in it. Raises SourceError."""
    from outlast.daemon.fleet.faults import ImportFaultError
    from outlast.daemon.fleet.load import observe
    from outlast.daemon.history.reading import UnreadableError
    from outlast.daemon.rates.study import study

    sources = list(args.sources) or [str(_own_file())]
    try:
        with _told(f"reading {len(sources)} source{'s' if len(sources) != 1 else ''}"):
            seen = observe(sources, now)
    except (UnreadableError, ImportFaultError) as exc:
        raise SourceError(str(exc)) from exc
    except OSError as exc:
        raise SourceError(f"cannot read {exc.filename or ', '.join(sources)}: {exc.strerror or exc}") from exc
    if args.since is not None:
        seen = _since(seen, now - args.since)
    with _told("estimating rates"):
        return study(seen, now), seen


def _since(seen: Observed, begins: float) -> Observed:
    from outlast.daemon.rates.tabulate import window

    table = seen.table
    if begins > table.begins:
        table = window(table, min(begins, table.ends), table.ends)
    launches = tuple(launch for launch in seen.launches if launch.at >= begins)
    return replace(seen, table=table, launches=launches, prices=_prices_since(seen.prices, begins))


def _prices_since(prices: tuple[Price, ...], begins: float) -> tuple[Price, ...]:
    """Prices from then on, and of each pool the one that held when that time began."""
    held: dict[object, Price] = {}
    later = []
    for price in sorted(prices, key=lambda price: price.at):
        if price.at >= begins:
            later.append(price)
        else:
            held[price.pool, price.kind] = price
    return (*held.values(), *later)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Say on a terminal what takes its time; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{what} …"):
        yield


def _length(text: str) -> float:
    from outlast.daemon.config.duration import seconds

    try:
        return seconds(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def _zone(text: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(text)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError) as exc:
        raise argparse.ArgumentTypeError(f"no time zone is called {text!r}; one is Europe/Berlin") from exc
