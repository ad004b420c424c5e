"""Two nodes, a provider's stand-in, a real SSH server and scripted ranks: every part a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from outlast.daemon.cli.client import UnreachableError, ask
from outlast.daemon.history.reading import UnreadableError, read_file_events
from outlast.simulations.sshd import Sshd, free_port, receive_command

BOUND_S = 30.0


@dataclass
class Process:
    """One process in a session of its own; its output goes to a file."""

    words: list[str]
    log: Path
    env: dict[str, str] = field(default_factory=dict)
    handle: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.handle = await asyncio.create_subprocess_exec(
                *self.words, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **self.env}, start_new_session=True,
            )  # fmt: skip

    async def kill(self, number: int = signal.SIGKILL) -> int:
        """Signal the whole session and wait for the process's end."""
        assert self.handle is not None
        with suppress(ProcessLookupError):
            os.killpg(self.handle.pid, number)
        return await asyncio.wait_for(self.handle.wait(), BOUND_S)

    @property
    def alive(self) -> bool:
        return self.handle is not None and self.handle.returncode is None


@dataclass
class Node:
    """One daemon with its folders."""

    name: str
    folder: Path
    config: dict[str, Any]
    process: Process | None = None
    crash: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)

    @property
    def trainer_socket(self) -> Path:
        return self.folder / "run" / "trainer.sock"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "ckpt"

    async def start(self) -> None:
        file = self.folder / "outlast.yaml"
        node = {"name": self.name, "state": str(self.folder / "state"), "runtime": str(self.folder / "run")}
        await asyncio.to_thread(file.write_text, yaml.safe_dump({"node": node, **self.config}))
        await asyncio.to_thread(self.checkpoints.mkdir, exist_ok=True)
        module = ["outlast.simulations.crashing", *self.crash] if self.crash else ["outlast"]
        words = [sys.executable, "-m", *module, "run", "-c", str(file)]
        self.process = Process(words, self.folder / "daemon.log", self.env)
        await self.process.start()

    async def up(self) -> None:
        """Wait until it answers."""
        await until(lambda: self.try_status() is not None, f"{self.name} answers")

    def try_status(self) -> dict[str, Any] | None:
        try:
            return ask(self.folder / "run" / "control.sock", {"op": "status"}, 5.0)
        except UnreachableError:
            return None

    def job(self) -> dict[str, Any]:
        status = self.try_status()
        found: dict[str, Any] = status["jobs"][0] if status else {}
        return found

    def ask(self, op: str) -> dict[str, Any]:
        return ask(self.folder / "run" / "control.sock", {"op": op}, BOUND_S)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The timeline's events of one kind, oldest first."""
        try:
            found = read_file_events(self.folder / "state" / "history.sqlite3", 0.0, 100_000)
        except UnreadableError:
            return []
        return [dict(event.fields) for event in found if event.kind == kind]


