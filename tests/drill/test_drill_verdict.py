"""Each promise is judged by itself: break one, and that one alone is said to be broken."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outlast.simulations.drill.losses import StepLine
from outlast.simulations.drill.nodes import PRIMARY, STANDBY
from outlast.simulations.drill.report import Outcome, body, text, timeline
from outlast.simulations.drill.timeline import Mark, Story
from outlast.simulations.drill.verdict import ORDER, Observed, Prediction, judge

TAG = {"tag": "global_step3", "step": 3}
WALL = 5000.0
PAGE = Path(__file__).parents[2] / "docs/json.md"


def lines(*numbers: int) -> tuple[StepLine, ...]:
    """Steps, trained a second apart; the provider speaks in step 3."""
    return tuple(StepLine(n, (1.0 / n).hex(), WALL + n - 3) for n in numbers)


def marks() -> tuple[Mark, ...]:
    """A planned handoff, a tenth of a second between its steps."""
    fields: dict[str, dict[str, object]] = {
        "committed": {**TAG, "bytes": 1000},
        "saved": dict(TAG),
        "verified": {**TAG, "bytes": 2_000_000, "seconds": 0.2, "sending_s": 0.5},
        "taken_over": {**TAG, "epoch": 2, "lost": 0, "planned": True},
    }
    told = [
        Mark(kind, node, 100.1 + i / 10, fields=fields.get(kind, {})) for i, (kind, node) in enumerate(ORDER)
    ]
    return (*told, Mark("trainer_started", STANDBY, 100.35))


GOOD = Observed(
    story=Story(100.0, marks(), WALL),
    primary=lines(1, 2, 3),
    standby=lines(4, 5),
    reference=lines(1, 2, 3, 4, 5),
    statuses={"trainer": 0, "daemon": 0},
)


def without(kind: str) -> Story:
    """The story with one kind of event never recorded."""
    return Story(100.0, tuple(mark for mark in marks() if mark.kind != kind), WALL)


def moved(kind: str, mono: float) -> Story:
    """The story with one event at another time."""
    story = [replace(mark, mono=mono) if mark.kind == kind else mark for mark in marks()]
    return Story(100.0, tuple(sorted(story, key=lambda mark: mark.mono)), WALL)


def test_good_handoff_keeps_every_promise() -> None:
    """With nothing wrong, nothing is said to be wrong."""
    checks = judge(GOOD)
    assert len(checks) == 8
    assert [check.promise for check in checks if not check.held] == []


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"standby": lines(3, 4, 5)}, {"no step is lost", "one trainer at a time"}),
        ({"reference": (*lines(1, 2, 3, 4), StepLine(5, (0.3).hex(), 0.0))}, {"the loss of every step"}),
        ({"reference": lines(1, 2, 3, 4)}, {"the loss of every step"}),
        ({"reference": ()}, {"the loss of every step"}),
        ({"story": without("verified")}, {"the checkpoint is committed"}),
        ({"story": moved("verified", 100.85)}, {"the checkpoint is committed"}),
        ({"notice_s": 0.5}, {"the job is handed over"}),
        ({"strays": [77]}, {"one trainer"}),
        ({"story": without("trainer_started")}, {"one trainer"}),
        ({"unfinished": ["epoch-1/global_step3.partial"]}, {"nothing half-made"}),
        ({"damaged": ["epoch-1/global_step3"]}, {"nothing half-made"}),
        ({"statuses": {"trainer": 0, "daemon": -9}}, {"every process ends"}),
        ({"statuses": {"trainer": None}}, {"every process ends"}),
        ({"statuses": {}}, {"every process ends"}),
        ({"secrets": ["logs/daemon.log"]}, {"no secret"}),
    ],
)
def test_broken_promise_is_named(change: dict[str, Any], broken: set[str]) -> None:
    """One thing wrong breaks the promise it belongs to, and no other."""
    said = [check.promise for check in judge(replace(GOOD, **change)) if not check.held]
    assert len(said) == len(broken)
    assert all(any(promise.startswith(start) for promise in said) for start in broken), said


def test_standby_that_never_began_breaks_the_handoff() -> None:
    """Without a takeover the promises about it are broken, not passed over."""
    seen = replace(GOOD, standby=(), story=without("taken_over"))
    broken = [check.promise for check in judge(seen) if not check.held]
    assert len(broken) == 4
    assert seen.steps_lost is None
    assert seen.first_step_at is None


def test_two_tags_are_no_handoff() -> None:
    """What is taken over must be what was committed."""
    story = [
        replace(mark, fields={**mark.fields, "tag": "global_step2"}) if mark.kind == "taken_over" else mark
        for mark in marks()
    ]
    checks = judge(replace(GOOD, story=Story(100.0, tuple(story), WALL)))
    assert [check.because for check in checks if not check.held] == [
        "several tags: global_step2, global_step3"
    ]


def test_lost_steps_are_counted_from_what_was_trained() -> None:
    """The standby that begins at step 2 trains two steps again that the primary had behind it."""
    assert replace(GOOD, standby=lines(2, 3, 4, 5)).steps_lost == 2


def test_first_step_is_told_by_the_ranks_own_note() -> None:
    """The ranks report about once a second; the timeline shows when the step really ended."""
    first = [line for line in timeline(GOOD) if line["kind"] == "first_step"]
    assert [(line["at_s"], line["step"], line["node"]) for line in first] == [(1.0, 4, STANDBY)]


def outcome(**change: Any) -> Outcome:
    """A drill that passed, but for the change."""
    whole = Outcome("aws", 5, 3, 61.5, GOOD, judge(GOOD))
    return replace(whole, **change)


def documented(heading: str) -> set[str]:
    """The keys of the table that follows a line of the page."""
    table = PAGE.read_text().split(heading)[1].split("\n\n")[1]
    return {
        key for cell in re.findall(r"^\| (`[^|]*)\|", table, re.M) for key in re.findall(r"`(\w+)`", cell)
    }


def test_json_has_the_documented_keys() -> None:
    """The object and its timeline hold what the page says, whether the drill passed or broke off."""
    whole = body(outcome())
    broken = body(outcome(seen=None, checks=(), because="the stand-in does not answer"))
    assert documented("at the end of the drill:") == set(whole) == set(broken)
    assert all(documented("An entry of `timeline`:") == set(line) for line in whole["timeline"])
    assert all(set(entry) == {"promise", "held", "because"} for entry in whole["promises"])
    assert json.loads(json.dumps(whole)) == whole


def test_json_figures_follow_from_the_record() -> None:
    """Bytes and throughput are the transfer's, times count from the provider's word."""
    whole = body(outcome())
    assert (whole["bytes"], whole["ship_s"], whole["bytes_per_s"]) == (2_000_000, 0.5, 4_000_000)
    assert (whole["steps_lost"], whole["ok"], whole["because"]) == (0, True, None)
    assert whole["timeline"][0] | {"sentence": ""} == {
        "at_s": 0.1, "kind": "notice_seen", "node": PRIMARY, "step": None, "tag": None, "bytes": None,
        "sentence": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reckoned", "held"),
    [(0.5, True), (0.42, True), (0.62, True), (0.41, False), (0.63, False), (None, False)],
)
def test_a_reckoned_time_is_held_against_what_happened(reckoned: float | None, held: bool) -> None:
    """Within 20 % of it, either way; not to have reckoned at all is no better. Bytes that left
    before the commit count, and their time."""
    seen = replace(GOOD, predicted=Prediction(2_000_000, reckoned))
    *_, check = judge(seen)
    assert check.held is held
    told = body(outcome(seen=seen))["prediction"]
    assert told == {"bytes": 2_000_000, "seconds": reckoned, "took_s": 0.5}
    assert body(outcome(seen=seen))["steps"] == 5  # where it ended: it was not known before


def test_passed_drill_says_so_without_colour_where_none_is_wanted() -> None:
    """Every promise is listed as held, and no escape sequence reaches a file."""
    said = text(outcome(), color=False)
    assert said.count("held    ") == 8
    assert "drill passed: all 8 promises held" in said
    assert "\033" not in said
    assert "\033" in text(outcome(), color=True)


def test_failed_drill_says_what_and_where(tmp_path: Path) -> None:
    """What broke comes with its reason, and with the way to the logs."""
    bad = replace(GOOD, statuses={"daemon at us-east-1": 1})
    said = text(outcome(seen=bad, checks=judge(bad)), color=False)
    assert "BROKEN  every process ends with status 0\n        daemon at us-east-1: 1" in said
    assert "1 of 8 promises did not hold" in said
    assert "--keep DIR" in said
    assert str(tmp_path) in text(outcome(seen=bad, checks=judge(bad), kept=tmp_path), color=False)


def test_drill_that_broke_off_is_no_pass() -> None:
    """Without a verdict on any promise there is no success."""
    assert not outcome(seen=None, checks=(), because="sshd is not installed").ok
    assert not outcome(checks=()).ok
    assert "drill failed: sshd is not installed" in text(
        outcome(seen=None, checks=(), because="sshd is not installed"), color=False
    )
