"""A tag as the ranks of a DeepSpeed job leave it: the names and archives are real, the weights are noise."""

from __future__ import annotations

import pickle
import random
import time
import zipfile
from dataclasses import replace
from pathlib import Path

from outlast.daemon.checkpoint.commit import CommitOrder, commit
from outlast.wire.manifest import Part
from outlast.wire.messages import Layout
from outlast.wire.shards import state_name
from outlast.wire.store import Committed, epoch_folder

TWO_RANKS = Layout(world=2, data=2, zero_stage=2)
FOUR_RANKS = Layout(world=4, data=4, zero_stage=2)


_PIECE = 64 * 1024 * 1024


def save_tag(folder: Path, layout: Layout = TWO_RANKS, *, seed: int = 0, shard_bytes: int = 4096) -> Path:
    """Write all ranks' files into ``folder``, which is made. The same seed gives the same bytes."""
    folder.mkdir(parents=True)
    noise = random.Random(seed)
    _archive(
        folder / "mp_rank_00_model_states.pt", {"dp_world_size": layout.data}, _noise(noise, shard_bytes)
    )
    for rank in range(layout.data):
        name = f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        _archive(folder / name, {"rank": rank}, _noise(noise, shard_bytes))
    for rank in range(layout.world):
        _archive(folder / state_name(rank), {"rank": rank, "seed": seed}, noise.randbytes(64))
    return folder


def order(step: int, *, epoch: int = 1, job: str = "gpt", layout: Layout = TWO_RANKS) -> CommitOrder:
    """The order to commit ``global_step<step>``."""
    return CommitOrder(job, f"global_step{step}", step, epoch, f"flush-{step}", "simulated", layout)


def committed(
    store: Path,
    step: int,
    *,
    epoch: int = 1,
    job: str = "gpt",
    layout: Layout = TWO_RANKS,
    shard_bytes: int = 4096,
    seed: int | None = None,
) -> Committed:
    """Save and commit one checkpoint in ``store``; its bytes follow from ``seed``, else from the step."""
    wanted = order(step, epoch=epoch, job=job, layout=layout)
    save_tag(
        epoch_folder(store, epoch) / f"{wanted.tag}.partial",
        layout,
        seed=step if seed is None else seed,
        shard_bytes=shard_bytes,
    )
    return commit(store, wanted, time.time())


def committed_part(
    store: Path,
    step: int,
    part: Part,
    *,
    epoch: int = 1,
    layout: Layout = FOUR_RANKS,
    shard_bytes: int = 4096,
    seed: int | None = None,
    flush_id: str | None = None,
    everywhere: bool = False,
) -> Committed:
    """What one node of several saves of a tag: its ranks' files, rank 0's model too if ``everywhere``."""
    wanted = order(step, epoch=epoch, layout=layout)
    here = layout.world // len(part.nodes)
    ranks = tuple(range(here * part.index, here * (part.index + 1)))
    folder = epoch_folder(store, epoch) / f"{wanted.tag}.partial"
    save_tag(folder, layout, seed=step if seed is None else seed, shard_bytes=shard_bytes)
    own = {state_name(rank) for rank in ranks}
    own |= {f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in ranks}
    own |= {"mp_rank_00_model_states.pt"} if everywhere or part.index == 0 else set()
    for path in folder.iterdir():
        if path.name not in own:
            path.unlink()
    flush_id = flush_id or wanted.flush_id
    return commit(store, replace(wanted, part=part, ranks=ranks, flush_id=flush_id), time.time())


def _noise(noise: random.Random, size: int) -> bytes:
    """Incompressible bytes; in pieces, as one call gives 256 MiB at most."""
    pieces = [min(_PIECE, size - at) for at in range(0, size, _PIECE)]
    return b"".join(noise.randbytes(piece) for piece in pieces)


def _archive(path: Path, told: dict[str, int], data: bytes) -> None:
    # Without a time of its own an entry bears that of the clock, and the same seed gives other bytes later.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(f"{path.stem}/data.pkl"), pickle.dumps(told, protocol=2))
        archive.writestr(zipfile.ZipInfo(f"{path.stem}/data/0"), data)
