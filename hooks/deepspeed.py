"""Protect a DeepSpeed training loop with two lines.

    guard = protect(engine, "/data/checkpoints", job="tune")      # resumes, if there is something to resume
    for step in range(guard.step_count, total):
        ...
        engine.step()
        guard.step()

Importing this module imports neither torch nor DeepSpeed.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outlast.hooks import state
from outlast.hooks.agreement import Agreement
from outlast.hooks.ballot import Ballot, LocalBallot, StoreBallot
from outlast.hooks.guard import Guard
from outlast.hooks.link import Link, socket_path
from outlast.hooks.resume import Origin, ResumeError, decide, preflight
from outlast.hooks.saving import FolderSaver
from outlast.hooks.state import Stateful
from outlast.wire.fit import is_universal
from outlast.wire.manifest import ManifestError, read
from outlast.wire.messages import Hello, Layout

__all__ = ["Guard", "ResumeError", "protect"]

log = logging.getLogger("outlast")

_calls = itertools.count()

# Engines whose save has written every byte when it returns.
_SYNCHRONOUS = frozenset({"TorchCheckpointEngine", "FastCheckpointEngine"})


def protect(
    engine: Any,
    checkpoints: str | os.PathLike[str],
    *,
    job: str,
    stateful: Mapping[str, Stateful] | None = None,
    exit_on_stand_down: bool = True,
) -> Guard:
    """Resume ``engine`` where the job is to go on, and guard its training loop from here on.

    Call it on every rank, in the main thread, after ``deepspeed.initialize`` and before the first step.
    ``stateful`` objects are saved and restored with the engine. On a standby it waits for the takeover.
    Raises ResumeError or StateError if the checkpoint to resume from does not fit this run; SystemExit(0)
    if the daemon says that this trainer is not needed. Without a daemon it resumes from the newest whole
    checkpoint in ``checkpoints``, and connects when a daemon comes.
    """
    items = dict(stateful or {})
    state.check_loadable(items)
    folder = Path(checkpoints).absolute()
    ballot, layout = _ballot(), _layout(engine)
    here = _ranks_here(ballot.world)
    agreement = Agreement(ballot, several=here < ballot.world)
    link = Link(socket_path(), _introduction(job, ballot.rank, folder, layout), agreement)
    write = _writer(engine, ballot.rank, job, items)
    saver = FolderSaver(ballot, folder, write, here=here)
    link.start()
    try:
        origin = decide(link, ballot, folder)
        agreement.step_count = origin.step
        preflight(ballot, origin, layout)
        if origin.tag is not None:
            _load(engine, origin, ballot.rank, items)
    except BaseException:
        link.close()
        raise
    if origin.tag is not None:
        saver.last = (origin.epoch_saved, origin.step)
    return Guard.begin(agreement, link, ballot, saver, origin, exit_on_stand_down=exit_on_stand_down)


def _introduction(job: str, rank: int, folder: Path, layout: Layout) -> Any:
    pid = os.getpid()

    def hello(step: int, epoch: int) -> Hello:
        return Hello(job, rank, pid, str(folder), layout, step, epoch)

    return hello


def _ballot() -> Ballot:
    import torch.distributed as dist

    number = next(_calls)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return LocalBallot()
    from torch.distributed import distributed_c10d

    store = distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no public way to its store
    return StoreBallot(store, dist.get_rank(), dist.get_world_size(), f"outlast/{number}/")


def _ranks_here(world: int) -> int:
    """How many ranks the launcher started on each node: torchrun and DeepSpeed say so in the environment."""
    said = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_SIZE") or ""
    count = int(said) if said.isascii() and said.isdigit() else world
    return count if 0 < count <= world and world % count == 0 else world


def _layout(engine: Any) -> Layout:
    import torch.distributed as dist

    world = dist.get_world_size() if dist.is_initialized() else 1
    pipeline = int(getattr(engine, "num_stages", 1) or 1)
    data = int(getattr(engine, "dp_world_size", world) or world)
    tensor = max(1, world // (data * pipeline))
    return Layout(world, data, tensor, pipeline, int(engine.zero_optimization_stage()))


def _writer(engine: Any, rank: int, job: str, items: Mapping[str, Stateful]) -> Any:
    background = _writes_in_background(engine)
    if background:
        log.warning("%s; this run cannot be saved by Outlast", background)

    def write(folder: Path, step: int, epoch: int) -> None:
        if background:
            raise RuntimeError(background)
        own = state.capture(step, epoch, items)
        _save_engine(engine, folder, {"outlast": {"job": job, "step": step, "epoch": epoch}})
        state.write(folder / state.rank_file(rank), own)

    return write


def _writes_in_background(engine: Any) -> str:
    """Why this engine's files cannot be known to be complete, or an empty text."""
    writer = getattr(engine, "checkpoint_engine", None)
    if writer is None or type(writer).__name__ in _SYNCHRONOUS or _decoupled(engine):
        return ""
    return (
        f"DeepSpeed's {type(writer).__name__} writes in the background and does not tell when it is done: "
        "use the default checkpoint engine"
    )


