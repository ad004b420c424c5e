"""The report in a terminal, in a pipe, and where only ASCII is to be had."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from outlast.daemon.advice.values import Advice
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import Claim, Range, Study
from outlast.daemon.report import terminal

BERLIN = ZoneInfo("Europe/Berlin")
GOLDEN = Path(__file__).with_name("terminal.txt")
HOSTILE = "\x1b[31m\u202e[bold]<script>alert(1)</script>" + "x" * 10_000
Make = Callable[..., tuple[Study, Observed]]


class _Tty(StringIO):
    """A terminal to write to."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_the_plain_form_is_as_it_was(history: Make, advice: Advice) -> None:
    """The wording is a promise: a change of it is a change of this file, seen in review."""
    assert terminal.text(*history(), BERLIN, advice) == GOLDEN.read_text(encoding="utf-8")


def test_no_line_is_wider_than_a_hundred_columns(history: Make, advice: Advice) -> None:
    """Not even with names and sentences of ten thousand letters."""
    study, observed = history(*(Pool("aws", f"r{i}", HOSTILE + str(i), "t") for i in range(3)))
    study = replace(study, notes=(HOSTILE,))
    shown = terminal.text(study, observed, BERLIN, replace(advice, sentence=HOSTILE, reasons=(HOSTILE,)))
    assert max(map(len, shown.splitlines())) <= 100


def test_hostile_names_do_nothing(history: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """No escape sequence reaches a pipe; a terminal gets only those of rich, and brackets stay brackets."""
    study, observed = history(*(Pool(HOSTILE, HOSTILE, HOSTILE + str(i), HOSTILE) for i in range(3)))
    piped = terminal.text(study, observed, BERLIN)
    assert piped.replace("\n", "").isprintable()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = _Tty()
    terminal.show(study, observed, BERLIN, screen)
    shown = screen.getvalue()
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown
    assert "[bold]" in shown
    left = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert left.replace("\n", "").isprintable()


def test_no_color_is_respected(history: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR a terminal gets no colour; what it says is the same."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = _Tty()
    terminal.show(*history(), BERLIN, screen)
    assert not re.search(r"\x1b\[(?:\d+;)*3\d", screen.getvalue())
    assert "ok, clumped x3" in screen.getvalue()


def test_ascii_is_enough(history: Make, advice: Advice) -> None:
    """An encoding without block characters gets others; nothing fails and no column moves."""
    raw = BytesIO()
    out = TextIOWrapper(raw, encoding="ascii")
    terminal.show(*history(), BERLIN, out, advice)
    out.flush()
    lines = raw.getvalue().decode("ascii").splitlines()
    golden = GOLDEN.read_text(encoding="utf-8").splitlines()
    assert [len(line) for line in lines] == [len(line) for line in golden]


def test_an_empty_history_is_said_to_be_empty(history: Make) -> None:
    """No table without a row."""
    study, observed = history()
    empty = replace(study, pools=(), ages=(), weekends=(), patterns=(), trends=(), coverage=None, notes=())
    assert terminal.text(empty, observed, BERLIN) == f"{terminal.NOTHING}\n"


def test_a_claim_is_told_with_its_verdict(history: Make) -> None:
    """One line a region, led by the hours that are claimed."""
    claim = Claim("aws", "", (0, 6), Range(1.0, 0.9, 1.2), 0.4, 10, 9.5, "refused", "1.0x (0.9-1.2).")
    out = StringIO()
    terminal.show(*history(), BERLIN, out, claims=(claim,))
    assert "More losses at 00, 06 UTC?\n  refused in all of AWS: 1.0x (0.9-1.2)." in out.getvalue()


def test_hundreds_of_pools_do_not_fill_the_screen(history: Make) -> None:
    """The first sixty are shown, and where the others are is said."""
    study, observed = history()
    many = tuple(
        replace(study.pools[0], pool=Pool("aws", "us-west-2", f"us-west-2-{i}", "t")) for i in range(200)
    )
    shown = terminal.text(replace(study, pools=many), observed, BERLIN)
    assert "and 140 more pools" in shown
    assert shown.count("ok, clumped x3") == 60
