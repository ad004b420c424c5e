"""What a drill has shown, held against what is promised. Pure: same observations, same verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outlast.simulations.drill.losses import Comparison, StepLine, compare, last_step
from outlast.simulations.drill.nodes import PRIMARY, STANDBY
from outlast.simulations.drill.timeline import Mark, Story

# A planned handoff, in the only order in which it is safe; each step by the node that records it.
ORDER = (
    ("notice_seen", PRIMARY),
    ("flush_asked", PRIMARY),
    ("step_agreed", PRIMARY),
    ("saved", PRIMARY),
    ("committed", PRIMARY),
    ("verified", PRIMARY),
    ("handed_over", PRIMARY),
    ("taken_over", STANDBY),
    ("first_step", STANDBY),
)
_SHOWN = 6
# How far a prediction of the shipping time may be off.
WITHIN = 0.2


@dataclass(frozen=True)
class Prediction:
    """What the primary's daemon reckoned with before the notice; None is not known."""

    size: int | None
    seconds: float | None


@dataclass(frozen=True)
class Observed:
    """Everything the verdict looks at. Statuses are exit statuses by the process's name.

    ``unfinished`` and ``damaged`` are folders in the two nodes' stores; ``secrets`` names logs in which key
    material was found; ``strays`` are processes of the primary's trainer that outlived it.
    """

    story: Story
    primary: Sequence[StepLine] = ()
    standby: Sequence[StepLine] = ()
    reference: Sequence[StepLine] = ()
    notice_s: float = 120.0
    statuses: Mapping[str, int | None] = field(default_factory=dict)
    unfinished: Sequence[str] = ()
    damaged: Sequence[str] = ()
    secrets: Sequence[str] = ()
    strays: Sequence[int] = ()
    predicted: Prediction | None = None

    @property
    def shipping_s(self) -> float | None:
        """Seconds from when the first bytes had left, in the save maybe, until the peer had verified all."""
        done = self.story.first("verified", PRIMARY)
        return (done.number("sending_s") or None) if done is not None else None

    @property
    def comparison(self) -> Comparison:
        """The interrupted run against the uninterrupted one."""
        return compare([*self.primary, *self.standby], self.reference)

    @property
    def steps_lost(self) -> int | None:
        """Steps the primary had trained and the standby had to train again; None if it never began."""
        if not self.standby:
            return None
        return max(0, last_step(self.primary) - (self.standby[0].step - 1))

    @property
    def first_step_at(self) -> float | None:
        """Seconds from the provider's word to the end of the standby's first step."""
        return self.story.at_wall(self.standby[0].wall) if self.standby else None


@dataclass(frozen=True)
class Check:
    """One promise: whether it held, and what tells."""

    promise: str
    held: bool
    because: str


def judge(seen: Observed) -> tuple[Check, ...]:
    """Every promise of a planned handoff, in the order a reader asks for them."""
    checks = (
        _no_step_lost(seen),
        _bit_exact(seen),
        _in_order(seen),
        _in_time(seen),
        _one_trainer(seen),
        _nothing_torn(seen),
        _clean_ends(seen),
        _no_secret(seen),
    )
    return (*checks, _predicted(seen, seen.predicted)) if seen.predicted is not None else checks


def _no_step_lost(seen: Observed) -> Check:
    promise = "no step is lost"
    if not seen.primary or not seen.standby:
        return Check(promise, False, "the standby trained no step")
    first, last = seen.standby[0].step, last_step(seen.primary)
    because = f"{PRIMARY} trained to step {last}, {STANDBY} went on with step {first}"
    return Check(promise, first == last + 1, because)


def _bit_exact(seen: Observed) -> Check:
    promise = "the loss of every step is that of the uninterrupted run, to the last bit"
    result = seen.comparison
    if result.exact:
        return Check(promise, True, f"{result.steps} of {result.steps} steps are equal")
    parts = [
        f"{word} {_few(steps)}"
        for word, steps in (
            ("different:", result.different),
            ("missing:", result.missing),
            ("beyond the reference:", result.beyond),
        )
        if steps
    ]
    return Check(promise, False, "; ".join(parts) or "the uninterrupted run trained no step")