def _decoupled(engine: Any) -> bool:
    asks = getattr(getattr(engine, "checkpoint_engine", None), "is_decoupled", None)
    return asks is not None and hasattr(engine, "_commit_decoupled_checkpoint") and bool(asks())


def _save_engine(engine: Any, folder: Path, client_state: dict[str, Any]) -> None:
    with _errors_kept(engine) as errors:
        engine.save_checkpoint(
            str(folder.parent), tag=folder.name, client_state=client_state, save_latest=False
        )
        if _decoupled(engine):
            # It would write its last bytes at the next step, which may never come.
            engine._commit_decoupled_checkpoint()  # noqa: SLF001 - DeepSpeed has no public way
    if errors:
        raise errors[0]


@contextmanager
def _errors_kept(engine: Any) -> Iterator[list[Exception]]:
    """Keep what fails while files are written until the save is through its collectives.

    A rank whose disk is full would otherwise leave the others waiting in a barrier, and its own next
    collective would be taken for that barrier.
    """
    errors: list[Exception] = []
    writer = getattr(engine, "checkpoint_engine", None)
    places = [(writer, "save"), (writer, "makedirs"), (engine, "_copy_recovery_script")]
    undo = [(owner, name) for owner, name in places if hasattr(owner, name)]
    for owner, name in undo:
        setattr(owner, name, _keeping(getattr(owner, name), errors))
    try:
        yield errors
    finally:
        for owner, name in undo:
            delattr(owner, name)


def _keeping(call: Any, errors: list[Exception]) -> Any:
    def kept(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Exception as exc:  # noqa: BLE001 - raised again after the collectives
            errors.append(exc)
            return None

    return kept


def _universal(folder: Path) -> bool:
    try:
        return is_universal(read(folder))
    except ManifestError:
        return False


def _load(engine: Any, origin: Origin, rank: int, items: Mapping[str, Stateful]) -> None:
    assert origin.folder is not None
    assert origin.tag is not None
    began = time.monotonic()
    path, _ = engine.load_checkpoint(str(origin.folder), tag=origin.tag)
    if path is None:
        raise ResumeError(
            f"DeepSpeed loaded nothing from {origin.folder / origin.tag}: the checkpoint does not fit this "
            "engine; training from scratch would lose the job's work, so it does not start"
        )
    own = origin.folder / origin.tag / state.rank_file(rank)
    if own.exists() or not _universal(origin.folder / origin.tag):
        state.restore(own, origin.step, items)
    elif rank == 0:
        log.warning(
            "%s is universal and holds no state of single ranks: random numbers%s begin anew",
            origin.tag,
            f" and {', '.join(items)}" if items else "",
        )
    if rank == 0:
        log.info("resumed %s in %.2f s", origin.tag, time.monotonic() - began)
