"""Which bulk is the default? Channels of the connection against rsync through it, with and without distance.

    python benchmarks/ship_choice.py [MB] [RTT_MS ...]

Prints one line a way and distance: MB/s from offer to verified commit, and CPU seconds a GB of both ends.
The relay that adds the distance is a process of its own; everything shares this machine.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.providers.base import SystemClock
from outlast.simulations.saved import FOUR_RANKS, committed
from outlast.simulations.sshd import Sshd, receive_command
from outlast.simulations.wan import Relay
from outlast.wire.store import Committed

WAYS: tuple[tuple[Literal["channels", "rsync"], int], ...] = (
    ("channels", 1),
    ("channels", 4),
    ("channels", 8),
    ("rsync", 1),
)


async def measure(settings: PeerSettings, item: Committed, replicas: Path) -> str:
    """Ship once and throw the replica away."""
    peer = Peer(settings, "gpt", SystemClock())
    task = asyncio.create_task(peer.run())
    try:
        await peer.ask_state()
        cpu, began = cpu_seconds(), time.monotonic()
        shipped = await peer.ship(item)
        seconds = time.monotonic() - began
        per_gb = (cpu_seconds() - cpu) / (shipped.bytes_sent / 1e9)
        return f"{shipped.bytes_sent / seconds / 1e6:6.1f} MB/s  {per_gb:5.1f} CPU s/GB (without sshd)"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(shutil.rmtree, replicas, ignore_errors=True)


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    return sum(os.times()[:4])


@asynccontextmanager
async def distance(sshd: Sshd, rtt_s: float) -> AsyncIterator[int]:
    """The port to dial for that round-trip time."""
    if not rtt_s:
        yield sshd.port
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--relay", str(sshd.port), str(rtt_s), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


async def relay(port: int, rtt_s: float) -> None:
    """Run as the relay process: say the port and forward until killed."""
    async with Relay("127.0.0.1", port, delay_s=rtt_s / 2) as way:
        print(way.port, flush=True)
        await asyncio.Event().wait()


async def main(megabytes: int, distances: list[float]) -> None:
    """Measure every way at every distance."""
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
                async with distance(sshd, rtt_ms / 1000) as port:
                    for bulk, channels in WAYS:
                        way = replace(settings, port=port, bulk=bulk, channels=channels)
                        line = await measure(way, item, folder / "replicas")
                        print(f"{rtt_ms:5.0f} ms  {bulk:8} x{channels}  {line}", flush=True)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--relay"]:
        asyncio.run(relay(int(sys.argv[2]), float(sys.argv[3])))
    else:
        size = int(sys.argv[1]) if len(sys.argv) > 1 else 200
        asyncio.run(main(size, [float(text) for text in sys.argv[2:]] or [0.0, 70.0, 150.0]))
