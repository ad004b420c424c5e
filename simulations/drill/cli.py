"""``outlast drill``: rehearse an interruption on this machine, end to end."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.daemon.cli import quantities
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from outlast.providers.base import Clock
    from outlast.simulations.drill.rehearsal import Rehearsal, Watch
    from outlast.simulations.drill.report import Outcome
    from outlast.simulations.drill.scenario import Plan

PROVIDERS = ("aws", "gcp", "azure")
# Checkpoints that lie on the disk at most: those kept on either side, one being written, one arriving.
COPIES = 7
# Of ranks that train nothing: nobody waits for the end of it.
MOST_STEPS = 1_000_000
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_EXAMPLES = """\
examples:
  outlast drill                              AWS: two minutes' notice
  outlast drill --provider gcp               Google Cloud: 30 seconds
  outlast drill --steps 100 --notice-at 60 --keep ./drill
  outlast drill --size 2GB --rtt 70ms --bandwidth 1G
  outlast drill --json | jq '.steps_lost, .ok'

Everything is real but the provider's word: two daemons, an SSH server with throw-away keys, a DeepSpeed
ZeRO-2 training of a small GPT on two ranks, the takeover, and the same run uninterrupted for comparison.
With --size the ranks write as much, train nothing and need no torch. A first checkpoint is shipped at the
step of the notice, which comes once that has arrived, --steps later by as many. The time reckoned from it for
the next one is held against what that takes, from when its first bytes have left, which is during the
save, until the peer has verified all of it.
It takes one to two minutes, or as long as --size takes, opens ports on 127.0.0.1 alone, and leaves no
process and no file behind.

exit status: 0 every promise held, 1 one did not or the drill could not be finished, 2 usage,
130 interrupted
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``drill``."""
    parser = subparsers.add_parser(
        "drill",
        help="rehearse an interruption here, with real training",
        description="Rehearse an interruption on this machine, and check every promise.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--provider", choices=PROVIDERS, default="aws", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=40, help="train up to this step (default: %(default)s)")
    parser.add_argument(
        "--notice-at", type=int, metavar="STEP", help="the provider speaks at this step (default: a third)"
    )
    parser.add_argument(
        "--size",
        type=quantities.amount,
        metavar="BYTES",
        help="checkpoints of this size, such as 2GB, by ranks that train nothing",
    )
    parser.add_argument(
        "--rtt", type=quantities.length, default=0.0, metavar="TIME", help="round trip to the peer: 70ms"
    )
    parser.add_argument(
        "--bandwidth", type=quantities.bits_rate, metavar="RATE", help="bits a second to the peer: 1G"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy logs and histories there")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--no-color", action="store_true", help="no colours; $NO_COLOR does the same")
    parser.add_argument(
        "--timeout",
        type=quantities.positive_length,
        metavar="TIME",
        help="give up after this (default: 5m and what --size, --rtt and --bandwidth need)",
    )
    parser.set_defaults(run=run, fail=parser.error)


def run(args: argparse.Namespace) -> int:
    """Drill and report. Returns DONE, FAILED or INTERRUPTED."""
    from outlast.simulations.drill.report import body, text

    if args.steps < 3:
        args.fail("--steps must be at least 3")
    notice_at = args.notice_at if args.notice_at is not None else max(1, args.steps // 3)
    # The ranks agree on a step that lies a little ahead, and the standby is to train as well.
    if not 1 <= notice_at <= args.steps - 2:
        args.fail(f"--notice-at must be from 1 to {args.steps - 2}: the standby needs steps to train")
    missing = [name for name in ("torch", "deepspeed") if importlib.util.find_spec(name) is None]
    if args.size is not None:
        free, need = shutil.disk_usage(tempfile.gettempdir()).free, COPIES * args.size
        if free < need:
            where = tempfile.gettempdir()
            print(
                f"outlast drill: {COPIES} checkpoints lie on the disk at most, {need / 1e9:.1f} GB; "
                f"{free / 1e9:.1f} GB are free in {where}: a smaller --size, or set TMPDIR",
                file=sys.stderr,
            )
            return ExitCode.FAILED
    elif missing:
        print(
            f"outlast drill: needs {' and '.join(missing)} to train with: pip install torch, "
            "then pip install 'outlast[daemon,deepspeed]'",
            file=sys.stderr,
        )
        return ExitCode.FAILED
    if args.keep is not None and (because := _unusable(args.keep)):
        print(f"outlast drill: cannot keep logs in {args.keep}: {because}", file=sys.stderr)
        return ExitCode.FAILED
    outcome = asyncio.run(_until_signalled(_drill(args, notice_at)))
    if outcome is None:
        with suppress(OSError):  # it may be the terminal that went away
            print("outlast drill: interrupted; nothing is left behind", file=sys.stderr)
        return ExitCode.INTERRUPTED
    color = sys.stdout.isatty() and not args.no_color and not os.environ.get("NO_COLOR")
    print(json.dumps(body(outcome)) if args.json else text(outcome, color=color))
    return ExitCode.DONE if outcome.ok else ExitCode.FAILED


def _unusable(folder: Path) -> str | None:
    """Why nothing can be written there, before a drill was played for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        return exc.strerror or str(exc)
    return None if os.access(folder, os.W_OK | os.X_OK) else "it is not writable"


