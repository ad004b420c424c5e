"""Live progress on standard error: one moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

from outlast.providers.base import Clock
from outlast.simulations.drill.nodes import PRIMARY, STANDBY
from outlast.simulations.drill.rehearsal import Watch
from outlast.simulations.drill.report import sentence
from outlast.simulations.drill.scenario import Seen
from outlast.simulations.drill.timeline import Mark

if TYPE_CHECKING:
    from rich.status import Status

# Without a terminal, a line at least each so many steps.
EVERY_STEPS = 10


class Plain(Watch):
    """Lines on ``out``, each with the seconds since the drill began: sentences, new events, some steps.

    ``steps``: how many there are going to be; None where it is not known yet.
    """

    def __init__(self, steps: int | None, clock: Clock, out: TextIO | None = None) -> None:
        self._steps = steps
        self._clock = clock
        self._out = out or sys.stderr
        self._began = clock.monotonic()
        self._told = 0
        self._stepped: dict[str, int] = {}

    def say(self, sentence: str) -> None:
        """A line."""
        self._line(f"{self._clock.monotonic() - self._began:7.1f} s  {sentence}")

    def look(self, seen: Seen) -> None:
        """A line for each new event, and for each so many steps."""
        if seen.story.zero:
            told = seen.story.told()
            for mark in told[self._told :]:
                self._event(seen, mark)
            self._told = max(self._told, len(told))
        for node in (PRIMARY, STANDBY):
            self._steps_of(node, seen.step(node))

    def reference(self, step: int) -> None:
        """Steps of the uninterrupted run."""
        self._steps_of("uninterrupted", step)

    def _event(self, seen: Seen, mark: Mark) -> None:
        self.say(f"  {seen.story.at(mark):+.2f} s {mark.node}: {sentence(mark)}")

    def _steps_of(self, who: str, step: int) -> None:
        last = self._stepped.get(who, 0)
        if step > last and (step - last >= EVERY_STEPS or step == self._steps):
            self._stepped[who] = step
            self.say(f"{who} at step {step}" + (f" of {self._steps}" if self._steps else ""))

    def _line(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class Live(Plain):
    """On a terminal: the same sentences and events, and one line below them that moves with the steps."""

    def __init__(self, steps: int | None, clock: Clock, *, color: bool) -> None:
        from rich.console import Console

        super().__init__(steps, clock)
        self._console = Console(stderr=True, highlight=False, no_color=not color)
        self._status: Status | None = None
        self._now: dict[str, int] = {}

    def __enter__(self) -> Live:
        self._status = self._console.status("starting")
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            with suppress(OSError):  # the terminal may be what went away
                self._status.stop()

    def _steps_of(self, who: str, step: int) -> None:
        if step and self._now.get(who) != step:
            self._now[who] = step
            parts = [f"{name} {at}" for name, at in self._now.items()]
            if self._status is not None:
                whole = f"of {self._steps} steps: " if self._steps else "steps: "
                self._status.update(whole + " · ".join(parts))

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False)
