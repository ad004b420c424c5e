"""``outlast plan``: on paper, what can be saved in a notice, and how often to save."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from outlast.daemon.cli import quantities
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from outlast.daemon.core.on_paper import Figures, Row, Setup

_EXAMPLES = """\
examples:
  outlast plan --model-params 7e9 --zero 2 --gpus 8 --bandwidth 10G --notice 120s
  outlast plan --model-params 70B --zero 3 --gpus 64 --bandwidth 25G
                                              every provider's notice, as a table
  outlast plan --model-params 7B --trainable 40M --gpus 8 --bandwidth 1G
                                              a LoRA
  outlast plan --model-params 7B --gpus 8 --bandwidth 10G --rtt 70ms --cores 4 --mtbf 3h --step 2.5s

A node that trains measures all of this itself: see 'outlast status'.

exit status: 0 done, 2 usage
"""

DISK = "2GB/s"
STEP = "1s"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``plan``."""
    parser = subparsers.add_parser(
        "plan",
        help="on paper: what can be saved in a notice, and how often to save",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_job(parser)
    _add_machine(parser)
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument(
        "--hazard", type=quantities.hourly, metavar="N", help="interruptions of the job an hour (default 0.1)"
    )
    rate.add_argument(
        "--mtbf",
        type=quantities.positive_length,
        metavar="TIME",
        help="the same as time between interruptions, such as 10h",
    )
    parser.add_argument(
        "--notice",
        type=quantities.length,
        metavar="TIME",
        help="one notice, such as 120s (default: all known)",
    )
    parser.add_argument(
        "--action",
        choices=("terminate", "stop", "hibernate", "pause"),
        default="terminate",
        help="what happens at the end of --notice: all but terminate leave the disk (default terminate)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run, usage_error=parser.error)


def _add_job(parser: argparse.ArgumentParser) -> None:
    job = parser.add_argument_group("the job")
    job.add_argument(
        "--model-params",
        type=quantities.parameters,
        required=True,
        metavar="N",
        help="parameters of the model, such as 7e9 or 7B",
    )
    job.add_argument(
        "--trainable",
        type=quantities.parameters,
        metavar="N",
        help="how many of them are trained and saved, as for a LoRA (default: all)",
    )
    job.add_argument(
        "--zero",
        type=int,
        choices=(0, 1, 2, 3),
        default=2,
        help="ZeRO stage: 14 bytes a parameter, 12 with stage 3 (default 2)",
    )
    job.add_argument("--gpus", type=quantities.whole, default=1, metavar="N", help="in all (default 1)")
    job.add_argument(
        "--step",
        type=quantities.positive_length,
        metavar="TIME",
        help=f"one training step (default {STEP}, which only counts steps)",
    )


def _add_machine(parser: argparse.ArgumentParser) -> None:
    machine = parser.add_argument_group("the machines")
    machine.add_argument(
        "--bandwidth",
        type=quantities.bits_rate,
        required=True,
        metavar="RATE",
        help="to the peer, of all nodes together: 10G is 10 Gbit/s, 1.25GB/s the same",
    )
    machine.add_argument(
        "--gpus-a-node", type=quantities.whole, default=8, metavar="N", help="GPUs in one node (default 8)"
    )
    machine.add_argument(
        "--disk",
        type=quantities.bytes_rate,
        metavar="RATE",
        help=f"what one node's disk writes (default {DISK})",
    )
    machine.add_argument(
        "--rtt", type=quantities.positive_length, metavar="TIME", help="round trip to the peer, such as 70ms"
    )
    machine.add_argument(
        "--channels", type=quantities.whole, default=8, metavar="N", help="as configured (default 8)"
    )
    machine.add_argument(
        "--cores",
        type=quantities.whole,
        metavar="N",
        help="cores of one node that may encrypt, 185 MB/s each",
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan. Returns DONE; wrong usage ends the process with 2."""
    from outlast.daemon.core.on_paper import at_notice, figures
    from outlast.providers.notices import NOTICES, NoticeLength

    if args.trainable is not None and args.trainable > args.model_params:
        args.usage_error("--trainable is more than --model-params")
    if args.action != "terminate" and args.notice is None:
        args.usage_error("--action goes with --notice: the table has each provider's own")
    setup, assumed = _setup(args)
    one = figures(setup)
    notices = NOTICES if args.notice is None else (NoticeLength("", args.notice, args.action),)
    rows = [at_notice(setup, one, notice) for notice in notices]
    if args.json:
        print(json.dumps(_body(setup, one, rows, assumed), allow_nan=False))
    else:
        print("\n".join(_lines(setup, one, rows, assumed)))
    return ExitCode.DONE


def _setup(args: argparse.Namespace) -> tuple[Setup, list[str]]:
    """The job to be, and what was assumed for it."""
    from outlast.daemon.core.on_paper import Setup

    assumed = []
    if args.disk is None:
        assumed.append(f"A node's disk writes {DISK} (--disk).")
    if args.step is None:
        assumed.append(f"A step takes {STEP} (--step).")
    if args.hazard is None and args.mtbf is None:
        assumed.append("The job is interrupted once in 10 hours (--mtbf, --hazard).")
    if args.rtt is None or args.cores is None:
        lacking = " and ".join(f"--{name}" for name in ("rtt", "cores") if getattr(args, name) is None)
        assumed.append(f"Nothing but link and disk slows the transfer down ({lacking} not given).")
    setup = Setup(
        parameters=args.trainable or args.model_params,
        zero=args.zero,
        gpus=args.gpus,
        gpus_a_node=args.gpus_a_node,
        link_bytes_s=args.bandwidth,
        disk_bytes_s=args.disk or quantities.bytes_rate(DISK),
        step_s=args.step or quantities.length(STEP),
        rtt_s=args.rtt,
        channels=args.channels,
        cores=args.cores,
        hazard_per_hour=args.hazard or (3600.0 / args.mtbf if args.mtbf else None),
    )
    return setup, assumed


def _steps(seconds: float, setup: Setup) -> int:
    return -int(-seconds // setup.step_s)


# ---- the two forms


def _body(setup: Setup, one: Figures, rows: Sequence[Row], assumed: list[str]) -> dict[str, Any]:
    return {
        "format": 1,
        "nodes": setup.nodes,
        "checkpoint_bytes": round(one.size),
        "save_s": one.save_s,
        "commit_s": one.commit_s,
        "ship_s": one.ship_s,
        "bytes_per_s": round(one.bytes_s),
        "limited_by": one.limit,
        "interval_s": one.pace.seconds,
        "interval_because": one.pace.sentence,
        "notices": [_row(row, setup) for row in rows],
        "assumed": assumed,
    }


def _row(row: Row, setup: Setup) -> dict[str, Any]:
    return {
        "provider": row.notice.provider or None,
        "notice_s": row.notice.seconds,
        "action": row.notice.action,
        "choice": row.verdict.choice.value,
        "needed_s": row.verdict.needed_s,
        "left_s": row.verdict.left_s,
        "movable_bytes": round(row.movable),
        "lost_s": row.lost_s,
        "lost_steps": _steps(row.lost_s, setup),
        "mean_lost_s": row.mean_s,
        "kept_here": row.kept_here,
        "sentence": row.verdict.sentence,
    }


def _lines(setup: Setup, one: Figures, rows: Sequence[Row], assumed: list[str]) -> Iterator[str]:
    from outlast.daemon.core.pace import span

    size = quantities.size
    nodes = f"{setup.nodes} node{'s' if setup.nodes > 1 else ''}"
    each = f"{one.size / setup.parameters:.0f} bytes"
    trained = quantities.count(setup.parameters)
    yield f"checkpoint  {size(one.size)}: {trained} trained parameters, {each} each, on {nodes}"
    yield f"save        {span(one.save_s)}, in which training stands still; commit {span(one.commit_s)} more"
    yield f"ship        {span(one.ship_s)} at {size(one.bytes_s)}/s, limited by {one.limit}"
    yield f"interval    {one.pace.sentence}"
    yield ""
    if len(rows) == 1:
        yield from _told(rows[0], setup)
    else:
        yield from _table(rows, setup)
    if assumed:
        yield ""
        yield from (f"Assumed: {sentence}" for sentence in assumed)


def _told(row: Row, setup: Setup) -> Iterator[str]:
    notice, verdict = row.notice, row.verdict
    yield f"at a notice of {notice.seconds:g} s, then {notice.action}: {verdict.choice.value}"
    yield f"  {verdict.sentence}"
    yield f"  after a flush there is time for {quantities.size(row.movable)}"
    yield f"  lost: {_loss(row, setup)}"


def _loss(row: Row, setup: Setup) -> str:
    from outlast.daemon.core.pace import span

    if row.lost_s == 0:
        return "nothing"
    most, mean = (f"{_steps(s, setup):,} steps ({span(s)})" for s in (row.lost_s, row.mean_s))
    here = "nothing once this disk is back; at the peer " if row.kept_here else ""
    return f"{here}at most {most}, on average {mean}"


def _table(rows: Sequence[Row], setup: Setup) -> Iterator[str]:
    from outlast.daemon.core.pace import span

    yield f"{'provider':<12}{'notice':>6}  {'then':<11}{'what is done':<30}{'needed':>9}  steps lost at most"
    for row in rows:
        notice, verdict = row.notice, row.verdict
        needed = "" if verdict.needed_s is None else span(verdict.needed_s)
        lost = f"{_steps(row.lost_s, setup):,}" + (", none once the disk is back" if row.kept_here else "")
        when = f"{notice.provider:<12}{notice.seconds:>4.0f} s  {notice.action:<11}"
        yield f"{when}{verdict.choice.value:<30}{needed:>9}  {lost}"
