"""`every: auto` in a whole daemon beside a stand-in of a provider: configured, measured, told."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from tests.cli.conftest import Place

CONFIG = """\
node: {{name: here, state: {folder}/state, runtime: {folder}/run}}
provider: {{name: aws, endpoint: "{url}", poll: 50ms}}
jobs:
  - {{name: tune, checkpoints: {folder}/ckpt, every: auto}}
"""


@contextmanager
def standin() -> Iterator[str]:
    """The address of an AWS metadata endpoint without a notice."""
    words = [sys.executable, "-m", "outlast", "simulate", "aws", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


@contextmanager
def rank(place: Place) -> Iterator[None]:
    """One scripted rank whose save takes a tenth of a second."""
    words = [sys.executable, "-m", "outlast.simulations.rank", "--step-s", "0.02", "--save-s", "0.1"]
    words += ["--socket", str(place.folder / "run/trainer.sock"), "--checkpoints", str(place.folder / "ckpt")]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; fails after a bound."""
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.05)


def interval(place: Place) -> dict[str, Any]:
    """What the status says of it."""
    told: dict[str, Any] = place.outlast("status", "--json").json["jobs"][0]["interval"]
    return told


def test_the_interval_is_chosen_by_what_was_measured(place: Place) -> None:
    """Checked, run, measured: the status tells the seconds and why, with the rate of the node's own pool."""
    with standin() as url:
        place.config.write_text(CONFIG.format(folder=place.folder, url=url))
        checked = place.outlast("config", "check", place.config)
        assert checked.code == ExitCode.DONE
        assert "every auto" in checked.out
        place.daemon()
        with rank(place):
            until(lambda: place.outlast("status", "--json").json["jobs"][0]["trainer"]["step"])
            before = interval(place)
            assert (before["seconds"], before["auto"]) == (300.0, True)
            assert place.outlast("checkpoint").code == ExitCode.DONE
            until(lambda: "(assumed)" not in interval(place)["because"] and interval(place)["seconds"] < 300)
            because = interval(place)["because"]
            assert "a checkpoint holds training up for 0.1" in because
            assert "an interruption is expected once in 10.0 h" in because
            assert f"  checkpoints: {because}" in place.outlast("status").out
