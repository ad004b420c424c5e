"""``outlast checkpoint`` and ``outlast takeover``: what an operator can ask of the daemon."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from outlast.daemon.cli.client import RefusedError, UnreachableError, add_socket_option, ask
from outlast.daemon.ops.exit import ExitCode

MOST_WAIT_S = 366 * 86400.0

_CHECKPOINT = """\
examples:
  outlast checkpoint                      of the only job on this node
  outlast checkpoint --job tune --json

Every rank saves at one agreed step; the command returns once the checkpoint is committed on this node.

exit status: 0 committed, 1 not committed (the message says why), 3 daemon not reachable
"""

_TAKEOVER = """\
examples:
  outlast takeover --job tune

Run it on a standby whose primary is gone for good: this node becomes primary at its newest replica, in a
new epoch, and refuses the old primary's bytes from then on.

exit status: 0 taken over, 1 not (the message says why), 3 daemon not reachable
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``checkpoint`` and ``takeover``."""
    commands = (
        ("checkpoint", "save and commit a checkpoint now", _CHECKPOINT, 900.0),
        ("takeover", "make this standby the primary", _TAKEOVER, 30.0),
    )
    for name, text, epilog, wait_s in commands:
        parser = subparsers.add_parser(
            name, help=text, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("--job", help="needed where the node has several")
        parser.add_argument("--timeout", type=_wait, default=wait_s, metavar="S", help="seconds to wait")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        add_socket_option(parser)
        parser.set_defaults(run=run, op=name)


def run(args: argparse.Namespace) -> int:
    """Ask and print the answer. Returns the exit code."""
    request = {"op": args.op} | ({"job": args.job} if args.job else {})
    try:
        answer = ask(args.socket, request, args.timeout)
    except UnreachableError as exc:
        print(f"outlast: {exc}", file=sys.stderr)
        return ExitCode.UNREACHABLE
    except RefusedError as exc:
        print(f"outlast: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    print(json.dumps({"format": 1, **answer}) if args.json else _sentence(args.op, answer))
    return ExitCode.DONE


def _wait(text: str) -> float:
    """Seconds that a socket can wait."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= MOST_WAIT_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0, at most a year")
    return value


def _sentence(op: str, answer: dict[str, Any]) -> str:
    if op == "takeover":
        return f"{answer['job']} is primary here in epoch {answer['epoch']}: {answer['because']}"
    return f"{answer['path']}: step {answer['step']}, {answer['bytes']} bytes, committed"
