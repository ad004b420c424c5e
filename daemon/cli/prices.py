"""``outlast prices``: what providers publish about prices and risk, each figure in its own unit."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outlast.providers.market.base import Access, Answer, Want

MOST_ROWS = 60
_EXAMPLES = """\
examples:
  outlast prices --type a100 --region us-east-1,eastus
  outlast prices --source azure,vast --type h100 --json > prices.json
  outlast prices --offline prices.json --type a100      no network
  outlast prices --source none --offline list.csv --csv

Works without credentials; what a source lacks is said on standard error. Sources: aws (aws-prices,
aws-scores, aws-advisor), azure (azure-prices, azure-evictions, azure-scores), gcp (gcp-prices,
gcp-advice), runpod, vast. A file given by --offline is Outlast's own JSON, a CSV with the columns
provider,region,zone,instance_type,kind,usd_per_hour,at, or a source's own answer as it was saved.

exit status: 0, 1 if nothing at all could be got or a file cannot be used, 2 usage
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``prices``."""
    parser = subparsers.add_parser(
        "prices",
        help="prices and risk figures as the providers publish them",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--source", action="append", metavar="NAMES", help="sources or providers, with commas (default: all)"
    )
    parser.add_argument(
        "--type",
        action="append",
        metavar="NAMES",
        help="GPU types or instance types, such as a100 or p4d.24xlarge",
    )
    parser.add_argument(
        "--region", action="append", metavar="NAMES", help="regions, as their providers call them"
    )
    parser.add_argument(
        "--count", type=_count, default=1, metavar="N", help="instances a launch asks for (default: 1)"
    )
    parser.add_argument(
        "--days", type=_days, default=30.0, metavar="N", help="how far back histories go (default: 30)"
    )
    parser.add_argument(
        "--offline",
        action="append",
        type=Path,
        metavar="FILE",
        help="read FILE; sources are asked only if named",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=30.0, metavar="S", help="for all sources together (30)"
    )
    parser.add_argument(
        "--no-cache", action="store_true", help="ask even if there is an answer of the last hour"
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print one JSON object")
    shape.add_argument("--csv", action="store_true", help="print the prices alone, as CSV")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, access: Access | None = None) -> int:
    """Print what the sources answer. Returns DONE, FAILED with nothing to show, or USAGE."""
    from outlast.providers.market.base import Access, Want
    from outlast.providers.market.offline import OfflineError, body_of, read_answers
    from outlast.providers.market.plain_csv import write

    try:
        types, sources = _types(_names(args.type)), _sources(args)
    except ValueError as exc:
        print(f"outlast prices: {exc}", file=sys.stderr)
        return ExitCode.USAGE
    want = Want(types, tuple(_names(args.region)), args.days, args.count)
    try:
        answers = [_only(a, want) for path in args.offline or [] for a in read_answers(path)]
    except OfflineError as exc:
        print(f"outlast prices: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    answers += asyncio.run(ask(sources, want, access or Access(), args.timeout, _cache(args)))
    if args.json:
        print(json.dumps(body_of(answers)))
    elif args.csv:
        sys.stdout.write(write(q for a in answers for q in a.quotes))
    else:
        _show(answers)
    for line in (text for a in answers for text in a.lacks):
        print(f"outlast prices: {_shown(line)}", file=sys.stderr)
    if any(a.quotes or a.risks for a in answers):
        return ExitCode.DONE
    print("outlast prices: no price and no figure; name other types, regions or sources", file=sys.stderr)
    return ExitCode.FAILED


async def ask(
    names: Sequence[str], want: Want, access: Access, timeout_s: float, cache: Path | None
) -> list[Answer]:
    """The answers of the sources called ``names``, asked side by side, all within ``timeout_s`` seconds."""
    from outlast.providers.market.cache import Cached, Store
    from outlast.providers.market.registry import create

    made = [create(name, access) for name in names]
    sources = [Cached(s, Store(cache), access.clock) for s in made] if cache else made
    deadline = access.clock.monotonic() + timeout_s
    try:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(source.ask(want, deadline)) for source in sources]
        return [task.result() for task in asked]
    finally:
        for source in sources:
            await source.close()


def cache_folder() -> Path:
    """Where answers are kept: ``$XDG_CACHE_HOME/outlast/market``, or below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "outlast" / "market"


def _cache(args: argparse.Namespace) -> Path | None:
    if args.no_cache:
        return None
    try:
        return cache_folder()
    except RuntimeError:  # no home
        return None


def _sources(args: argparse.Namespace) -> tuple[str, ...]:
    """What is named; else all, or with files none. Raises ValueError."""
    from outlast.providers.market.registry import NAMES, chosen

    named = _names(args.source)
    if named == ["none"]:
        return ()
    if not named:
        return () if args.offline else NAMES
    return chosen(named)


def _types(names: Sequence[str]) -> tuple[str, ...]:
    """Instance types of the GPU types and instance types named. Raises ValueError."""
    from outlast.providers.market.catalogue import instance_types
    from outlast.providers.market.gathering import is_instance_type

    found: dict[str, None] = {}
    for name in names:
        found |= {name: None} if is_instance_type(name) else dict.fromkeys(instance_types(name))
    return tuple(found)


def _only(answer: Answer, want: Want) -> Answer:
    """What of a file's answer was asked for."""
    from dataclasses import replace

    types, regions = want.instance_types, want.regions
    quotes = (q for q in answer.quotes if not types or q.instance_type in types)
    risks = (r for r in answer.risks if not types or r.instance_type in types)
    return replace(
        answer,
        quotes=tuple(q for q in quotes if not regions or q.region in regions),
        risks=tuple(r for r in risks if not regions or r.region in regions),
    )


def _show(answers: Sequence[Answer]) -> None:
    from outlast.daemon.cli.prices_table import table

    headings, lines, left = table(answers, MOST_ROWS)
    if not lines:
        return
    widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]
    for line in (headings, *lines):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if left:
        print(f"… and {left} dearer ones; name types and regions, or take --csv or --json for all")


def _names(given: Sequence[str] | None) -> list[str]:
    return [name.strip() for text in given or () for name in text.split(",") if name.strip()]


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _seconds(text: str) -> float:
    return _within(text, float, 0.1, 600, "seconds")


def _days(text: str) -> float:
    return _within(text, float, 0, 90, "days")


def _count(text: str) -> int:
    return int(_within(text, int, 1, 1000, "instances"))


def _within(text: str, kind: Callable[[str], float], least: float, most: float, unit: str) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"give {least:g} to {most:g} {unit}")
    return value
