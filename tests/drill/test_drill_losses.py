"""Two runs are the same run only if every step is there and every bit of its loss is the same."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.simulations.drill.losses import StepLine, compare, parse_line, read_steps


def steps(*numbers: int, loss: str = "0x1.8p+0") -> list[StepLine]:
    """Lines of these steps, the loss the same in each."""
    return [StepLine(number, loss, float(number)) for number in numbers]


def test_interrupted_run_that_goes_on_is_exact() -> None:
    """Two nodes that trained every step once, with the reference's losses, are one exact run."""
    result = compare([*steps(1, 2), *steps(3, 4)], steps(1, 2, 3, 4))
    assert result.exact
    assert result.again == ()


@pytest.mark.parametrize(
    ("run", "missing", "different", "beyond"),
    [
        ([*steps(1, 2), *steps(4)], (3,), (), ()),
        ([*steps(1, 2, 3), *steps(4, loss="0x1.8000000000001p+0")], (), (4,), ()),
        ([*steps(1, 2, 3, 4), *steps(3, loss="0x1p+0")], (), (3,), ()),
        (steps(1, 2, 3, 4, 5), (), (), (5,)),
        ([], (1, 2, 3, 4), (), ()),
    ],
)
def test_deviation_is_named_by_its_step(
    run: list[StepLine], missing: tuple[int, ...], different: tuple[int, ...], beyond: tuple[int, ...]
) -> None:
    """A step that is missing, has another last bit, was trained twice with two values, or is too many."""
    result = compare(run, steps(1, 2, 3, 4))
    assert (result.missing, result.different, result.beyond) == (missing, different, beyond)
    assert not result.exact


def test_step_trained_again_alike_is_counted_but_exact() -> None:
    """After a failover steps are trained again; that is no deviation where the loss is the same."""
    result = compare([*steps(1, 2, 3), *steps(3, 4)], steps(1, 2, 3, 4))
    assert result.exact
    assert result.again == (3,)


def test_nothing_is_never_exact() -> None:
    """A reference that trained no step proves nothing."""
    assert not compare([], []).exact


def test_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    """A reader that comes in the middle of a write sees the whole lines before it."""
    file = tmp_path / "losses.jsonl"
    file.write_text('{"step": 1, "loss": "0x1p+0", "wall": 5.0}\n{"step": 2, "loss": "0x1')
    assert read_steps(file) == [StepLine(1, "0x1p+0", 5.0)]


def test_no_file_has_no_steps(tmp_path: Path) -> None:
    """Before the first step there is no file."""
    assert read_steps(tmp_path / "none") == []


def test_scripted_rank_is_read_by_its_step_events_alone() -> None:
    """What a scripted rank notes besides its steps is no step."""
    assert parse_line(b'{"event": "step", "step": 3, "at": 1.5}') == StepLine(3, "", 0.0)
    assert parse_line(b'{"event": "saved", "step": 3, "at": 1.5}') is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(string.printable, max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["step", "loss", "wall", "event"]), inner, max_size=4)
    ),
    max_leaves=6,
)


@given(st.binary(max_size=80) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_line_is_a_step_or_none(raw: bytes) -> None:
    """Whatever a line holds, it is a step from 1 on or nothing."""
    line = parse_line(raw)
    assert line is None or (line.step >= 1 and isinstance(line.loss, str))
