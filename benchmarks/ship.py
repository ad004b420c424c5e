"""Shipping beside its peers in one run: rsync over OpenSSH and scp near by, asyncssh's SFTP at a distance.

    python benchmarks/ship.py [--megabytes 2000] [--far-megabytes 2000] [--rtt-ms 70] [--rounds 3] [--json]

Each way moves the same files through the same SSH server with aes128-gcm. Ours counts from the offer to the
commit at the receiver, every byte verified and on the disk; the others end with their bytes written, and only
rsync with --fsync (3.2.4 or later) waits for the disk as well. Near by they take turns, and the best of each
one's rounds counts: who goes first pays for memory that was not in use. CPU seconds are of the whole machine,
so both ends and the server are in them; keep it quiet. Exit status 1 if a goal is missed.
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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import asyncssh
from rich.progress import Progress

from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.providers.base import SystemClock
from outlast.simulations.saved import FOUR_RANKS, committed
from outlast.simulations.sshd import Sshd, receive_command
from outlast.simulations.wan import Relay
from outlast.wire.store import Committed

CIPHER = "aes128-gcm@openssh.com"
GOAL_NEAR, GOAL_FAR = 1.0, 5.0
DURABLE = "rsync --fsync"


@dataclass(frozen=True)
class Measured:
    """One way: megabytes a second, and CPU seconds of the machine for each gigabyte."""

    way: str
    rtt_ms: float
    mb_s: float
    cpu_s_gb: float


def cpu_seconds() -> float:
    """What the machine's cores have done so far."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


async def timed(way: str, rtt_ms: float, size: int, work: Callable[[], Awaitable[object]]) -> Measured:
    """Do it once."""
    cpu, began = cpu_seconds(), time.monotonic()
    await work()
    seconds, used = time.monotonic() - began, cpu_seconds() - cpu
    return Measured(way, rtt_ms, round(size / seconds / 1e6, 1), round(used / (size / 1e9), 2))


@asynccontextmanager
async def distance(port: int, rtt_ms: float) -> AsyncIterator[int]:
    """The port to dial for that round-trip time; the relay is a process of its own."""
    if not rtt_ms:
        yield port
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--relay", str(port), str(rtt_ms), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield int(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


async def relay(port: int, rtt_ms: float) -> None:
    """Run as the relay process: say the port and forward until killed."""
    async with Relay("127.0.0.1", port, delay_s=rtt_ms / 2000) as way:
        print(way.port, flush=True)
        await asyncio.Event().wait()


class Bench:
    """Two servers on this machine: one that only receives for us, and one with a shell for the others."""

    def __init__(self, folder: Path, ours: Sshd, plain: Sshd, progress: Progress) -> None:
        self._folder = folder
        self._ours = ours
        self._plain = plain
        self._progress = progress

    async def outlast(self, item: Committed, rtt_ms: float) -> Measured:
        """Ship through a connection that stands, as the daemon does."""
        size = item.manifest.total_bytes
        bar = self._progress.add_task(f"outlast {rtt_ms:.0f} ms", total=size)
        async with distance(self._ours.port, rtt_ms) as port:
            ours = self._ours
            settings = PeerSettings(ours.host, port, ours.user, ours.host_key, ours.client.private)
            peer = Peer(settings, "gpt", SystemClock())
            task = asyncio.create_task(peer.run())
            try:
                await peer.ask_state()

                def look(there: int, _total: int) -> None:
                    self._progress.update(bar, completed=there)

                return await timed("outlast", rtt_ms, size, lambda: peer.ship(item, look))
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await asyncio.to_thread(shutil.rmtree, self._folder / "replicas", ignore_errors=True)

    async def command(self, way: str, item: Committed, *words: str) -> Measured:
        """A program that copies the folder."""
        self._progress.add_task(way, total=None)
        target = self._folder / "copy"
        await asyncio.to_thread(target.mkdir)

        async def run() -> None:
            process = await asyncio.create_subprocess_exec(*words)
            if await process.wait():
                raise SystemExit(f"{way} failed with {process.returncode}")

        try:
            return await timed(way, 0.0, item.manifest.total_bytes, run)
        finally:
            await asyncio.to_thread(shutil.rmtree, target)

    def ssh(self) -> list[str]:
        """Options of OpenSSH's clients for the server with a shell."""
        known = self._folder / "known_hosts"
        known.write_text(f"[{self._plain.host}]:{self._plain.port} {self._plain.host_key}\n")
        key = self._plain.client.private
        return ["-F", "none", "-o", f"UserKnownHostsFile={known}", "-c", CIPHER, "-i", str(key)]

    async def rsync(self, item: Committed, *more: str) -> Measured:
        """Whole files in place, as for files that are all new, and with ``more`` options."""
        shell = " ".join(["ssh", *self.ssh(), "-p", str(self._plain.port)])
        where = f"{self._plain.user}@{self._plain.host}:{self._folder}/copy/"
        return await self.command(
            " ".join(("rsync", *more)), item,
            "rsync", "-rW", "--inplace", *more, "-e", shell, f"{item.path}/", where,
        )  # fmt: skip

    async def scp(self, item: Committed) -> Measured:
        """Its present protocol, which is SFTP."""
        where = f"{self._plain.user}@{self._plain.host}:{self._folder}/copy/"
        port = str(self._plain.port)
        return await self.command("scp", item, "scp", "-qr", *self.ssh(), "-P", port, str(item.path), where)

    async def sftp(self, item: Committed, rtt_ms: float) -> Measured:
        """asyncssh's SFTP with its defaults."""
        self._progress.add_task(f"asyncssh SFTP {rtt_ms:.0f} ms", total=None)
        plain = self._plain
        async with distance(plain.port, rtt_ms) as port:
            key = str(plain.client.private)
            options = {"known_hosts": None, "client_keys": [key], "username": plain.user, "config": []}
            async with (
                asyncssh.connect(plain.host, port, **options) as connection,
                connection.start_sftp_client() as client,
            ):

                async def run() -> None:
                    await client.put(str(item.path), str(self._folder / "copy"), recurse=True)

                measured = await timed("asyncssh SFTP", rtt_ms, item.manifest.total_bytes, run)
        await asyncio.to_thread(shutil.rmtree, self._folder / "copy")
        return measured


