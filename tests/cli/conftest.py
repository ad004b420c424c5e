"""`outlast` as a user has it: a process of its own, in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

BOUND_S = 30.0
CONFIG = """\
node: {{name: here, state: {folder}/state, runtime: {folder}/run}}
provider: {{name: none}}
jobs:
  - {{name: tune, checkpoints: {folder}/ckpt, every: 1h}}
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Daemon:
    """A running `outlast run`, whose log is read line by line."""

    def __init__(self, config: Path, log: Path, env: dict[str, str]) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "outlast", "run", "-c", str(config)], stdout=out, stderr=out, env=env
            )

    def events(self) -> list[dict[str, Any]]:
        """Everything logged until now."""
        found = []
        for line in self._log.read_text().splitlines():
            with suppress(ValueError):  # the last line may not be whole yet
                found.append(json.loads(line))
        return found

    def noise(self) -> list[str]:
        """Lines that are no log, and errors: a clean life has none."""
        told = {"error", "critical"}
        lines = self._log.read_text().splitlines()
        return [t for t in lines if not t.startswith("{") or json.loads(t)["level"] in told]

    def until(self, event: str) -> dict[str, Any]:
        """The first log line of this event, once it is there."""
        until(lambda: self.process.poll() is not None or any(e["event"] == event for e in self.events()))
        found = [e for e in self.events() if e["event"] == event]
        assert found, f"ended with {self.process.poll()}: {self._log.read_text()}"
        return found[0]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(BOUND_S)

    def kill(self) -> None:
        """However it stands, it is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(BOUND_S)


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; fails after the bound."""
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


class Place:
    """A folder with `outlast.yaml` and `ckpt/`, and what is run there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "outlast.yaml"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("OUTLAST_", "NOTIFY_"))}
        self.env["OUTLAST_CONTROL"] = str(folder / "run/control.sock")
        self._daemons: list[Daemon] = []
        (folder / "ckpt").mkdir()
        self.config.write_text(CONFIG.format(folder=folder))

    def outlast(self, *words: object, **env: str) -> Outcome:
        """Run one command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "outlast", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            env=self.env | env,
            cwd=self.folder,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def daemon(self) -> Daemon:
        """A daemon that serves."""
        made = Daemon(self.config, self.folder / f"log-{len(self._daemons)}", self.env)
        self._daemons.append(made)
        made.until("serving")
        return made

    def close(self) -> None:
        """No process stays."""
        for daemon in self._daemons:
            daemon.kill()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """One primary of one job; its daemons are killed at the end."""
    made = Place(tmp_path)
    yield made
    made.close()
