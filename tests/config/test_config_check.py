"""``outlast config check`` as a user runs it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.config.conftest import Ground

from outlast.daemon.cli import config
from outlast.daemon.ops.exit import ExitCode

GOOD = """\
jobs:
  - name: tune
    checkpoints: CKPT
    every: 90s
    peer: {ssh: a@b, host_key: PUB, key: KEY}
"""


def call(*words: str) -> int:
    """Run the command in this process."""
    parser = argparse.ArgumentParser(prog="outlast")
    config.add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["config", "check", *words])
    return int(args.run(args))


def test_usable_file(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    """A usable file is summed up on stdout."""
    file = ground.write("node: {name: n1}\n" + GOOD)
    assert call(str(file)) == ExitCode.DONE
    out = capsys.readouterr()
    assert out.err == ""
    assert out.out.splitlines() == [
        f"{file}: usable",
        "  node n1, listens to auto, poll 1s",
        f"  job tune: primary, checkpoints in {ground.checkpoints}, every 1m30s, shipped to a@b:22",
    ]


def test_wrong_file(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    """Every problem goes to stderr, one a line, and the status is that of a bad configuration."""
    file = ground.write(GOOD.replace("90s", "soon") + "evry: 1\n")
    assert call(str(file)) == ExitCode.BAD_CONFIG
    out = capsys.readouterr()
    assert out.out == ""
    lines = out.err.splitlines()
    assert lines[0].startswith(f"{file}:4:12: jobs.0.every: must be a duration")
    assert lines[1].startswith(f"{file}:6:1: evry: unknown key")
    assert lines[2] == "2 problems; the daemon will not start"


def test_json(ground: Ground, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json there is one object on stdout, whether the file is usable or not."""
    good = ground.write(GOOD)
    assert call(str(good), "--json") == ExitCode.DONE
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["problems"], said["jobs"]) == (True, [], [{"name": "tune", "role": "primary"}])
    bad = ground.write("jobs: []\n")
    assert call(str(bad), "--json") == ExitCode.BAD_CONFIG
    assert json.loads(capsys.readouterr().out) == {
        "format": 1,
        "file": str(bad),
        "ok": False,
        "problems": [{"line": 1, "column": 7, "path": "jobs", "message": "must hold at least one job"}],
        "notes": [],
    }


def test_file_from_the_environment(
    ground: Ground, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an argument, $OUTLAST_CONFIG names the file; a credential of the unit is noted, not refused."""
    file = ground.write(GOOD.replace("key: KEY", "key: credential:ssh_key"))
    monkeypatch.setenv("OUTLAST_CONFIG", str(file))
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert call() == ExitCode.DONE
    note = "note: job tune: credential ssh_key is only there inside the unit; not checked"
    assert note in capsys.readouterr().out.splitlines()


def test_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is not there is a bad configuration, said in one sentence."""
    assert call("/nowhere.yaml") == ExitCode.BAD_CONFIG
    assert "/nowhere.yaml: does not exist" in capsys.readouterr().err


def test_checkpoints_that_cannot_be_written(ground: Ground, tmp_path: Path) -> None:
    """A folder that is read-only for the daemon, as under ProtectSystem=strict, is found at once."""
    folder = tmp_path / "checkpoints"
    folder.mkdir(mode=0o555)
    file = tmp_path / "outlast.yaml"
    file.write_text(f"jobs: [{{name: tune, checkpoints: {folder}}}]\n")
    script = (
        "import sys; from argparse import Namespace; from pathlib import Path;"
        "from outlast.daemon.cli import config;"
        "sys.exit(config.run(Namespace(file=Path(sys.argv[1]), json=False)))"
    )
    command = [sys.executable, "-c", script, str(file)]
    if os.geteuid() == 0:  # whom only a read-only mount can stop
        mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", mount, str(folder), *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == ExitCode.BAD_CONFIG, done.stderr
    assert f"{file}:1:34: jobs.0.checkpoints: checkpoint folder {folder} is not writable here" in done.stderr
