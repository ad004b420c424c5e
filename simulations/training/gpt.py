"""A small GPT that DeepSpeed trains on CPU to continue the Python standard library's own source text.

    python -m torch.distributed.run --standalone --nproc-per-node 2 \
        -m outlast.simulations.training.gpt --checkpoints DIR --job drill --steps 200

The whole of Outlast in it is the import of ``protect``, the ``with`` line and ``guard.step()``. Training is
deterministic: batch and seeds follow from the step, so an interrupted run can be compared bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
from torch import nn
from torch.nn import functional

from outlast.hooks.deepspeed import protect

SEED = 1234


@dataclass(frozen=True)
class Size:
    """The model's size and the batch a rank trains on in one step."""

    width: int
    layers: int
    heads: int
    context: int
    batch: int


SIZES = {
    "tiny": Size(width=64, layers=2, heads=2, context=64, batch=4),
    "small": Size(width=128, layers=3, heads=4, context=128, batch=4),
    "medium": Size(width=384, layers=6, heads=6, context=128, batch=4),
    "large": Size(width=768, layers=12, heads=12, context=128, batch=2),
}


class Block(nn.Module):  # type: ignore[misc] # torch is not followed
    """One transformer layer: causal self-attention and a two-layer perceptron, each with dropout."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.norm_1, self.norm_2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.mix = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.mlp = nn.Sequential(
            nn.Linear(size.width, 4 * size.width), nn.GELU(), nn.Linear(4 * size.width, size.width)
        )
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        """``x`` is (batch, time, width)."""
        batch, time_, width = x.shape
        q, k, v = (
            part.view(batch, time_, self.heads, -1).transpose(1, 2)
            for part in self.mix(self.norm_1(x)).chunk(3, -1)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(batch, time_, width)))
        return x + self.drop(self.mlp(self.norm_2(x)))


class Gpt(nn.Module):  # type: ignore[misc] # torch is not followed
    """A byte-level language model; ``forward`` gives the mean loss in nats a byte."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, size.width)
        self.place = nn.Embedding(size.context, size.width)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, 256)

    def forward(self, tokens: Any) -> Any:
        """``tokens`` is (batch, context + 1): each byte is to be told from those before it."""
        given, wanted = tokens[:, :-1], tokens[:, 1:]
        x = self.embed(given) + self.place(torch.arange(given.shape[1]))
        logits = self.head(self.norm(self.blocks(x)))
        return functional.cross_entropy(logits.reshape(-1, 256), wanted.reshape(-1))


class Text:
    """The standard library's source as one run of bytes, the same on every machine of one Python version."""

    def __init__(self, limit: int = 2_000_000) -> None:
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        text = b"".join(path.read_bytes() for path in files)[:limit]
        self._bytes = torch.frombuffer(bytearray(text), dtype=torch.uint8)

    def batch(self, step: int, rank: int, size: Size) -> Any:
        """The batch of ``rank`` in the step after ``step`` completed ones; always the same one."""
        chooser = torch.Generator().manual_seed(SEED + 1_000_003 * step + rank)
        starts = torch.randint(len(self._bytes) - size.context - 1, (size.batch,), generator=chooser)
        return torch.stack([self._bytes[s : s + size.context + 1] for s in starts.tolist()]).long()


def main() -> None:
    """Train as the command line says."""
    args = _arguments()
    torch.set_num_threads(1)
    # Without DeepSpeed's shared-memory reduction: it is compiled at first use, which takes half a minute,
    # and a killed rank leaves 69 MB of it behind. Gloo's is enough for two ranks.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    torch.manual_seed(SEED)
    size = SIZES[args.size]
    model = Gpt(size)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=_config(args, size)
    )
    rank = deepspeed.comm.get_rank()
    torch.manual_seed(SEED + rank)  # dropout differs from rank to rank
    text, losses = Text(), Losses(args.losses if rank == 0 else None)
    with protect(engine, args.checkpoints, job=args.job) as guard:
        for step in range(guard.step_count, args.steps):
            began = time.monotonic()
            loss = engine(text.batch(step, rank, size))
            engine.backward(loss)
            engine.step()
            losses.append(step + 1, loss.item())
            time.sleep(max(0.0, began + args.step_seconds - time.monotonic()))
            guard.step()


class Losses:
    """One JSON object a line: ``step``, ``loss`` as ``float.hex`` (exact), ``wall`` in UTC epoch seconds."""

    def __init__(self, path: Path | None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def append(self, step: int, loss: float) -> None:
        """Add a line, whole or not at all for a reader that looks while we write."""
        if self._path is not None:
            with self._path.open("a") as out:
                out.write(json.dumps({"step": step, "loss": loss.hex(), "wall": time.time()}) + "\n")


def _config(args: argparse.Namespace, size: Size) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": size.batch,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        "zero_optimization": {"stage": args.zero},
        "bf16": {"enabled": args.bf16},
        "steps_per_print": 1_000_000,
        "checkpoint": {"load_universal": args.load_universal},
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small GPT on the standard library's source text.")
    parser.add_argument("--checkpoints", required=True, help="the job's checkpoint folder")
    parser.add_argument("--job", default="drill", help="the job's name in Outlast's configuration")
    parser.add_argument("--steps", type=int, default=200, help="train up to this step")
    parser.add_argument("--step-seconds", type=float, default=0.3, help="a step takes this long at least")
    parser.add_argument("--losses", type=Path, help="append each step's loss to this file (rank 0)")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--zero", type=int, choices=(0, 1, 2, 3), default=2, help="ZeRO stage")
    parser.add_argument("--load-universal", action="store_true", help="resume from a universal checkpoint")
    parser.add_argument("--bf16", action="store_true", help="train in bfloat16")
    return parser.parse_args()


if __name__ == "__main__":
    main()
