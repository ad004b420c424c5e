"""`outlast simulate`: a provider's metadata endpoint on this machine, to point any tool at."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Coroutine
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from outlast.providers.base import Identity

if TYPE_CHECKING:
    from outlast.simulations.standins import StandIn
    from outlast.simulations.standins.script import Seen

PROVIDERS = ("aws", "gcp", "azure")
FIELDS = ("region", "zone", "zone_id", "instance_type", "instance_id", "name")
EXAMPLES = """\
examples:
  outlast simulate aws --port 8111 --notice-in 20s
      after 20 s the instance is to be terminated 120 s later
  outlast simulate azure --hint-in 5s --notice-in 30s --notice-for 30s --withdraw-after 10s
      a Freeze, then a Preempt that is cancelled 10 s after it appeared
  outlast simulate gcp --port 8111 &
  curl -d '{"action": "terminate"}' http://127.0.0.1:8111/_standin/notice
      a notice at the moment you choose; also withdraw, hint, misbehave, behave, and GET log

Point Outlast at it with `endpoint:` of its provider section, other tools with the setting they
have for the metadata address (AWS SDKs: AWS_EC2_METADATA_SERVICE_ENDPOINT; Google: GCE_METADATA_HOST).
"""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "simulate",
        help="serve a provider's metadata endpoint on this machine",
        description="Serve a stand-in for a provider's metadata endpoint until interrupted.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("provider", choices=PROVIDERS)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=port, default=0, help="port to listen on (default: any free one)")
    when = parser.add_argument_group("what happens (times such as 20s, 2m; none: nothing until asked)")
    when.add_argument("--notice-in", type=seconds, metavar="TIME", help="show a notice after this time")
    when.add_argument("--action", choices=("terminate", "stop", "hibernate"), default="terminate")
    when.add_argument(
        "--notice-for", type=seconds, metavar="TIME", help="from notice to deadline (120s; Azure 30s)"
    )
    when.add_argument(
        "--withdraw-after", type=seconds, metavar="TIME", help="withdraw the notice after this time"
    )
    when.add_argument("--hint-in", type=seconds, metavar="TIME", help="show a hint after this time")
    when.add_argument("--hint", metavar="KIND", help="kind of hint (default: the provider's usual one)")
    who = parser.add_argument_group("who the node is")
    for field in FIELDS:
        who.add_argument(f"--{field.replace('_', '-')}", metavar="TEXT")
    who.add_argument("--on-demand", action="store_true", help="not a spot instance")
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object a line: the address to stdout, requests to stderr",
    )
    parser.set_defaults(run=run)


def seconds(text: str) -> float:
    """A duration such as 20, 20s, 2m, 500ms, in seconds. Raises ArgumentTypeError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write it like 20s, 2m or 500ms")
    return float(match[1]) * _UNITS[match[2]]


def port(text: str) -> int:
    """A port number, 0 to 65535. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a number from 0 to 65535")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. 0 then; 1 where the address cannot be listened on."""
    try:
        asyncio.run(_serve(args))
    except OSError as exc:
        why = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else str(exc)
        print(
            f"outlast simulate: cannot listen on {args.host}:{args.port}: {why}. "
            "Choose another --port (0: any free one) or --host.",
            file=sys.stderr,
        )
        return 1
    except ValueError as exc:
        print(f"outlast simulate: {exc}", file=sys.stderr)
        return 2
    return 0


async def _serve(args: argparse.Namespace) -> None:
    from outlast.simulations.standins import IDENTITIES, create

    identity = _identity(args, IDENTITIES[args.provider])
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    show = _show_json if args.json else _show_line
    endpoint = create(args.provider, identity, host=args.host, port=args.port, on_request=show)
    if args.hint is not None and endpoint.hints:
        endpoint.known_hint(args.hint)
    async with endpoint, asyncio.TaskGroup() as group:
        _announce(endpoint, as_json=args.json)
        tasks = [group.create_task(step) for step in _steps(args, endpoint)]
        await stop.wait()
        for task in tasks:
            task.cancel()


def _identity(args: argparse.Namespace, default: Identity) -> Identity:
    told = {field: getattr(args, field) for field in FIELDS if getattr(args, field) is not None}
    return replace(default, spot=not args.on_demand, **told)


async def _notice(args: argparse.Namespace, endpoint: StandIn) -> None:
    await asyncio.sleep(args.notice_in)
    lead = args.notice_for
    if lead is None:
        lead = 30.0 if args.provider == "azure" else 120.0
    endpoint.notice(args.action, lead)
    _say(f"notice shown: {args.action} in {lead:g} s", args)
    if args.withdraw_after is not None:
        await asyncio.sleep(args.withdraw_after)
        endpoint.withdraw()
        _say("notice withdrawn", args)


async def _hint(args: argparse.Namespace, endpoint: StandIn) -> None:
    await asyncio.sleep(args.hint_in)
    endpoint.hint(args.hint)
    _say("hint shown", args)


def _steps(args: argparse.Namespace, endpoint: StandIn) -> list[Coroutine[None, None, None]]:
    steps = []
    if args.notice_in is not None:
        steps.append(_notice(args, endpoint))
    if args.hint_in is not None:
        steps.append(_hint(args, endpoint))
    return steps


def _announce(endpoint: StandIn, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"provider": endpoint.provider, "url": endpoint.url}), flush=True)
        return
    print(endpoint.url, flush=True)
    print(
        f"A stand-in for the metadata endpoint of {endpoint.provider}. Give the address above to the tool\n"
        "you try out (Outlast: `endpoint:` of the provider section). Requests follow; Ctrl-C ends it.",
        file=sys.stderr,
    )


def _say(text: str, args: argparse.Namespace) -> None:
    if not args.json:
        print(text, file=sys.stderr, flush=True)


def _show_line(seen: Seen) -> None:
    query = f"?{seen.query}" if seen.query else ""
    status = "unanswered" if seen.status is None else seen.status
    at = datetime.fromtimestamp(seen.wall, UTC).strftime("%H:%M:%S.%f")[:-3]
    print(f"{at}Z {status} {seen.method} {seen.path}{query}", file=sys.stderr, flush=True)


def _show_json(seen: Seen) -> None:
    print(json.dumps(asdict(seen)), file=sys.stderr, flush=True)
