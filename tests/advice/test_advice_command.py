"""``outlast advise`` as a user meets it, on made-up histories of known hazard."""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from outlast.daemon.cli import advise
from outlast.daemon.history.db import History

if TYPE_CHECKING:
    from tests.conftest import ManualClock

_SPEC = importlib.util.spec_from_file_location("spell_files", Path(__file__).with_name("spell_files.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
spell_files = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(spell_files)

Capture = pytest.CaptureFixture[str]
NOW = spell_files.BEGINS + spell_files.DAYS * 86400
CALM, DEAR = "aws/us-west-2/usw2-az2", "aws/us-east-1/use1-az1"
PRICES = ("--price", "us-west-2=10", "--price", "us-east-1=12", "--price", "aws=32/od")


@pytest.fixture
def at_the_end(manual_clock: ManualClock) -> ManualClock:
    """The clock stands where the histories end."""
    manual_clock.epoch = NOW
    return manual_clock


@pytest.fixture
def two(tmp_path: Path) -> str:
    """A calm pool and one that loses a node every two hours, in two regions."""
    return str(spell_files.spells(tmp_path / "two.csv", {CALM: 0.02, DEAR: 0.5}))


def call(clock: ManualClock, *words: str) -> int:
    """Parse and run, as ``outlast advise WORDS`` does."""
    parser = argparse.ArgumentParser()
    advise.add_parser(parser.add_subparsers())
    return advise.run(parser.parse_args(["advise", *words]), clock)


def told(clock: ManualClock, capsys: Capture, *words: str) -> dict[str, Any]:
    """The advice as JSON."""
    assert call(clock, *words, "--json") == 0
    body: dict[str, Any] = json.loads(capsys.readouterr().out)
    return body


def test_the_calm_pool_is_advised(at_the_end: ManualClock, two: str, capsys: Capture) -> None:
    """With its standby in the other region, an interval, a cost with range and parts that add up."""
    body = told(at_the_end, capsys, two, "--hours", "40", "--gpus", "8", "--type", "a100", *PRICES)
    assert body["verdict"] == "run"
    assert [pool["region"] for pool in body["order"]] == ["us-west-2", "us-east-1"]
    assert body["standby"]["region"] == "us-east-1"
    assert body["window"] == "any hour"
    assert "do not set" in body["cap"]
    spot = [row for row in body["rows"] if row["market"] == "spot"]
    assert spot[0]["per_useful_hour"]["low"] < spot[0]["per_useful_hour"]["mean"]
    assert sum(spot[0]["parts"].values()) == pytest.approx(spot[0]["per_useful_hour"]["mean"])
    assert spot[0]["interval_s"] > spot[1]["interval_s"]
    assert body["backtest"]["sentence"].startswith("Not back-tested")


def test_alike_pools_are_a_tie(at_the_end: ManualClock, tmp_path: Path, capsys: Capture) -> None:
    """Two pools of one hazard and one price cannot be told apart, and the answer says so."""
    alike = str(spell_files.spells(tmp_path / "alike.csv", {CALM: 0.1, DEAR: 0.1}))
    body = told(at_the_end, capsys, alike, "--hours", "40", "--price", "aws=10", "--price", "aws=32/od")
    assert body["verdict"] == "tie"
    assert "usw2-az2" in body["sentence"]
    assert "use1-az1" in body["sentence"]


def test_spot_dearer_than_on_demand_is_never_advised(
    at_the_end: ManualClock, two: str, capsys: Capture
) -> None:
    """Neither alone nor second in the order."""
    dear = ("--price", "us-east-1=40", "--price", "us-west-2=10", "--price", "aws=32/od")
    body = told(at_the_end, capsys, two, "--hours", "40", *dear)
    assert [pool["region"] for pool in body["order"]] == ["us-west-2"]
    assert body["standby"] is None
    assert any("not advised" in reason for reason in body["reasons"])
    body = told(at_the_end, capsys, two, "--hours", "40", "--price", "aws=40", "--price", "aws=32/od")
    assert body["verdict"] == "on-demand"
    assert body["order"] == []


def test_without_prices_time_is_ranked(at_the_end: ManualClock, two: str, capsys: Capture) -> None:
    """The pool that loses least time comes first, and the lack of prices is named."""
    body = told(at_the_end, capsys, two, "--hours", "40")
    assert body["verdict"] == "run"
    assert body["order"][0]["region"] == "us-west-2"
    assert "paid hours" in body["sentence"]
    assert any(line.startswith("Prices:") for line in body["not_known"])
    assert any(line.startswith("The on-demand price") for line in body["not_known"])


def test_one_region_has_no_standby(at_the_end: ManualClock, tmp_path: Path, capsys: Capture) -> None:
    """A standby in the same region is never offered."""
    near = str(spell_files.spells(tmp_path / "near.csv", {CALM: 0.02, "aws/us-west-2/usw2-az1": 0.4}))
    body = told(at_the_end, capsys, near, "--hours", "40", "--price", "aws=10")
    assert len(body["order"]) == 2
    assert body["standby"] is None
    assert any("another region" in line for line in body["not_known"])


def test_a_day_is_not_enough(at_the_end: ManualClock, tmp_path: Path, capsys: Capture) -> None:
    """No pool is ranked on a few hours."""
    short = str(spell_files.spells(tmp_path / "short.csv", {CALM: 0.05}, days=0.2))
    at_the_end.epoch = spell_files.BEGINS + 0.2 * 86400
    body = told(at_the_end, capsys, short, "--hours", "40")
    assert body["verdict"] == "not enough data"
    assert body["rows"] == []


def test_an_empty_history_and_another_type(
    at_the_end: ManualClock, two: str, tmp_path: Path, capsys: Capture
) -> None:
    """Both are answers: nothing was seen of what is asked for."""
    History.open(tmp_path / "empty.sqlite3", at_the_end).close()
    assert told(at_the_end, capsys, str(tmp_path / "empty.sqlite3"), "--hours", "1")["verdict"] == (
        "not enough data"
    )
    body = told(at_the_end, capsys, two, "--hours", "40", "--type", "h100")
    assert body["verdict"] == "not enough data"
    assert "h100" in body["sentence"]


@pytest.mark.parametrize(
    ("ahead", "policy", "in_time"),
    [
        ("30h", "no way of running is done in time", 0.0),
        ("50h", "uniform progress", 1.0),
        ("100h", "greedy", 1.0),
    ],
)
def test_the_deadline_sets_the_policy(
    at_the_end: ManualClock, two: str, capsys: Capture, ahead: str, policy: str, in_time: float
) -> None:
    """Tight ones need on-demand in time, loose ones can wait; what cannot be done is said."""
    body = told(at_the_end, capsys, two, "--hours", "40", "--deadline", ahead, *PRICES)
    assert policy in body["policy"]
    assert body["rows"][0]["p_deadline"] == pytest.approx(in_time, abs=0.05)
    assert body["request"]["deadline"] == NOW + float(ahead[:-1]) * 3600


def test_what_is_given_is_not_assumed(at_the_end: ManualClock, two: str, capsys: Capture) -> None:
    """Every default that was used is named; those that were replaced are not."""
    body = told(at_the_end, capsys, two, "--hours", "40", *PRICES)
    assert any("30 s" in line for line in body["assumed"])
    given = (
        "--stall",
        "5s",
        "--restart",
        "8m",
        "--flush",
        "3s",
        "--flush-share",
        "0.9",
        "--checkpoint",
        "2G",
    )
    body = told(at_the_end, capsys, two, "--hours", "40", "--step", "2s", *given, *PRICES)
    assert body["assumed"] == []
    assert body["interval_steps"] == round(body["interval_s"] / 2)


def test_people_and_traffic_cost(at_the_end: ManualClock, two: str, capsys: Capture) -> None:
    """Stated costs go into the useful hour, each under its name."""
    stated = ("--engineer", "150", "--engineer-hours", "2.3", "--failed-run", "120", "--params", "7e9")
    row = told(at_the_end, capsys, two, "--hours", "40", *stated, *PRICES)["rows"][0]
    hazard = row["hazard"]["mean"]
    assert row["parts"]["failures, people and failed runs"] == pytest.approx(
        hazard * (150 * 2.3 + 120) / row["goodput"]
    )
    assert row["parts"]["traffic to the standby"] == pytest.approx(98 * 0.09 * 3600 / row["interval_s"])


def test_plain_text_when_piped(at_the_end: ManualClock, two: str, capsys: Capture) -> None:
    """The answer comes first; nothing but text of at most 100 columns."""
    assert call(at_the_end, two, "--hours", "40", "--zone", "UTC", *PRICES) == 0
    out = capsys.readouterr().out
    assert out.startswith("RUN: Run in aws usw2-az2 p4d.24xlarge: $")
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 100
    for word in ("start", "standby", "checkpoint", "why", "not known", "taken as given", "on-demand"):
        assert word in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hours", "0"], "not above nothing"),
        (["--hours", "x"], "not a number"),
        (["--hours", "1", "--gpus", "0"], "GPUs"),
        (["--hours", "1", "--deadline", "tomorrow"], "neither a time"),
        (["--hours", "1", "--deadline", "2026-12-05T18:00"], "no time zone"),
        (["--hours", "1", "--price", "us-east-1"], "PLACE=USD"),
        (["--hours", "1", "--price", "x=nan"], "PLACE=USD"),
        (["--hours", "1", "--checkpoint", "big"], "not a size"),
        (["--hours", "1", "--checkpoint", "9" * 400], "not a size"),
        (["--hours", "1", "--flush-share", "2"], "within 0 to 1"),
        (["--hours", "1", "--stall", "soon"], "duration"),
        ([], "--hours"),
    ],
)
def test_wrong_arguments(at_the_end: ManualClock, capsys: Capture, words: list[str], said: str) -> None:
    """Each is told with what is wrong, exit status 2."""
    with pytest.raises(SystemExit) as stopped:
        call(at_the_end, *words)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_files_that_cannot_be_read(
    at_the_end: ManualClock, two: str, tmp_path: Path, capsys: Capture
) -> None:
    """A missing history or file of prices is named, exit status 1; a type nobody knows is usage."""
    assert call(at_the_end, str(tmp_path / "none.sqlite3"), "--hours", "1") == 1
    assert "none.sqlite3" in capsys.readouterr().err
    assert call(at_the_end, two, "--hours", "1", "--quotes", str(tmp_path / "none.json")) == 1
    assert "none.json" in capsys.readouterr().err
    assert call(at_the_end, two, "--hours", "1", "--type", "a1000") == 2
    assert "a100" in capsys.readouterr().err


