"""``outlast restore``: the newest checkpoint of a job, from wherever it is, committed on this node."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.daemon.cli import quantities
from outlast.daemon.cli.config import DEFAULT_FILE, config_file
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from outlast.daemon.checkpoint.destinations import Progress
    from outlast.daemon.config import JobSettings, Settings
    from outlast.wire.fit import World

_EXAMPLES = """\
examples:
  outlast restore --dry-run                       what each place has, and which one would be taken
  outlast restore                                 fetch the newest into the job's folder of checkpoints
  outlast restore --world 8 --zero 2              ... if a run of 8 ranks at ZeRO stage 2 can load it
  outlast restore --from s3://bucket/prefix --to /data/new    from that store alone, into another folder
  outlast restore --universal /data/checkpoints/epoch-3/global_step120_universal
                                                  commit what DeepSpeed's ds_to_universal.py has made

Places are this node's own folders, the job's peer and its stores. Only what is missing is fetched; a fetch
that broke off goes on where it stopped. The daemon does the same by itself when a trainer starts.

exit status: 0 the newest is here, 1 it cannot be had here (no room, say), 2 usage, 3 a place that was asked
for, or every place that could tell, does not answer, 65 it does not fit the run, 66 there is none,
75 the fetch broke off: run it again, 78 bad configuration
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``restore``."""
    parser = subparsers.add_parser(
        "restore",
        help="fetch the newest checkpoint from wherever it is",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--job", help="which job; may be left out where there is one")
    parser.add_argument("-c", "--config", type=Path, help=f"default: $OUTLAST_CONFIG or {DEFAULT_FILE}")
    origins = "local, peer, or the url of one of the job's stores"
    parser.add_argument("--from", dest="origin", metavar="PLACE", help=origins)
    parser.add_argument("--to", type=Path, metavar="DIR", help="have it in DIR/epoch-N/TAG")
    parser.add_argument("--world", type=quantities.whole, metavar="N", help="ranks of the run to come")
    for name in ("data", "tensor", "pipeline"):
        parser.add_argument(f"--{name}", type=quantities.whole, metavar="N", help=f"its {name} parallel size")
    parser.add_argument("--zero", type=int, choices=range(4), help="its ZeRO stage")
    parser.add_argument(
        "--any-world", action="store_true", help="whatever it was saved with, as without these sizes"
    )
    parser.add_argument("--dry-run", action="store_true", help="look and choose, fetch nothing")
    parser.add_argument("--universal", type=Path, metavar="DIR", help="commit this universal checkpoint")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Restore. Returns the exit code."""
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # as in `outlast run`: not worth its memory
    if args.universal is not None:
        return _adopt(args.universal, as_json=args.json)
    from outlast.daemon.config import ConfigError, load
    from outlast.daemon.ops.logs import configure

    if args.any_world and _world(args) != _world(argparse.Namespace()):
        return _usage("--any-world and sizes of a run exclude each other")
    try:
        settings = load(config_file(args.config), assume_credentials=True)
    except ConfigError as exc:
        print(exc, file=sys.stderr)
        return ExitCode.BAD_CONFIG
    configure("error", "auto")
    job = _job(settings, args.job)
    return job if isinstance(job, int) else _restore(job, args)


def _restore(job: JobSettings, args: argparse.Namespace) -> int:
    import asyncio

    from outlast.daemon.cli.restore_told import lines, outline
    from outlast.daemon.core.restore import UnknownPlace, Wish, restore

    into = args.to.absolute() if args.to else None
    wish = Wish(_world(args), args.origin, into, args.dry_run, _progress() if not args.dry_run else None)
    try:
        outcome = asyncio.run(restore(job, wish))
    except UnknownPlace as exc:
        return _usage(str(exc))
    if args.json:
        print(json.dumps(outline(outcome)))
    else:
        told, failed = lines(outcome)
        print("\n".join(told))
        if failed:
            print(f"outlast restore: {failed}", file=sys.stderr)
    return outcome.code


def _adopt(folder: Path, *, as_json: bool) -> int:
    import time

    from outlast.daemon.checkpoint.adopting import AdoptError, adopt

    try:
        done = adopt(folder.absolute(), time.time())
    except AdoptError as exc:
        print(f"outlast restore: {exc}", file=sys.stderr)
        return ExitCode.FAILED
    place = {"epoch": done.epoch, "tag": done.tag, "step": done.step, "path": str(done.path)}
    if as_json:
        print(json.dumps({"format": 1, "outcome": "committed", **place}))
    else:
        hint = 'set "checkpoint": {"load_universal": true} in DeepSpeed\'s configuration'
        print(f"committed {done.path}, step {done.step}: it fits any number of ranks; {hint}")
    return ExitCode.DONE


def _job(settings: Settings, name: str | None) -> JobSettings | int:
    known = {job.name: job for job in settings.jobs}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if name is None:
        return _usage(f"there are several jobs: give --job, one of {', '.join(sorted(known))}")
    if name not in known:
        return _usage(f"there is no job {name}: give one of {', '.join(sorted(known))}")
    return known[name]


def _world(args: argparse.Namespace) -> World:
    from outlast.wire.fit import World

    given = [getattr(args, name, None) for name in ("world", "data", "tensor", "pipeline", "zero")]
    return World(*given)


def _usage(because: str) -> int:
    print(f"outlast restore: {because}", file=sys.stderr)
    return ExitCode.USAGE


def _progress() -> Progress:
    """A line that is rewritten on a terminal; elsewhere a new one now and then."""
    from outlast.daemon.cli.restore_told import Telling

    return Telling(sys.stderr)
