"""Which bulk is the default? Channels of the connection against rsync through it, with and without distance.

    python benchmarks/ship_choice.py [--megabytes 200] [--rtt-ms 0 70 150] [--json]

One line a way and distance: MB/s from the offer to the verified commit, and CPU seconds a GB of the whole
machine, so of both ends and the server. Measured as ``ship.py`` does, which also is the distance.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

from ship import Measured, distance, timed

from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.providers.base import SystemClock
from outlast.simulations.saved import FOUR_RANKS, committed
from outlast.simulations.sshd import Sshd, receive_command
from outlast.wire.store import Committed

WAYS: tuple[tuple[Literal["channels", "rsync"], int], ...] = (
    ("channels", 1),
    ("channels", 4),
    ("channels", 8),
    ("rsync", 1),
)


async def once(settings: PeerSettings, item: Committed, replicas: Path, rtt_ms: float) -> Measured:
    """Ship once and throw the replica away."""
    peer = Peer(settings, "gpt", SystemClock())
    task = asyncio.create_task(peer.run())
    try:
        await peer.ask_state()
        way = f"{settings.bulk} x{settings.channels}"
        return await timed(way, rtt_ms, item.manifest.total_bytes, lambda: peer.ship(item))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, replicas, ignore_errors=True)


async def measure(megabytes: int, distances: list[float]) -> AsyncIterator[Measured]:
    """Every way at every distance."""
    folder = Path(tempfile.mkdtemp(prefix="outlast-bench-"))
    try:
        (folder / "ssh").mkdir()
        shard = megabytes * 1_000_000 // 5
        item = await asyncio.to_thread(
            committed, folder / "store", 1, layout=FOUR_RANKS, shard_bytes=shard
        )  # five files of that size
        async with Sshd(folder / "ssh", receive_command(folder / "replicas", "gpt")) as sshd:
            settings = PeerSettings(sshd.host, sshd.port, sshd.user, sshd.host_key, sshd.client.private)
            for rtt_ms in distances:
                async with distance(sshd.port, rtt_ms) as port:
                    for bulk, channels in WAYS:
                        way = replace(settings, port=port, bulk=bulk, channels=channels)
                        yield await once(way, item, folder / "replicas", rtt_ms)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


async def told(args: argparse.Namespace) -> None:
    """Print each as it is known, or all of them as one JSON object."""
    found = []
    async for one in measure(args.megabytes, args.rtt_ms):
        found.append(one)
        if not args.json:
            line = f"{one.rtt_ms:5.0f} ms  {one.way:11} {one.mb_s:6.1f} MB/s  {one.cpu_s_gb:5.2f} CPU s/GB"
            print(line, flush=True)
    if args.json:
        print(json.dumps({"format": 1, "measured": [asdict(one) for one in found]}))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="of one checkpoint (200)")
    parser.add_argument("--rtt-ms", type=float, nargs="+", default=[0.0, 70.0, 150.0], help="(0 70 150)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asyncio.run(told(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