class Pair:
    """A primary in one region, a standby in another. Use as an async context manager."""

    def __init__(self, folder: Path, provider: str = "aws", **primary: Any) -> None:
        self.folder = folder
        self.provider = provider
        self.ranks: list[Process] = []
        self.sshd: Sshd
        self.standin: Process
        self.url = ""
        self.primary: Node
        self.standby: Node
        self._primary = primary

    async def __aenter__(self) -> Pair:
        await asyncio.to_thread(self._make_folders)
        replicas = self.folder / "b" / "replicas"
        self.sshd = Sshd(self.folder / "ssh", receive_command(replicas, "tune"))
        await self.sshd.start()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        words = [sys.executable, "-m", "outlast", "simulate", self.provider, "--port", str(port)]
        self.standin = Process(words, self.folder / "standin.log")
        await self.standin.start()
        self.primary = self._make_primary()
        self.standby = self._make_standby(replicas)
        return self

    async def __aexit__(self, *_: object) -> None:
        nodes = [n.process for n in (self.primary, self.standby) if n.process is not None]
        for process in (*nodes, *self.ranks, self.standin):
            if process.handle is not None:
                await process.kill()
        await self.sshd.stop()
        await asyncio.to_thread(kill_by_environ, f"OUTLAST_TEST={self.folder}")

    def _make_folders(self) -> None:
        for name in ("a", "b", "b/replicas", "ssh"):
            (self.folder / name).mkdir(parents=True)

    def _make_primary(self) -> Node:
        peer = {
            "ssh": f"{self.sshd.user}@127.0.0.1:{self.sshd.port}",
            "host_key": self.sshd.host_key,
            "key": str(self.sshd.client.private),
        }
        folder = self.folder / "a"
        job = {"name": "tune", "checkpoints": str(folder / "ckpt"), "peer": peer, **self._primary}
        provider = {"name": self.provider, "endpoint": self.url, "poll": "200ms"}
        env = {"OUTLAST_CRASH_ROOT": str(self.folder / "b" / "replicas")}
        return Node("us-east-1", folder, {"provider": provider, "jobs": [job]}, env=env)

    def _make_standby(self, replicas: Path) -> Node:
        folder = self.folder / "b"
        # One rank that stands for the standby's whole trainer: it announces the same world of two.
        start = {
            "command": [sys.executable, str(Path(__file__).with_name("two_ranks.py")), str(folder)],
            "env": {"OUTLAST_TEST": str(self.folder)},
        }
        job = {
            "name": "tune", "role": "standby", "checkpoints": str(folder / "ckpt"),
            "replicas": str(replicas), "start": start, "takeover_after": "1s",
        }  # fmt: skip
        return Node("us-west-2", folder, {"provider": {"name": "none"}, "jobs": [job]})

    async def up(self) -> None:
        """Start both daemons and wait for them and the stand-in."""
        await asyncio.gather(self.primary.start(), self.standby.start())
        await asyncio.gather(self.primary.up(), self.standby.up())

    async def train(self, **options: Any) -> None:
        """Start the primary's two ranks."""
        for rank in (0, 1):
            words = rank_words(self.primary.trainer_socket, self.primary.checkpoints, rank, **options)
            process = Process(words, self.folder / "a" / f"rank{rank}.log")
            await process.start()
            self.ranks.append(process)
            assert process.handle is not None
            pid_file = self.folder / "a" / f"rank{rank}.pid"
            await asyncio.to_thread(pid_file.write_text, str(process.handle.pid))
        await until(lambda: self.primary.job().get("trainer", {}).get("step") or 0, "training steps")

    async def say(self, what: str, **body: Any) -> None:
        """Script the provider."""
        async with aiohttp.ClientSession() as session:
            deadline = time.monotonic() + BOUND_S
            while True:
                try:
                    async with session.post(f"{self.url}/_standin/{what}", json=body) as answer:
                        assert answer.status == 200, await answer.text()
                        return
                except aiohttp.ClientConnectionError:
                    assert time.monotonic() < deadline, "the stand-in does not answer"
                    await asyncio.sleep(0.05)

    async def keep_alive(self, node: Node) -> None:
        """Do what systemd does: start the daemon again whenever it dies. Cancel to end."""
        while True:
            assert node.process is not None
            assert node.process.handle is not None
            await node.process.handle.wait()
            await node.start()


def rank_words(socket: Path, checkpoints: Path, rank: int, world: int = 2, **options: Any) -> list[str]:
    """The command of one scripted rank."""
    words = [sys.executable, "-m", "outlast.simulations.rank", "--socket", str(socket)]
    words += ["--checkpoints", str(checkpoints), "--rank", str(rank), "--world", str(world)]
    words += ["--log", str(checkpoints.parent / f"rank{rank}.jsonl")]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return words


async def until(condition: Callable[[], Any], what: str, bound_s: float = BOUND_S) -> Any:
    """Wait for a condition, asked in a thread; fail with ``what`` after the bound."""
    deadline = time.monotonic() + bound_s
    while time.monotonic() < deadline:
        found = await asyncio.to_thread(condition)
        if found:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {bound_s} s: {what}")


def kill_by_environ(mark: str) -> None:
    """Kill every process that carries ``mark`` in its environment."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError, ProcessLookupError):
                if mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    os.kill(int(path.name), signal.SIGKILL)
