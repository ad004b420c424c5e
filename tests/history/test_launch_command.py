"""``outlast history launch`` as a launch script uses it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.cli import launch as command
from outlast.daemon.history.db import History
from outlast.daemon.history.reading import read_rows
from outlast.daemon.history.rows import LaunchRow, Pool

if TYPE_CHECKING:
    from tests.conftest import ManualClock

POOL = "aws/us-east-1/use1-az4/p4d.24xlarge"


def call(clock: ManualClock, *words: str) -> int:
    """Parse and run, as ``outlast history launch WORDS`` does."""
    parser = argparse.ArgumentParser()
    command.register(parser.add_subparsers())
    return command.run(parser.parse_args(["launch", *words]), clock)


def test_an_attempt_is_recorded_once(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that repeats itself under one id leaves one line; later arrivals count."""
    file = tmp_path / "launches.sqlite3"
    words = ("--pool", POOL, "--asked", "16", "--id", "run-7", "--by", "slurm", "--db", str(file))
    assert call(manual_clock, *words, "--got", "13", "--at", "2027-01-01T00:00:00+01:00") == 0
    assert call(manual_clock, *words, "--got", "16") == 0
    assert call(manual_clock, *words, "--got", "2") == 0
    pool = Pool("aws", "us-east-1", "use1-az4", "p4d.24xlarge")
    assert read_rows(file).launches == (LaunchRow("run-7", pool, 1798758000.0, 16, 16, "slurm"),)
    assert capsys.readouterr().out == "recorded as run-7\n" * 3


def test_attempts_without_an_id_are_told_apart(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is a new one; `--json` tells its id and time."""
    words = ("--pool", "gcp/us-central1//a3-highgpu-8g", "--asked", "1", "--got", "0", "--json")
    for _ in range(2):
        assert call(manual_clock, *words, "--db", str(tmp_path / "l.sqlite3")) == 0
    bodies = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {body["id"] for body in bodies} == {row.id for row in read_rows(tmp_path / "l.sqlite3").launches}
    assert len(bodies) == 2
    assert bodies[0]["at"] == manual_clock.wall()


def test_the_daemons_open_file_takes_it(tmp_path: Path, manual_clock: ManualClock) -> None:
    """Two writers of one file wait for each other; the daemon's next segment holds the attempt."""
    history = History.open(tmp_path / "history.sqlite3", manual_clock)
    before = history.changed("", -1)
    assert before is not None
    words = ("--pool", POOL, "--asked", "2", "--got", "1", "--db", str(history.path))
    assert call(manual_clock, *words) == 0
    history.event("still writing")
    after = history.changed(before.writer, before.rev)
    assert after is not None
    assert [row.asked for row in after.rows.launches] == [2]
    assert history.degraded is None
    history.close()


@pytest.mark.parametrize("content", [b"garbage" * 1000, None])
def test_a_file_that_is_no_history_is_left_alone(
    content: bytes | None, tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1, what to do, and not a byte changed."""
    import sqlite3

    file = tmp_path / "other.sqlite3"
    if content is None:
        db = sqlite3.connect(file)
        db.execute("CREATE TABLE mine (x)")
        db.close()
    else:
        file.write_bytes(content)
    before = file.read_bytes()
    assert call(manual_clock, "--pool", POOL, "--asked", "1", "--got", "1", "--db", str(file)) == 1
    assert file.read_bytes() == before
    assert "Name another file with --db" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--pool", "aws", "--asked", "1", "--got", "1"),
        ("--pool", "aws//z/t", "--asked", "1", "--got", "1"),
        ("--pool", "aws/r/z/t\x1b[2J", "--asked", "1", "--got", "1"),
        ("--pool", POOL, "--asked", "-1", "--got", "0"),
        ("--pool", POOL, "--asked", "1e3", "--got", "0"),
        ("--pool", POOL, "--asked", "1", "--got", "0", "--at", "yesterday"),
        ("--pool", POOL, "--asked", "1", "--got", "0", "--at", "2027-01-01T00:00:00"),
        ("--pool", POOL, "--asked", "1", "--got", "0", "--at", "nan"),
        ("--pool", POOL, "--asked", "1", "--got", "0", "--id", ""),
    ],
)
def test_words_that_make_no_attempt_are_usage_errors(
    words: tuple[str, ...], manual_clock: ManualClock
) -> None:
    """Exit status 2 before any file is touched."""
    with pytest.raises(SystemExit) as caught:
        call(manual_clock, *words)
    assert caught.value.code == 2


def test_more_cannot_come_than_was_asked_for(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is a mistake in the script, and said so."""
    file = tmp_path / "l.sqlite3"
    assert call(manual_clock, "--pool", POOL, "--asked", "1", "--got", "2", "--db", str(file)) == 2
    assert "--got 2 is more than --asked 1" in capsys.readouterr().err
    assert not file.exists()


def test_kill_9_while_recording_loses_no_attempt_that_was_confirmed(tmp_path: Path) -> None:
    """What was answered with success is on the disk, whatever happens next."""
    script = (
        "import sys, os; from pathlib import Path; from outlast.daemon.history.launches import record;"
        "from outlast.daemon.history.rows import LaunchRow, Pool;"
        "record(Path(sys.argv[1]), LaunchRow('l', Pool('a', 'r', '', 't'), 1.0, 1, 1), make=True);"
        "os.kill(os.getpid(), 9)"
    )
    file = tmp_path / "l.sqlite3"
    assert subprocess.run([sys.executable, "-c", script, str(file)], check=False).returncode == -9
    assert len(read_rows(file).launches) == 1
