"""./dev and .ci/run as shell scripts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def call(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ./dev."""
    return subprocess.run(
        [str(ROOT / "dev"), *words], capture_output=True, text=True, timeout=30, check=False, cwd="/"
    )


def test_dev_explains_itself_from_any_folder() -> None:
    """Without a command it sets nothing up and tells what there is."""
    done = call()
    assert done.returncode == 0
    for command in ("setup", "lint", "test", "drill", "bench", "lock"):
        assert f"\n  {command}" in done.stdout


def test_an_unknown_command_is_a_usage_error() -> None:
    """A slip of the finger sets nothing up."""
    done = call("tset")
    assert done.returncode == 2
    assert "no command 'tset'" in done.stderr


@pytest.mark.parametrize("script", ["dev", ".ci/run"])
def test_scripts_are_executable_and_parse(script: str) -> None:
    """bash agrees, and the mode is right in a fresh clone."""
    assert os.access(ROOT / script, os.X_OK)
    assert subprocess.run(["bash", "-n", str(ROOT / script)], check=False, timeout=30).returncode == 0


def test_ci_runs_lint_and_tests() -> None:
    """CI adds nothing to what a developer can run."""
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert "set -euo pipefail" in lines
    assert [line for line in lines if line.startswith("./dev")] == ["./dev lint", "./dev test"]
