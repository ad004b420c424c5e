"""A rank without a training framework: it counts, meets the other ranks each step, and saves its count.

Everything of the hook but DeepSpeed is real. Ranks meet in a ``torch.distributed.TCPStore`` at ``--store``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from outlast.hooks.agreement import Agreement
from outlast.hooks.ballot import Ballot, LocalBallot, StoreBallot
from outlast.hooks.guard import Guard
from outlast.hooks.link import Link, socket_path
from outlast.hooks.resume import decide
from outlast.hooks.saving import FolderSaver
from outlast.wire.messages import Hello, Layout

Barrier = Callable[[int], None]


def build(
    checkpoints: Path,
    ballot: Ballot,
    save_seconds: float = 0.0,
    job: str = "tune",
    *,
    here: int | None = None,
    socket: Path | None = None,
) -> Guard:
    """A guard that saves ``{"rank", "step"}`` as JSON, slowly if ``save_seconds`` says so.

    ``here``: how many of the ranks are on each node, if it is not all; ``socket``: this node's daemon.
    """

    def hello(step: int, epoch: int) -> Hello:
        return Hello(job, ballot.rank, os.getpid(), str(checkpoints), Layout(ballot.world), step, epoch)

    def write(folder: Path, step: int, _epoch: int) -> None:
        time.sleep(save_seconds)
        body = json.dumps({"rank": ballot.rank, "step": step})
        (folder / f"outlast_rank_{ballot.rank:05d}.pt").write_text(body)
        if here is not None and ballot.rank % here == 0:  # each node has the model, as with local storage
            (folder / "mp_rank_00_model_states.pt").write_text(json.dumps({"step": step}))

    agreement = Agreement(ballot, several=here is not None and here < ballot.world)
    link = Link(str(socket or socket_path()), hello, agreement)
    saver = FolderSaver(ballot, checkpoints, write, here=here)
    link.start()
    try:
        origin = decide(link, ballot, checkpoints)
    except BaseException:
        link.close()
        raise
    agreement.step_count = origin.step
    return Guard.begin(agreement, link, ballot, saver, origin)


def train(guard: Guard, barrier: Barrier, steps: int, step_seconds: float) -> None:
    """Count up to ``steps``, meeting the others in each step as a collective would."""
    while guard.step_count < steps:
        time.sleep(step_seconds)
        barrier(guard.step_count + 1)
        guard.step()


def main() -> None:
    """One rank, as the command line says."""
    args = _arguments()
    ballot: Ballot = LocalBallot()
    barrier: Barrier = lambda _step: None  # noqa: E731 - the default of a field
    if args.world > 1:
        ballot, barrier = meet(args)
    with build(args.checkpoints, ballot, args.save_seconds) as guard:
        train(guard, barrier, args.steps, args.step_seconds)


def meet(args: argparse.Namespace) -> tuple[Ballot, Barrier]:
    """The register and the barrier of ``args.world`` ranks, both in the store at port ``args.store``."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", args.store, args.world, is_master=False)

    def barrier(step: int) -> None:
        key = f"step/{step}"
        count = store.add(key, 1)
        while count < args.world:
            time.sleep(0.002)
            count = store.add(key, 0)

    return StoreBallot(store, args.rank, args.world, "outlast/0/"), barrier


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One rank that only counts.")
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--store", type=int, help="the TCP store's port")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--save-seconds", type=float, default=0.0, help="saving takes this long")
    return parser.parse_args()


if __name__ == "__main__":
    main()