def _few(steps: Sequence[int]) -> str:
    more = f" and {len(steps) - _SHOWN} more" if len(steps) > _SHOWN else ""
    return f"steps {', '.join(map(str, steps[:_SHOWN]))}{more}"


def _in_order(seen: Observed) -> Check:
    promise = "the checkpoint is committed, then verified at the peer, then handed over"
    marks = [(kind, seen.story.first(kind, node)) for kind, node in ORDER]
    absent = [kind for kind, mark in marks if mark is None]
    if absent:
        return Check(promise, False, f"not recorded: {', '.join(absent)}")
    times = [mark.mono for _, mark in marks if mark is not None]
    if times != sorted(times):
        return Check(promise, False, "the steps of the handoff are recorded out of order")
    return _same_tag(promise, [mark for _, mark in marks if mark is not None])


def _same_tag(promise: str, marks: Sequence[Mark]) -> Check:
    tags = {str(mark.fields["tag"]) for mark in marks if "tag" in mark.fields}
    if len(tags) != 1:
        return Check(promise, False, f"several tags: {', '.join(sorted(tags))}")
    return Check(promise, True, f"{tags.pop()}, each step after the one before it")


def _in_time(seen: Observed) -> Check:
    promise = "the job is handed over before the deadline"
    taken = seen.story.first("taken_over", STANDBY)
    if taken is None:
        return Check(promise, False, "it was never taken over")
    at = seen.story.at(taken)
    return Check(promise, at <= seen.notice_s, f"taken over after {at:.1f} s of {seen.notice_s:.0f} s")


def _one_trainer(seen: Observed) -> Check:
    promise = "one trainer at a time"
    started = seen.story.all("trainer_started", STANDBY)
    if len(started) != 1:
        return Check(promise, False, f"the standby started {len(started)} trainers")
    if seen.strays:
        return Check(promise, False, f"ranks of {PRIMARY} outlived their trainer: {sorted(seen.strays)}")
    if seen.primary and seen.standby and seen.primary[-1].wall >= seen.standby[0].wall:
        return Check(promise, False, f"{PRIMARY} still trained when {STANDBY} began")
    return Check(promise, True, f"{PRIMARY}'s ranks were gone; {STANDBY} started one trainer")


def _nothing_torn(seen: Observed) -> Check:
    promise = "nothing half-made is left"
    if seen.damaged:
        return Check(promise, False, f"does not verify: {', '.join(seen.damaged)}")
    if seen.unfinished:
        return Check(promise, False, f"unfinished: {', '.join(seen.unfinished)}")
    return Check(promise, True, "every checkpoint on both nodes verifies, and nothing else lies beside them")


def _clean_ends(seen: Observed) -> Check:
    promise = "every process ends with status 0"
    wrong = [f"{name}: {status}" for name, status in seen.statuses.items() if status != 0]
    if wrong or not seen.statuses:
        return Check(promise, False, ", ".join(wrong) or "no process was seen to end")
    return Check(promise, True, ", ".join(seen.statuses))


def _predicted(seen: Observed, said: Prediction) -> Check:
    promise = f"shipping takes as long as was reckoned before the notice, to {WITHIN:.0%}"
    took = seen.shipping_s
    if said.seconds is None or took is None:
        return Check(promise, False, "it was not reckoned, or nothing was shipped")
    off = (took - said.seconds) / said.seconds
    because = f"{said.seconds:.1f} s were reckoned, it took {took:.1f} s: {off:+.0%}"
    return Check(promise, abs(off) <= WITHIN, because)


def _no_secret(seen: Observed) -> Check:
    promise = "no secret is logged"
    if seen.secrets:
        return Check(promise, False, f"key material in {', '.join(seen.secrets)}")
    return Check(promise, True, "no key material in any log or history")
