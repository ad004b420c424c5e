"""``outlast history`` as a user meets it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.cli import history as command
from outlast.daemon.history.db import History
from outlast.providers.base import Action, Identity, Notice

if TYPE_CHECKING:
    from tests.conftest import ManualClock


def call(clock: ManualClock, *words: str) -> int:
    """Parse and run, as ``outlast history WORDS`` does."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    return command.run(parser.parse_args(["history", *words]), clock)


@pytest.fixture
def file(tmp_path: Path, manual_clock: ManualClock) -> Path:
    """A node that ran two hours and was taken, and an event whose text came from outside."""
    path = tmp_path / "history.sqlite3"
    history = History.open(path, manual_clock)
    spell = history.begin_spell(Identity("aws", "us-east-1", "a", "use1-az1", "p5.48xlarge", "i-1"), "n", "b")
    manual_clock.advance(7200)
    notice = Notice("n-1", Action.TERMINATE, manual_clock.monotonic() + 120, "spot")
    history.notice_seen(spell, notice, manual_clock.wall() + 120, "b")
    history.event("flush_asked", "job", "n-1", because="a\x1b[2Jb")
    history.end_spell(spell, "interruption")
    history.close()
    return path


def test_counts_are_a_plain_table_with_exposure(
    file: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a pool, its hours, and a sentence that shows no rate."""
    assert call(manual_clock, "--db", str(file)) == 0
    heading, line, verdict = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["pool", "exposure", "spells"]
    assert line.split() == ["aws", "use1-az1", "p5.48xlarge", "2.0", "h", *"1101000"]
    assert verdict.startswith("1 interruption in 1 burst over 2.0 instance-hours.")


def test_json_holds_pools_total_and_events(
    file: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same file twice counts once; the body is one object."""
    assert (
        call(manual_clock, "--db", str(file), "--db", str(file), "--json", "--events", "--since", "1h") == 0
    )
    body = json.loads(capsys.readouterr().out)
    assert body["format"] == 1
    assert body["total"]["interruptions"] == 1
    assert body["total"]["exposure_hours"] == pytest.approx(1.0)
    assert body["pools"][0]["pool"]["zone"] == "use1-az1"
    assert body["events"][0]["fields"] == {"because": "a\x1b[2Jb"}


def test_events_show_no_control_characters(
    file: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a provider or peer wrote cannot drive the terminal."""
    assert call(manual_clock, "--db", str(file), "--events") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "flush_asked job because='a\\x1b[2Jb'" in out


def test_an_empty_history_is_not_enough_data(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing happened yet: that is said, and is no error."""
    History.open(tmp_path / "h.sqlite3", manual_clock).close()
    assert call(manual_clock, "--db", str(tmp_path / "h.sqlite3")) == 0
    assert "not enough data" in capsys.readouterr().out


def test_missing_and_corrupt_files_exit_1_with_a_way_out(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each says what is wrong with the file and what happens next; the file is left as it was."""
    assert call(manual_clock, "--db", str(tmp_path / "none")) == 1
    assert "There is no history at" in capsys.readouterr().err
    (tmp_path / "bad").write_bytes(b"?" * 9000)
    assert call(manual_clock, "--db", str(tmp_path / "bad")) == 1
    assert "sets such a file aside at its next start" in capsys.readouterr().err
    assert (tmp_path / "bad").read_bytes() == b"?" * 9000


def test_a_length_that_is_none_is_a_usage_error(
    manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """--since wants a duration."""
    with pytest.raises(SystemExit) as stopped:
        call(manual_clock, "--since", "yesterday")
    assert stopped.value.code == 2
    assert "must be a duration" in capsys.readouterr().err


def test_on_a_terminal_the_table_is_drawn_and_markup_is_text(
    file: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets in a name from outside are shown as they are."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    other = file.with_name("other.sqlite3")
    history = History.open(other, manual_clock)
    history.begin_spell(Identity("aws", "r", "[red]z[/red]", "", "t", "i-2"), "m", "b")
    history.close()
    assert call(manual_clock, "--db", str(file), "--db", str(other)) == 0
    out = capsys.readouterr().out
    assert "[red]z[/red]" in out
    assert "all" in out
