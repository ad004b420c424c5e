"""The arguments of ``outlast advise``, and the request that they make."""

from __future__ import annotations

import argparse
import datetime as dt
import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlast.daemon.advice.values import Request
    from outlast.daemon.rates.values import Study
    from outlast.providers.market.base import Quote, Risk

_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


@dataclass(frozen=True, slots=True)
class HandPrice:
    """A price given by hand: for all pools whose name holds ``place``, in whole instances."""

    place: str
    micro_usd: int
    on_demand: bool


def add_job(parser: argparse.ArgumentParser) -> None:
    """What is known of the job; what is not is measured or assumed, and the answer says which."""
    job = parser.add_argument_group("the job")
    job.add_argument("--hours", type=positive, required=True, metavar="H", help="useful hours of training")
    job.add_argument("--gpus", type=count, default=1, metavar="N", help="GPUs that it needs (default 1)")
    job.add_argument("--type", default="", metavar="NAME", help="GPU or instance type, such as a100")
    job.add_argument(
        "--deadline", type=_deadline, metavar="WHEN", help="2026-12-05T18:00Z, or from now on, such as 60h"
    )
    job.add_argument("--params", type=positive, metavar="N", help="parameters of the model, such as 7e9")
    job.add_argument(
        "--checkpoint",
        type=_size,
        metavar="SIZE",
        help="of one checkpoint, such as 98G (default: by --params)",
    )
    for name, what in (
        ("step", "one training step"),
        ("stall", "how long one checkpoint holds training up"),
        ("restart", "billed time that a restart costs"),
        ("wait", "unbilled wait for a new instance"),
        ("flush", "how long a flush takes under a notice"),
    ):
        job.add_argument(f"--{name}", type=_length, metavar="TIME", help=what)
    job.add_argument(
        "--flush-share", type=_share, metavar="P", help="share of interruptions whose flush succeeds, 0 to 1"
    )


def add_prices(parser: argparse.ArgumentParser) -> None:
    """What things cost, besides the prices in the history."""
    add_quotes(parser)
    money = parser.add_argument_group("prices and costs, in US dollars")
    money.add_argument(
        "--price",
        type=_hand_price,
        action="append",
        default=[],
        metavar="PLACE=USD[/od]",
        help="an instance-hour in all pools whose name holds PLACE; /od: on demand",
    )
    for name, default, what in (
        ("storage", 0.023, "a GB-month of checkpoints"),
        ("egress", 0.09, "a GB sent to the standby"),
        ("engineer", 0.0, "an engineer's hour"),
        ("engineer-hours", 0.0, "hours of an engineer that a failure costs"),
        ("failed-run", 0.0, "what else a failure costs"),
    ):
        money.add_argument(
            f"--{name}", type=_cost, default=default, metavar="N", help=f"{what} (default {default:g})"
        )


def add_quotes(parser: argparse.ArgumentParser) -> None:
    """Files of prices and published figures."""
    parser.add_argument(
        "--quotes",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="prices and risk figures: 'outlast prices --json', a CSV of prices, or a provider's own answer",
    )


def market_of(files: list[Path]) -> tuple[tuple[Quote, ...], tuple[Risk, ...]]:
    """What the files of prices hold. Raises OfflineError."""
    from outlast.providers.market.offline import read_answers

    answers = [answer for file in files for answer in read_answers(file)]
    quotes = tuple(quote for answer in answers for quote in answer.quotes)
    return quotes, tuple(risk for answer in answers for risk in answer.risks)


def request_of(args: argparse.Namespace, now: float, seen: set[str]) -> Request:
    """The request as of UTC ``now``; ``seen`` are the instance types of the history.

    Raises UnknownTypeError for a type that neither the history nor the catalogue knows.
    """
    from outlast.daemon.advice.values import Costs, Request
    from outlast.providers.market.catalogue import instance_types

    types: tuple[str, ...] = ()
    if args.type in seen:
        types = (args.type,)
    elif args.type:
        types = tuple(sorted(instance_types(args.type)))
    deadline = args.deadline
    if isinstance(deadline, Ahead):
        deadline = now + deadline.seconds
    return Request(
        hours=args.hours,
        gpus=args.gpus,
        gpu_type=args.type,
        instance_types=types,
        deadline=deadline,
        params=args.params,
        checkpoint_bytes=None if args.checkpoint is None else int(args.checkpoint),
        step_s=args.step,
        stall_s=args.stall,
        restart_s=args.restart,
        wait_s=args.wait,
        flush_share=args.flush_share,
        flush_s=args.flush,
        costs=Costs(args.storage, args.egress, args.engineer, args.engineer_hours, args.failed_run),
    )


def quotes_of(prices: list[HandPrice], study: Study, now: float) -> tuple[Quote, ...]:
    """A quote for each pool of the history whose name holds the place of a price given by hand."""
    from outlast.providers.market.base import Quote

    found = []
    for price in prices:
        for rate in study.pools:
            pool = rate.pool
            name = f"{pool.provider}/{pool.region}/{pool.zone}/{pool.instance_type}"
            if price.place in name:
                kind: Quote = Quote(
                    *(pool.provider, pool.region, pool.zone, pool.instance_type),
                    "on_demand" if price.on_demand else "spot",
                    price.micro_usd,
                    now,
                    "by hand",
                )
                found.append(kind)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Ahead:
    """A deadline so many seconds from now."""

    seconds: float


def _deadline(text: str) -> float | Ahead:
    try:
        return Ahead(_length(text))
    except argparse.ArgumentTypeError:
        pass
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError as exc:
        message = f"{text!r} is neither a time such as 2026-12-05T18:00Z nor a duration such as 60h"
        raise argparse.ArgumentTypeError(message) from exc
    if at.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; add Z for UTC, or an offset")
    return at.timestamp()


def _length(text: str) -> float:
    from outlast.daemon.config.duration import seconds

    try:
        return seconds(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


def positive(text: str) -> float:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above nothing")
    return value


def _cost(text: str) -> float:
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is below nothing")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not lie within 0 to 1")
    return value


def count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 10**6):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of GPUs above nothing")
    return int(text)


def _size(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmgt]?)b?", text.strip().lower())
    value = float(match[1]) * _SIZES[match[2]] if match else 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a size such as 98G or 600M")
    return value


def _hand_price(text: str) -> HandPrice:
    place, _, rest = text.rpartition("=")
    price, _, market = rest.partition("/")
    try:
        usd = Decimal(price)
    except InvalidOperation:
        usd = Decimal(-1)
    if not usd.is_finite() or not 0 < usd < 10**6 or market not in {"", "od"}:
        raise argparse.ArgumentTypeError(f"{text!r} is not PLACE=USD or PLACE=USD/od, such as us-east-1=3.06")
    return HandPrice(place, int(usd * 10**6), market == "od")
