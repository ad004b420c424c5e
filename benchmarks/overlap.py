"""Saving and shipping at once: from the first byte saved to verified at the peer, beside each of them alone.

    python benchmarks/overlap.py [--megabytes 300] [--seconds 5] [--json]

A paced writer saves the files of four ranks in so many seconds; the way to the peer is limited so that
shipping takes as long. Measured are the save with its commit, the shipping of what is committed, and both at
once as the daemon does them, through a real SSH server. Exit status 1 if both at once take more than 1.15
times the longer of the two.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from outlast.daemon.checkpoint.commit import commit
from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.providers.base import SystemClock
from outlast.simulations.saved import FOUR_RANKS, order, save_tag
from outlast.simulations.sshd import Sshd, receive_command
from outlast.wire.store import Committed

GOAL = 1.15
PIECE = 1024 * 1024
FILES = 5


def save(source: Path, folder: Path, seconds: float) -> None:
    """Copy a saved checkpoint file by file, taking so long in all, as ranks that write to a slow disk do."""
    files = sorted(source.iterdir())
    total = sum(file.stat().st_size for file in files)
    began, written = time.monotonic(), 0
    folder.mkdir(parents=True)
    for file in files:
        with file.open("rb") as data, (folder / file.name).open("wb", buffering=0) as out:
            while piece := data.read(PIECE):
                out.write(piece)
                written += len(piece)
                time.sleep(max(0.0, began + seconds * written / total - time.monotonic()))


@asynccontextmanager
async def running(settings: PeerSettings) -> AsyncIterator[Peer]:
    """A peer that is connected."""
    peer = Peer(settings, "gpt", SystemClock())
    task = asyncio.create_task(peer.run())
    try:
        await peer.ask_state()
        yield peer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Bench:
    """One store, one peer; each measurement is of a step of its own."""

    def __init__(self, folder: Path, peer: Peer, seconds: float) -> None:
        self._folder = folder
        self._peer = peer
        self._seconds = seconds

    def _partial(self, step: int) -> Path:
        return self._folder / "store" / "epoch-1" / f"global_step{step}.partial"

    def _commit(self, step: int) -> Committed:
        return commit(self._folder / "store", order(step, layout=FOUR_RANKS), time.time())

    async def alone(self, source: Path) -> tuple[float, float]:
        """Seconds to save and commit, then seconds to ship."""
        began = time.monotonic()
        await asyncio.to_thread(save, source, self._partial(1), self._seconds)
        item = await asyncio.to_thread(self._commit, 1)
        saved = time.monotonic()
        await self._peer.ship(item)
        return saved - began, time.monotonic() - saved

    async def at_once(self, source: Path) -> tuple[float, float]:
        """Seconds until it is verified at the peer, and the share of bytes that went before the commit."""
        began = time.monotonic()
        done: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        folder = self._partial(2)
        stream = asyncio.create_task(self._peer.stream((1, "global_step2"), folder, done))
        await asyncio.to_thread(save, source, folder, self._seconds)
        done.set_result(await asyncio.to_thread(self._commit, 2))
        shipped = await stream
        return time.monotonic() - began, shipped.early / shipped.bytes_sent


async def measure(megabytes: int, seconds: float) -> dict[str, float]:
    """All three."""
    folder = Path(tempfile.mkdtemp(prefix="outlast-bench-"))
    try:
        (folder / "ssh").mkdir()
        shard = megabytes * 1_000_000 // FILES
        first = await asyncio.to_thread(save_tag, folder / "first", FOUR_RANKS, seed=1, shard_bytes=shard)
        second = await asyncio.to_thread(save_tag, folder / "second", FOUR_RANKS, seed=2, shard_bytes=shard)
        async with Sshd(folder / "ssh", receive_command(folder / "replicas", "gpt")) as sshd:
            settings = PeerSettings(
                sshd.host,
                sshd.port,
                sshd.user,
                sshd.host_key,
                sshd.client.private,
                limit_bytes_s=megabytes * 1e6 / seconds,
            )
            async with running(settings) as peer:
                bench = Bench(folder, peer, seconds)
                save_s, ship_s = await bench.alone(first)
                os.sync()
                both_s, early = await bench.at_once(second)
        ratio = both_s / max(save_s, ship_s)
        return {"save_s": save_s, "ship_s": ship_s, "both_s": both_s, "early": early, "ratio": ratio}
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300, help="of one checkpoint (300)")
    parser.add_argument("--seconds", type=float, default=5.0, help="that each of save and ship takes (5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    found = asyncio.run(measure(args.megabytes, args.seconds))
    held = found["ratio"] <= GOAL
    if args.json:
        print(
            json.dumps({"format": 1, **{key: round(value, 3) for key, value in found.items()}, "goal": GOAL})
        )
        return 0 if held else 1
    print(f"save and commit {found['save_s']:.2f} s, ship {found['ship_s']:.2f} s, one after the other")
    print(f"both at once    {found['both_s']:.2f} s, {found['early']:.0%} of the bytes before the commit")
    print(
        f"{'held  ' if held else 'MISSED'}  {found['ratio']:.2f} times the longer of the two, at most {GOAL}"
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
