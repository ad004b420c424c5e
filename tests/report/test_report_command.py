"""``outlast report`` and ``outlast rates`` as a user meets them, on real history files."""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.cli import rates, report
from outlast.daemon.history.db import History
from outlast.daemon.history.rows import Cause
from outlast.providers.base import Identity

if TYPE_CHECKING:
    from tests.conftest import ManualClock

Capture = pytest.CaptureFixture[str]


def call(command: ModuleType, clock: ManualClock, *words: str) -> int:
    """Parse and run, as ``outlast COMMAND WORDS`` does."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    name = command.__name__.rpartition(".")[2]
    code: int = command.run(parser.parse_args([name, *words]), clock)
    return code


@pytest.fixture
def empty(tmp_path: Path, manual_clock: ManualClock) -> str:
    """A node whose daemon has only just been installed."""
    History.open(tmp_path / "empty.sqlite3", manual_clock).close()
    return str(tmp_path / "empty.sqlite3")


@pytest.fixture
def one_day(tmp_path: Path, manual_clock: ManualClock) -> str:
    """A node that was taken twice in a day, in a zone whose name would be markup."""
    history = History.open(tmp_path / "day.sqlite3", manual_clock)
    where = Identity("aws", "us-east-1", "a", "<b>use1-az1</b>", "p5.48xlarge", "i-1")
    stays: tuple[tuple[int, Cause], ...] = ((5, "interruption"), (9, "interruption"), (8, "user-stop"))
    for hours, cause in stays:
        spell = history.begin_spell(where, "n", f"boot-{hours}")
        for _ in range(60 * hours):
            manual_clock.advance(60)
            history.heartbeat(spell)
        history.end_spell(spell, cause)
        manual_clock.advance(1800)
    history.close()
    return str(tmp_path / "day.sqlite3")


@pytest.fixture
def corrupt(tmp_path: Path) -> str:
    """A file of which the disk has made something else."""
    (tmp_path / "corrupt.sqlite3").write_bytes(b"?" * 9000)
    return str(tmp_path / "corrupt.sqlite3")


@pytest.mark.parametrize("command", [report, rates], ids=["report", "rates"])
def test_an_empty_history_is_a_report_that_says_so(
    command: ModuleType, empty: str, manual_clock: ManualClock, capsys: Capture
) -> None:
    """It is no failure: the record begins with the first spell."""
    assert call(command, manual_clock, empty) == 0
    assert "No history yet" in capsys.readouterr().out


def test_an_empty_history_makes_a_page(empty: str, manual_clock: ManualClock, tmp_path: Path) -> None:
    """The page says the same."""
    assert call(report, manual_clock, empty, "--html", str(tmp_path / "r.html")) == 0
    assert "No history yet" in (tmp_path / "r.html").read_text()


def test_one_day_shows_its_hours_and_ranks_nothing(
    one_day: str, manual_clock: ManualClock, capsys: Capture
) -> None:
    """22 hours and two losses: shown with an interval if at all, and told to be too little."""
    assert call(report, manual_clock, one_day, "--zone", "UTC") == 0
    out = capsys.readouterr().out
    (line,) = (line for line in out.splitlines() if line.startswith("  us-east-1 <b>use1-az1</b>"))
    assert line.split()[2:4] == ["22", "2"]
    assert "not enough" in line or "thin" in line
    assert "ok" not in line.split()


def test_one_day_makes_a_page_with_the_name_as_text(
    one_day: str, manual_clock: ManualClock, tmp_path: Path, capsys: Capture
) -> None:
    """Where the page was written is said on standard error; nothing is left beside it."""
    file = tmp_path / "out" / "r.html"
    file.parent.mkdir()
    assert call(report, manual_clock, one_day, "--html", str(file)) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"outlast report: written to {file}\n")
    assert "&lt;b&gt;use1-az1&lt;/b&gt;" in file.read_text()
    assert "<b>use1" not in file.read_text()
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("command", [report, rates], ids=["report", "rates"])
def test_a_corrupt_or_missing_history_is_told_and_left_alone(
    command: ModuleType, corrupt: str, manual_clock: ManualClock, tmp_path: Path, capsys: Capture
) -> None:
    """Exit status 1, what is wrong on standard error, nothing on standard output."""
    for source in (corrupt, str(tmp_path / "none.sqlite3")):
        assert call(command, manual_clock, source) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert source in said.err
    assert Path(corrupt).read_bytes() == b"?" * 9000


def test_a_page_that_cannot_be_written_is_told(
    one_day: str, manual_clock: ManualClock, tmp_path: Path, capsys: Capture
) -> None:
    """The folder is named, and what to do."""
    assert call(report, manual_clock, one_day, "--html", str(tmp_path / "no" / "r.html")) == 1
    assert f"cannot write {tmp_path / 'no' / 'r.html'}" in capsys.readouterr().err


def test_json_and_csv_hold_the_same_pools(one_day: str, manual_clock: ManualClock, capsys: Capture) -> None:
    """One object with the hours and losses; one row with the same."""
    assert call(report, manual_clock, one_day, "--json") == 0
    (pool,) = json.loads(capsys.readouterr().out)["pools"]
    assert (round(pool["exposure_h"]), pool["losses"]) == (22, 2)
    assert call(rates, manual_clock, one_day, "--csv") == 0
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert float(row["exposure_h"]) == pytest.approx(pool["exposure_h"])
    assert row["zone"] == "<b>use1-az1</b>"


def test_since_leaves_out_what_was_before(one_day: str, manual_clock: ManualClock, capsys: Capture) -> None:
    """The last ten hours hold the last stay alone, and none of the losses before it."""
    assert call(report, manual_clock, one_day, "--json", "--since", "8h") == 0
    (pool,) = json.loads(capsys.readouterr().out)["pools"]
    assert pool["losses"] == 0
    assert 7 <= pool["exposure_h"] <= 8


def test_a_claim_gets_a_verdict_a_region(one_day: str, manual_clock: ManualClock, capsys: Capture) -> None:
    """Two losses cannot tell: the claim stays open."""
    assert call(rates, manual_clock, one_day, "--claim", "0,6,12,18", "--json") == 0
    body = json.loads(capsys.readouterr().out)
    assert "advice" not in body
    assert {claim["verdict"] for claim in body["claims"]} <= {"open"}
    assert call(rates, manual_clock, one_day, "--claim", "0,6,12,18") == 0


@pytest.mark.parametrize(
    "words",
    [
        ("report", "--zone", "Europe/Nowhere"),
        ("report", "--zone", "../../etc/passwd"),
        ("report", "--since", "yesterday"),
        ("report", "--json", "--csv"),
        ("report", "--hours", "0"),
        ("report", "--hours", "nan"),
        ("report", "--gpus", "many"),
        ("rates", "--claim", "24"),
        ("rates", "--claim", "noon"),
    ],
)
def test_wrong_words_are_usage_errors(
    words: tuple[str, ...], manual_clock: ManualClock, capsys: Capture
) -> None:
    """Exit status 2, and the word that is wrong is named."""
    with pytest.raises(SystemExit) as stopped:
        call(rates if words[0] == "rates" else report, manual_clock, *words[1:])
    assert stopped.value.code == 2
    assert words[1].lstrip("-") in capsys.readouterr().err


def test_the_program_itself_pipes_plain_text(one_day: str) -> None:
    """Through the real command, in a pipe, without any locale: ASCII, no escape sequence, exit status 0."""
    own = os.environ | {"PYTHONIOENCODING": "ascii", "TZ": "Asia/Kolkata", "FORCE_COLOR": ""}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "outlast", "report", one_day],
        env=own,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.replace("\n", "").isprintable()
    assert done.stdout.isascii()


def test_a_recommendation_is_made_for_a_job(
    one_day: str, manual_clock: ManualClock, tmp_path: Path, capsys: Capture
) -> None:
    """With a day of history there is not enough data for one, which is an answer."""
    assert call(report, manual_clock, one_day, "--hours", "40", "--json") == 0
    body = json.loads(capsys.readouterr().out)
    assert body["advice"]["verdict"] == "not enough data"
    assert body["backtest"]["weeks"] == 0
    assert call(report, manual_clock, one_day, "--hours", "40", "--html", str(tmp_path / "r.html")) == 0
    assert "Not enough data for a recommendation" in (tmp_path / "r.html").read_text()
