"""Spot and on-demand together under a deadline: two policies, replayed on what was available.

Uniform Progress after "Can't Be Late" (NSDI 2024): take spot whenever it is there; without it, run on demand
only when behind the straight line to the deadline, and back on spot when well ahead; at the last moment that
still suffices, on demand to the end. Greedy waits for spot until that last moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# How many starts a comparison replays at most, about.
STARTS = 40

Policy = Literal["uniform progress", "greedy"]


@dataclass(frozen=True, slots=True)
class Replay:
    """What one policy did: hours on spot and on demand, and whether the deadline was met."""

    spot_h: float
    on_demand_h: float
    met: bool

    def cost(self, ratio: float, hours: float) -> float:
        """The cost relative to on-demand throughout, spot costing ``ratio`` of it."""
        return (self.spot_h * ratio + self.on_demand_h) / hours


def replay(
    policy: Policy, up: Sequence[bool], tick_h: float, hours: float, left_h: float, change_h: float
) -> Replay:
    """Run a job of ``hours`` on availability ``up`` (one value a tick); each change of instance costs time.

    Where the trace ends before the job does, the deadline counts as missed.
    """
    job = _Job(policy, hours, left_h, change_h)
    for there in up:
        if job.left <= 1e-9 or job.clock >= left_h:
            break
        job.tick(there, tick_h)
    return Replay(job.spot_h, job.demand_h, job.left <= 1e-9 and job.clock <= left_h + 1e-9)


class _Job:
    def __init__(self, policy: Policy, hours: float, left_h: float, change_h: float) -> None:
        self.left, self.clock = hours, 0.0
        self.spot_h = self.demand_h = 0.0
        self._policy, self._hours, self._until, self._change = policy, hours, left_h, change_h
        self._on: Literal["spot", "demand", "idle"] = "idle"
        self._starting = 0.0

    def tick(self, there: bool, span: float) -> None:
        """Decide for one tick and live through it."""
        wanted = self._decide(there, span)
        if wanted != self._on and wanted != "idle":
            self._starting = self._change
        self._on = wanted
        self.clock += span
        if wanted == "idle":
            return
        if wanted == "spot":
            self.spot_h += span
        else:
            self.demand_h += span
        lost = min(self._starting, span)
        self._starting -= lost
        self.left -= span - lost

    def _decide(self, there: bool, span: float) -> Literal["spot", "demand", "idle"]:
        if self._must(span):
            return "demand"
        if there and not (self._on == "demand" and self._stays_on_demand()):
            return "spot"
        if self._policy == "greedy":
            return "idle"
        if self._on == "demand" and self._stays_on_demand():
            return "demand"
        return "demand" if self._behind() > 0 else "idle"

    def _must(self, span: float) -> bool:
        """Two changes and a tick are kept in hand; while spot runs the alarm waits for its loss."""
        late = self._until - self.clock < self.left + 2 * self._change + span
        return late and self._on != "spot"

    def _behind(self) -> float:
        return self._hours * self.clock / self._until - (self._hours - self.left)

    def _stays_on_demand(self) -> bool:
        return self._policy == "uniform progress" and self._behind() > -2 * self._change


def compare(
    up: Sequence[bool], tick_h: float, hours: float, left_h: float, change_h: float, ratio: float
) -> dict[Policy, float]:
    """Mean cost of both policies, relative to on-demand, over starts spread evenly over ``up``.

    Empty where the trace is too short for a single start.
    """
    ticks = int(left_h / tick_h) + 2
    starts = range(0, len(up) - ticks, max(1, (len(up) - ticks) // STARTS or 1))
    if not starts:
        return {}
    policies: tuple[Policy, ...] = ("uniform progress", "greedy")
    return {
        policy: sum(
            replay(policy, up[start : start + ticks], tick_h, hours, left_h, change_h).cost(ratio, hours)
            for start in starts
        )
        / len(starts)
        for policy in policies
    }
