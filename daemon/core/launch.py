"""Starting the standby's trainer, at most once at a time, in a session of its own.

A command inherits a lock that the kernel keeps for as long as the launcher lives, so a daemon that was
killed and came back cannot start a second one. A systemd unit is locked by systemd itself.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

log = structlog.get_logger("outlast.launch")


class LaunchError(Exception):
    """The trainer could not be started: what, why and what to do."""


@dataclass(frozen=True, slots=True)
class Start:
    """How to start a trainer: a command, or a systemd unit."""

    command: tuple[str, ...] = ()
    unit: str = ""
    folder: Path | None = None
    env: Mapping[str, str] | None = None


class Launcher:
    """One trainer of one job. ``lock`` and ``output`` are files of the daemon's state folder."""

    def __init__(self, start: Start, lock: Path, output: Path, env: Mapping[str, str]) -> None:
        self._start = start
        self._lock = lock
        self._output = output
        self._env = env
        self._child: subprocess.Popen[bytes] | None = None

    async def running(self) -> bool:
        """Whether a trainer started here is alive, by this life of the daemon or an earlier one."""
        if self._start.unit:
            return await _systemctl("is-active", self._start.unit) == 0
        return await asyncio.to_thread(self._locked)

    async def start(self) -> None:
        """Start the trainer unless it runs. Raises LaunchError."""
        if self._start.unit:
            if await _systemctl("start", "--no-block", self._start.unit) != 0:
                raise LaunchError(f"systemctl start {self._start.unit} failed: see journalctl -u it")
            return
        await asyncio.to_thread(self._spawn)

    def ended(self) -> int | None:
        """The exit status of a trainer started in this life; None while it runs or if none was started."""
        return self._child.poll() if self._child is not None else None

    def _locked(self) -> bool:
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as file:
            return not _take(file.fileno())

    def _spawn(self) -> None:
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as lock, self._output.open("ab") as output:
            if not _take(lock.fileno()):
                return
            try:
                self._child = subprocess.Popen(
                    self._start.command,
                    cwd=self._start.folder,
                    env={**_inherited(), **(self._start.env or {}), **self._env},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(lock.fileno(),),
                )
            except OSError as exc:
                raise LaunchError(
                    f"cannot start {self._start.command[0]}: {exc.filename}: {exc.strerror}; "
                    "check start.command and start.folder"
                ) from exc


# What systemd means for the daemon alone: a trainer must not speak or read in its name.
_OURS = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM"}


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def _take(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _systemctl(*words: str) -> int:
    process = await asyncio.create_subprocess_exec(
        "systemctl", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait()
