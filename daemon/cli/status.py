"""``outlast status``: what the daemon sees, what it has decided and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from outlast.daemon.cli.client import RefusedError, UnreachableError, add_socket_option, ask
from outlast.daemon.ops.exit import ExitCode

_EXAMPLES = """\
examples:
  outlast status
  outlast status --json | jq '.jobs[].because'

exit status: 0 all is well, 3 daemon not reachable,
4 degraded (blind watch, lost peer or store, no room, history trouble)
"""

WAIT_S = 5.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``status``."""
    parser = subparsers.add_parser(
        "status",
        help="show what the daemon sees, has decided and why",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_socket_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the status. Returns the exit code."""
    try:
        seen = ask(args.socket, {"op": "status"}, WAIT_S)
    except (UnreachableError, RefusedError) as exc:
        print(f"outlast: {exc}", file=sys.stderr)
        return ExitCode.UNREACHABLE
    print(json.dumps(seen) if args.json else "\n".join(_lines(seen)))
    return ExitCode.DEGRADED if degraded(seen) else ExitCode.DONE


def degraded(seen: dict[str, Any]) -> bool:
    """Whether something that protects the job does not work now."""
    blind = seen["provider"]["state"] == "blind"
    places = [place for job in seen["jobs"] for place in job["destinations"]]
    unreachable = any(place["reachable"] is False for place in places)
    full = any(room["state"] == "full" for room in seen["room"])
    refused = any(place["reachable"] and place["because"] for place in places)
    return bool(blind or unreachable or full or refused or seen["history"]["trouble"])


def _lines(seen: dict[str, Any]) -> Iterator[str]:
    provider = seen["provider"]
    known = [provider.get(k) for k in ("name", "zone", "instance_type")] if provider["state"] != "off" else []
    where = " ".join(str(word) for word in known if word)
    watch = provider["state"] + (f" ({provider['because']})" if provider.get("because") else "")
    yield f"{seen['node']}: {where or 'no provider'}, watch {watch}"
    for notice in seen["notices"]:
        yield f"  NOTICE {notice['action']} in {notice['seconds_left']:.0f} s ({notice['source']})"
    if seen["history"]["trouble"]:
        yield f"  history: {seen['history']['trouble']}"
    for room in seen["room"]:
        if room["job"] is None and room["state"] != "ok":
            yield f"  {room['folder']}: {room['because']}"
    for job in seen["jobs"]:
        yield from _job(job)
        for room in seen["room"]:
            if room["job"] == job["name"]:
                yield f"  {room['folder']}: {room['because']}"


def _job(job: dict[str, Any]) -> Iterator[str]:
    trainer, newest, peer = job["trainer"], job["newest"], job["peer"]
    yield f"{job['name']}: {job['role']}, epoch {job['epoch']}"
    yield f"  {job['because']}"
    if trainer["ranks"]:
        parked = f", {trainer['parked']} parked" if trainer["parked"] else ""
        pace = f", {trainer['step_s']:.3f} s a step" if trainer["step_s"] else ""
        ranks = f"{trainer['ranks']} of {trainer['here']} ranks"
        yield f"  trainer: {ranks}, step {trainer['step']}{pace}{parked}"
    else:
        yield f"  trainer: {'done' if trainer['done'] else 'not connected'}"
    if job.get("plan"):
        yield f"  plan: {job['plan']['sentence']}"
    if job.get("taken_now"):
        yield f"  {job['taken_now']['sentence']}"
    if job.get("interval"):
        yield f"  checkpoints: {job['interval']['because']}"
    if newest:
        yield f"  committed: {newest['tag']} ({newest['bytes']} bytes)"
    if peer:
        yield f"  peer: {_peer(peer)}"
    for place in job["destinations"]:
        if place["kind"] != "peer":
            yield f"  {place['name']}: {_peer(place)}{_behind(place)}"


def _peer(peer: dict[str, Any]) -> str:
    if peer["shipping"]:
        return f"shipping, {peer['shipping']['sent']} of {peer['shipping']['total']} bytes"
    has = f"has {peer['newest']['tag']}" if peer["newest"] else "has nothing yet"
    if peer.get("waiting"):
        has += f", waiting for {' and '.join(_owned(node) for node in peer['waiting'])} part"
    if not peer["reachable"]:
        return f"not reachable: {peer['because']}"
    return f"{has}; refused the last: {peer['because']}" if peer["because"] else has


def _owned(node: str) -> str:
    return f"{node}'s"


def _behind(place: dict[str, Any]) -> str:
    lag = place["lag"]
    if lag is None or place["shipping"] or not lag["bytes"]:
        return ""
    return f"; {lag['steps']} steps, {lag['bytes']} bytes and {lag['seconds']:.0f} s behind"
