"""What the ranks noted down of each step, and whether two runs are the same run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StepLine:
    """One trained step. ``loss`` is as ``float.hex`` wrote it, so equality is equality of every bit."""

    step: int
    loss: str
    wall: float


@dataclass(frozen=True)
class Comparison:
    """How an interrupted run compares with the same run uninterrupted: each list is of steps.

    ``again``: trained more than once, with the same loss each time.
    """

    steps: int
    missing: tuple[int, ...] = ()
    different: tuple[int, ...] = ()
    again: tuple[int, ...] = ()
    beyond: tuple[int, ...] = ()

    @property
    def exact(self) -> bool:
        """Every step is there, and each of its losses is the reference's to the last bit."""
        return self.steps > 0 and not (self.missing or self.different or self.beyond)


def read_steps(path: Path) -> list[StepLine]:
    """The steps noted so far, in the order they were trained; none if there is no file. Blocking.

    A last line that is still being written is left out, and so is whatever is no step.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = text[: text.rfind(b"\n") + 1]
    return [line for raw in whole.splitlines() if (line := parse_line(raw)) is not None]


def parse_line(raw: bytes) -> StepLine | None:
    """A step, from ``{"step", "loss", "wall"}`` or a scripted rank's ``{"event": "step", "step"}``."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or body.get("event", "step") != "step":
        return None
    step, loss, wall = body.get("step"), body.get("loss", ""), body.get("wall", 0.0)
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        return None
    if not isinstance(loss, str) or not isinstance(wall, int | float):
        return None
    return StepLine(step, loss, float(wall))


def last_step(lines: Sequence[StepLine]) -> int:
    """The step trained last; 0 before the first."""
    return lines[-1].step if lines else 0


def compare(run: Sequence[StepLine], reference: Sequence[StepLine]) -> Comparison:
    """Hold a run, all of its nodes' lines together, against the same run uninterrupted."""
    wanted = {line.step: line.loss for line in reference}
    got: dict[int, list[str]] = {}
    for line in run:
        got.setdefault(line.step, []).append(line.loss)
    different = {step for step, losses in got.items() if step in wanted and set(losses) != {wanted[step]}}
    return Comparison(
        steps=len(wanted),
        missing=tuple(sorted(wanted.keys() - got.keys())),
        different=tuple(sorted(different)),
        again=tuple(sorted(s for s, losses in got.items() if len(losses) > 1 and s not in different)),
        beyond=tuple(sorted(got.keys() - wanted.keys())),
    )
