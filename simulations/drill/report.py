"""A drill's outcome for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast.simulations.drill.losses import last_step
from outlast.simulations.drill.nodes import PRIMARY, STANDBY
from outlast.simulations.drill.timeline import WORDS, Mark
from outlast.simulations.drill.verdict import Check, Observed

_RESET, _BOLD, _GREEN, _RED, _DIM = "\033[0m", "\033[1m", "\033[32m", "\033[31m", "\033[2m"


@dataclass(frozen=True)
class Outcome:
    """What a drill came to. ``because`` says why it did not come to its end; None if it did."""

    provider: str
    steps: int
    notice_at: int
    seconds: float
    seen: Observed | None = None
    checks: tuple[Check, ...] = ()
    because: str | None = None
    kept: Path | None = None

    @property
    def ok(self) -> bool:
        """Every promise was looked at, and held."""
        return self.because is None and bool(self.checks) and all(check.held for check in self.checks)


def sentence(mark: Mark) -> str:
    """An event in words, with what it says of steps and bytes."""
    said = WORDS[mark.kind]
    size, seconds = mark.number("bytes"), mark.number("seconds")
    if mark.kind == "verified":
        seconds = None  # they count from the commit, and bytes went before it
    left, warning = mark.number("seconds_left"), mark.fields.get("warning")
    parts = [
        f"{left:.0f} s left" if left is not None and mark.kind == "notice_seen" else "",
        str(warning) if warning and mark.kind == "peer_warned" else "",
        str(mark.fields["tag"]) if "tag" in mark.fields else "",
        f"step {mark.whole('step')}" if mark.whole("step") is not None and "tag" not in mark.fields else "",
        mega(size) if size is not None else "",
        f"{mega(size / seconds)}/s" if size and seconds else "",
        f"epoch {mark.whole('epoch')}" if mark.kind == "taken_over" else "",
        str(mark.fields.get("because", "")),
    ]
    told = ", ".join(part for part in parts if part)
    return f"{said} ({told})" if told else said


def mega(size: float) -> str:
    """Bytes in MB (1,000,000), three digits."""
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def timeline(seen: Observed) -> list[dict[str, Any]]:
    """What happened since the provider's word, in the order of time; ``at_s`` in seconds since then."""
    lines = [_line(seen.story.at(mark), mark) for mark in seen.story.told() if mark.kind != "first_step"]
    if seen.first_step_at is not None:
        # The ranks tell the daemon about once a second; their own note of the step is exact.
        mark = Mark("first_step", STANDBY, 0.0, fields={"step": seen.standby[0].step})
        lines.append(_line(seen.first_step_at, mark))
    return sorted(lines, key=lambda line: float(line["at_s"]))


def _line(at: float, mark: Mark) -> dict[str, Any]:
    return {
        "at_s": round(at, 3),
        "kind": mark.kind,
        "node": mark.node,
        "step": mark.whole("step"),
        "tag": mark.fields.get("tag"),
        "bytes": mark.whole("bytes"),
        "sentence": sentence(mark),
    }


def body(outcome: Outcome) -> dict[str, Any]:
    """The object that ``outlast drill --json`` prints; docs/json.md describes it."""
    seen = outcome.seen
    shipped = seen.story.first("verified", PRIMARY) if seen else None
    size = shipped.whole("bytes") if shipped else None
    seconds = seen.shipping_s if seen and shipped else None
    return {
        "format": 1,
        "ok": outcome.ok,
        "because": outcome.because,
        "provider": outcome.provider,
        "steps": last_step(seen.standby) if seen and seen.predicted else outcome.steps,
        "notice_at": outcome.notice_at,
        "notice_s": seen.notice_s if seen else None,
        "seconds": round(outcome.seconds, 3),
        "steps_lost": seen.steps_lost if seen else None,
        "bytes": size,
        "ship_s": round(seconds, 3) if seconds is not None else None,
        "bytes_per_s": round(size / seconds) if size and seconds else None,
        "prediction": _prediction(seen) if seen and seen.predicted else None,
        "timeline": timeline(seen) if seen else [],
        "promises": [{"promise": c.promise, "held": c.held, "because": c.because} for c in outcome.checks],
        "kept": str(outcome.kept) if outcome.kept else None,
    }


def _prediction(seen: Observed) -> dict[str, Any]:
    said, took = seen.predicted, seen.shipping_s
    assert said is not None
    return {"bytes": said.size, "seconds": said.seconds, "took_s": None if took is None else round(took, 3)}


def text(outcome: Outcome, *, color: bool) -> str:
    """The timeline, the figures, each promise, and the verdict."""
    paint = _Paint(color)
    lines: list[str] = []
    if outcome.seen is not None:
        lines += [paint.bold("since the provider's word"), *_table(timeline(outcome.seen)), ""]
        lines += [*_figures(body(outcome)), ""]
    lines += [_promise(check, paint) for check in outcome.checks]
    return "\n".join([*lines, *([""] if lines else []), _verdict(outcome, paint)])


def _table(lines: list[dict[str, Any]]) -> list[str]:
    return [f"{line['at_s']:9.3f} s  {line['node']:<10} {line['sentence']}" for line in lines]


def _figures(told: dict[str, Any]) -> list[str]:
    lost, size = told["steps_lost"], told["bytes"]
    figures = [f"steps lost   {'not known' if lost is None else lost}"]
    if size is not None and told["bytes_per_s"] is not None:
        figures.append(f"shipped      {mega(size)} in {told['ship_s']:.2f} s, {mega(told['bytes_per_s'])}/s")
    return [*figures, f"drill        {told['seconds']:.1f} s in all"]


def _promise(check: Check, paint: _Paint) -> str:
    word = paint.green("held  ") if check.held else paint.red("BROKEN")
    return f"{word}  {check.promise}\n        {paint.dim(check.because)}"


def _verdict(outcome: Outcome, paint: _Paint) -> str:
    where = f"logs and histories are in {outcome.kept}"
    if outcome.ok:
        said = paint.green(f"drill passed: all {len(outcome.checks)} promises held")
        return f"{said}; {where}" if outcome.kept else said
    if outcome.because is not None:
        said = paint.red("drill failed: ") + outcome.because
    else:
        broken = [check.promise for check in outcome.checks if not check.held]
        said = paint.red(f"drill failed: {len(broken)} of {len(outcome.checks)} promises did not hold")
    return f"{said}\n{where if outcome.kept else 'run it again with --keep DIR to have logs and histories'}"


class _Paint:
    """Terminal colours, or none."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def bold(self, words: str) -> str:
        return self._wrap(_BOLD, words)

    def dim(self, words: str) -> str:
        return self._wrap(_DIM, words)

    def green(self, words: str) -> str:
        return self._wrap(_GREEN, words)

    def red(self, words: str) -> str:
        return self._wrap(_RED, words)

    def _wrap(self, code: str, words: str) -> str:
        return f"{code}{words}{_RESET}" if self._color else words
