"""One folder and every process of a drill: made together, gone together."""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from outlast.providers.base import Clock
from outlast.simulations.drill import reap

# The longest path that is put below the folder, in bytes; a Unix socket's path has at most 107 in all.
_ROOM = 40
_TAIL = 12
_PR_SET_CHILD_SUBREAPER = 36
_adopting: set[str] = set()


class DrillError(Exception):
    """The drill cannot go on: what happened, why, and where to look."""


class Child:
    """A process of the drill, leader of its own session, its output in ``log``."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id, which is also its group's and its session's."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Its exit status, once it has ended."""
        return await self._process.wait()

    def send(self, number: signal.Signals) -> None:
        """Signal the process alone; nothing happens if it has ended."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill_group(self) -> None:
        """SIGKILL for the process and all that stayed in its group; nothing if it has ended."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def tail(self) -> str:
        """The last lines of its output, for an error's text."""
        text = await asyncio.to_thread(self.log.read_text, errors="replace")
        return "\n".join(text.splitlines()[-_TAIL:])


class Sandbox:
    """An async context: inside it processes may be spawned, after it there are none, and no folder.

    A guardian process does the same if this process is killed. ``keep`` receives logs, histories and
    configurations, but no key, before the folder goes.
    """

    def __init__(self, clock: Clock, keep: Path | None = None) -> None:
        self.clock = clock
        self.id = secrets.token_hex(8)
        self.folder = Path()
        self._made = False
        self.children: list[Child] = []
        self._keep = keep
        self._guardian: asyncio.subprocess.Process | None = None
        self._buffers: set[Path] = set()

    async def __aenter__(self) -> Self:
        self._buffers = await asyncio.to_thread(reap.shared_buffers)
        try:
            await _undivided(self._open())
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def env(self) -> dict[str, str]:
        """The environment that makes a process belong to this drill, temporary files included."""
        own = {reap.MARK: self.id, "TMPDIR": str(self.folder / "tmp"), "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **own}

    async def spawn(self, name: str, *words: str, env: Mapping[str, str] | None = None) -> Child:
        """Start ``words`` in a session of its own. Raises DrillError if it cannot be started."""
        log = self.folder / "logs" / f"{name}.log"
        output = await asyncio.to_thread(log.open, "ab")
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                env={**self.env, **(env or {})},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as exc:
            raise DrillError(f"cannot start {words[0]}: {exc.strerror or exc}") from exc
        finally:
            output.close()
        child = Child(name, process, log)
        self.children.append(child)
        return child

    def belonging(self) -> set[int]:
        """The live processes of this drill, the guardian left out. Blocking."""
        guardian = {self._guardian.pid} if self._guardian else set()
        return reap.belonging(self.id, self.folder) - guardian

    async def kill_node(self, node: str) -> set[int]:
        """SIGKILL everything that runs on one node, as when its power is cut. Returns who it was."""
        killed: set[int] = set()
        while found := await asyncio.to_thread(reap.on_node, self.id, node):
            for pid in found:
                await asyncio.to_thread(reap.kill, pid, self.id, self.folder)
            killed |= found
        return killed

    async def close(self) -> None:
        """End every process, keep what was asked for, remove the folder. Raises DrillError if it cannot."""
        if self._made:
            await _undivided(self._close())

    async def _open(self) -> None:
        self.folder = await asyncio.to_thread(_make_folder)
        self._made = True
        _adopt_orphans(self.id, True)
        self._guardian = await self._start_guardian()

    async def _close(self) -> None:
        deadline = self.clock.monotonic() + reap.END_S
        for child in self.children:
            child.kill_group()
        killed, left = await asyncio.to_thread(reap.end_all, self.id, self.folder, deadline)
        for child in self.children:
            if child.pid not in left:
                await child.wait()
        await asyncio.to_thread(reap.reap, killed - {child.pid for child in self.children})
        await asyncio.to_thread(reap.sweep_buffers, self._buffers)
        unkept = await asyncio.to_thread(_kept, self.folder, self._keep) if self._keep is not None else ""
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
        if self._guardian is not None:
            await _dismiss(self._guardian)
            self._guardian = None
        self._made = False
        _adopt_orphans(self.id, False)
        if left:
            raise DrillError(f"processes {sorted(left)} of the drill could not be ended: kill them by hand")
        if unkept:
            raise DrillError(unkept)

    async def _start_guardian(self) -> asyncio.subprocess.Process:
        # Without the mark: end_all must not end it. In a session of its own: Ctrl-C must not either.
        words = (sys.executable, "-m", reap.__name__, self.id, str(self.folder))
        return await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )


async def _undivided(work: Coroutine[object, object, None]) -> None:
    """Do all of ``work`` even if cancelled meanwhile, and only then obey: half of it leaves things behind."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _dismiss(guardian: asyncio.subprocess.Process) -> None:
    assert guardian.stdin is not None
    guardian.stdin.close()
    try:
        async with asyncio.timeout(reap.END_S):
            await guardian.wait()
    except TimeoutError:
        guardian.kill()
        await guardian.wait()


def _make_folder() -> Path:
    """A private folder with a path short enough for the sockets below it."""
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) + _ROOM > 107 - _ROOM:
        base = "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it
    folder = Path(tempfile.mkdtemp(prefix="outlast-drill-", dir=base)).resolve()
    for name in ("logs", "tmp"):
        (folder / name).mkdir()
    return folder


def _adopt_orphans(sandbox: str, on: bool) -> None:
    """Processes whose parent died become children of this one, so that they can be reaped: for as long as
    any sandbox is open."""
    if on:
        _adopting.add(sandbox)
    else:
        _adopting.discard(sandbox)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(bool(_adopting)), 0, 0, 0)


def _kept(folder: Path, target: Path) -> str:
    """An empty text, or why not all could be kept."""
    try:
        _keep(folder, target)
    except (OSError, shutil.Error) as exc:
        return f"logs and histories cannot be kept in {target}: {exc}"
    return ""


def _keep(folder: Path, target: Path) -> None:
    """What helps to understand a drill afterwards: text and histories, never keys or checkpoints."""
    target.mkdir(parents=True, exist_ok=True)
    for pattern in ("logs/*", "*/outlast.yaml", "*/*.jsonl", "*/state/*", "*/state/jobs/*", "sshd/sshd.log"):
        for source in folder.glob(pattern):
            if source.is_file():
                copy = target / source.relative_to(folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy)