def test_quotes_of_a_file(at_the_end: ManualClock, two: str, tmp_path: Path, capsys: Capture) -> None:
    """A CSV of prices serves as well as the history's own."""
    file = tmp_path / "prices.csv"
    file.write_text(
        "provider,region,zone,instance_type,kind,usd_per_hour,at\n"
        "aws,us-west-2,usw2-az2,p4d.24xlarge,spot,11.5,2026-10-01T00:00:00Z\n"
        "aws,us-east-1,use1-az1,p4d.24xlarge,spot,9.5,2026-10-01T00:00:00Z\n"
    )
    body = told(at_the_end, capsys, two, "--hours", "40", "--quotes", str(file))
    assert {row["pool"]["region"]: row["price_usd_h"] for row in body["rows"]} == {
        "us-west-2": 11.5,
        "us-east-1": 9.5,
    }


def test_the_whole_report_with_the_advice(
    at_the_end: ManualClock, two: str, tmp_path: Path, capsys: Capture
) -> None:
    """--html writes one page that begins with it; a folder that is not there is told."""
    assert call(at_the_end, two, "--hours", "40", *PRICES, "--html", str(tmp_path / "advice.html")) == 0
    page = (tmp_path / "advice.html").read_text()
    assert "Run in aws usw2-az2 p4d.24xlarge" in page
    assert "traffic to the standby" in page
    assert call(at_the_end, two, "--hours", "40", "--html", str(tmp_path / "none" / "advice.html")) == 1
    assert "cannot write" in capsys.readouterr().err