async def measure(args: argparse.Namespace, progress: Progress) -> list[Measured]:
    """All ways, near by and far away."""
    folder = Path(tempfile.mkdtemp(prefix="outlast-bench-"))
    try:
        for name in ("ours", "plain"):
            (folder / name).mkdir()
        near = await _item(folder / "near", args.megabytes)
        far = await _item(folder / "far", args.far_megabytes)
        command = receive_command(folder / "replicas", "gpt")
        async with Sshd(folder / "ours", command) as ours, Sshd(folder / "plain", None) as plain:
            bench = Bench(folder, ours, plain, progress)
            turns = [
                (
                    await bench.outlast(near, 0.0),
                    await bench.rsync(near),
                    await bench.rsync(near, "--fsync"),
                    await bench.scp(near),
                )
                for _ in range(args.rounds)
            ]
            found = [max(turn, key=lambda one: one.mb_s) for turn in zip(*turns, strict=True)]
            found += [await bench.outlast(far, args.rtt_ms), await bench.sftp(far, args.rtt_ms)]
            return found
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


async def _item(store: Path, megabytes: int) -> Committed:
    """Five files of the same size, incompressible."""
    shard = megabytes * 1_000_000 // 5
    return await asyncio.to_thread(committed, store, 1, layout=FOUR_RANKS, shard_bytes=shard)


def judged(found: list[Measured]) -> list[tuple[str, float, float]]:
    """What was promised: ratio to the peer, and its goal."""
    by_way = {(one.way, bool(one.rtt_ms)): one.mb_s for one in found}
    near, far = by_way["outlast", False], by_way["outlast", True]
    return [
        ("MB/s by those of rsync", near / by_way["rsync", False], GOAL_NEAR),
        ("MB/s by those of rsync that waits for the disk too", near / by_way[DURABLE, False], GOAL_NEAR),
        ("MB/s by those of asyncssh's SFTP, far away", far / by_way["asyncssh SFTP", True], GOAL_FAR),
    ]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000, help="near by (2000)")
    parser.add_argument("--far-megabytes", type=int, default=2000, help="far away (2000)")
    parser.add_argument("--rtt-ms", type=float, default=70.0, help="how far that is (70)")
    parser.add_argument("--rounds", type=int, default=3, help="turns near by (3)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    from rich.console import Console

    with Progress(console=Console(stderr=True), disable=args.json or not sys.stderr.isatty()) as progress:
        found = asyncio.run(measure(args, progress))
    verdicts = judged(found)
    if args.json:
        goals = [{"what": what, "ratio": round(ratio, 2), "goal": goal} for what, ratio, goal in verdicts]
        print(json.dumps({"format": 1, "measured": [asdict(one) for one in found], "goals": goals}))
    else:
        for one in found:
            print(f"{one.rtt_ms:4.0f} ms  {one.way:14} {one.mb_s:7.1f} MB/s  {one.cpu_s_gb:5.2f} CPU s/GB")
        for what, ratio, goal in verdicts:
            print(f"{'held  ' if ratio >= goal else 'MISSED'}  {what}: {ratio:.2f}, at least {goal}")
    return 0 if all(ratio >= goal for _, ratio, goal in verdicts) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--relay"]:
        asyncio.run(relay(int(sys.argv[2]), float(sys.argv[3])))
    sys.exit(main())