async def _until_signalled(drill: Coroutine[object, object, Outcome]) -> Outcome | None:
    """Run the drill; a signal cancels it, and None is returned once everything is cleaned up.

    Further signals change nothing: the clean-up is bounded, and cutting it short would leave things behind.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(drill, name="drill")
    signalled = False

    def stop() -> None:
        nonlocal signalled
        if not signalled:
            signalled = True
            task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        return None
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def planned(args: argparse.Namespace, notice_at: int) -> Plan:
    """What is played for these arguments."""
    from outlast.simulations.drill.nodes import GptTrainer, ScriptedTrainer, Trainer
    from outlast.simulations.drill.patience import patience
    from outlast.simulations.drill.scenario import Plan

    trainer: Trainer = GptTrainer(args.steps)
    if args.size is not None:
        more = args.steps - notice_at
        trainer = ScriptedTrainer(
            MOST_STEPS, pace_s=0.3, shard_bytes=max(1, args.size // 5), world=2, more=more
        )
    bound_s = args.timeout or patience(args.size, args.rtt, args.bandwidth)
    return Plan(args.provider, trainer, rtt_s=args.rtt, bytes_s=args.bandwidth, bound_s=bound_s)


async def _drill(args: argparse.Namespace, notice_at: int) -> Outcome:
    from outlast.providers.base import SystemClock
    from outlast.simulations.drill.rehearsal import Rehearsal

    plan = planned(args, notice_at)
    rehearsal = Rehearsal(plan, args.steps, notice_at, trial=args.size is not None)
    with _watch(args) as watch:
        return await _play(rehearsal, watch, SystemClock(), args.keep)


async def _play(rehearsal: Rehearsal, watch: Watch, clock: Clock, keep: Path | None) -> Outcome:
    from outlast.simulations.drill.rehearsal import rehearse
    from outlast.simulations.drill.report import Outcome
    from outlast.simulations.drill.sandbox import DrillError, Sandbox
    from outlast.simulations.drill.verdict import judge

    began = clock.monotonic()
    seen, because = None, None
    try:
        async with Sandbox(clock, keep) as sandbox:
            seen = await rehearse(rehearsal, sandbox, watch)
    except (DrillError, OSError) as exc:
        because = str(exc)
    checks = judge(seen) if seen is not None else ()
    seconds = clock.monotonic() - began
    plan = rehearsal.plan
    return Outcome(plan.provider, rehearsal.steps, rehearsal.notice_at, seconds, seen, checks, because, keep)


def _watch(args: argparse.Namespace) -> AbstractContextManager[Watch]:
    from outlast.providers.base import SystemClock
    from outlast.simulations.drill.display import Live, Plain

    steps = args.steps if args.size is None else None
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return Live(steps, SystemClock(), color=not args.no_color and not os.environ.get("NO_COLOR"))
    return nullcontext(Plain(steps, SystemClock()))
