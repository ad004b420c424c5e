"""What ``outlast restore`` prints: places and choice as text or JSON, and how far a fetch has come."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, TextIO

from outlast.daemon.checkpoint.choosing import Candidate, Go, Nothing, Refuse
from outlast.daemon.cli.quantities import size
from outlast.daemon.core.restore import Outcome
from outlast.daemon.core.search import Stuck
from outlast.wire.fit import is_universal, words
from outlast.wire.manifest import Manifest

_LINE_S = 5.0


def lines(outcome: Outcome) -> tuple[list[str], str]:
    """What each place has and what became of it; and what failed, or an empty text."""
    decision = outcome.settled.decision
    told = [line for name, kind in outcome.places for line in _place(outcome, name, kind)]
    if isinstance(decision, Go):
        return [*told, _done(outcome, decision)], ""
    return told, _failed(decision)


def outline(outcome: Outcome) -> dict[str, Any]:
    """The same as one JSON object."""
    settled, decision = outcome.settled, outcome.settled.decision
    chosen = None if isinstance(decision, Nothing) else decision.candidate
    return {
        "format": 1,
        "job": outcome.job,
        "outcome": _word(outcome),
        "because": "" if isinstance(decision, Go) else _failed(decision),
        "newest": {"place": chosen.place, **_one(chosen)} if chosen else None,
        "path": str(settled.committed.path) if settled.committed else None,
        "fetched_bytes": settled.came,
        "seconds": round(settled.seconds, 3),
        "passed": list(decision.passed),
        "places": [
            {
                "name": name,
                "kind": kind,
                "because": _silence(outcome, name),
                "checkpoints": [_one(one) for one in settled.seen.candidates if one.place == name],
            }
            for name, kind in outcome.places
        ],
    }


def _word(outcome: Outcome) -> str:
    settled, decision = outcome.settled, outcome.settled.decision
    if isinstance(decision, Refuse):
        return "refused"
    if isinstance(decision, Stuck):
        return "broke off" if decision.again else "cannot land"
    if isinstance(decision, Nothing):
        return "nothing"
    if settled.committed is None:
        return "not fetched"
    return "fetched" if settled.came else "here"


def _one(one: Candidate) -> dict[str, Any]:
    manifest = one.manifest
    return {
        "epoch": manifest.epoch,
        "tag": manifest.tag,
        "step": manifest.step,
        "bytes": manifest.total_bytes,
        "layout": asdict(manifest.layout),
        "universal": is_universal(manifest),
        "because": one.trouble,
    }


def _silence(outcome: Outcome, name: str) -> str:
    return next((one.because for one in outcome.settled.seen.silent if one.place == name), "")


def _place(outcome: Outcome, name: str, kind: str) -> list[str]:
    head = f"{name} ({kind})" if kind in {"local", "peer"} else name
    if silence := _silence(outcome, name):
        return [f"{head}: {silence}"]
    found = [one for one in outcome.settled.seen.candidates if one.place == name]
    if not found:
        return [f"{head}: no checkpoint"]
    return [f"{head}: {_words(one.manifest)}{_doubt(one)}" for one in found]


def _doubt(one: Candidate) -> str:
    return f", not usable: {one.trouble}" if one.trouble else ""


def _words(manifest: Manifest) -> str:
    layout = "universal" if is_universal(manifest) else words(asdict(manifest.layout))
    return f"{manifest.tag} of epoch {manifest.epoch}, {size(manifest.total_bytes)}, {layout}"


def _done(outcome: Outcome, decision: Go) -> str:
    settled, chosen = outcome.settled, decision.candidate
    if settled.committed is None:
        where = "is here already" if chosen.path is not None else f"would be fetched from {chosen.place}"
        return f"newest: {chosen.manifest.tag} of epoch {chosen.manifest.epoch} {where}"
    if not settled.came:
        return f"newest: {settled.committed.path} is here, and whole"
    rate = f" in {settled.seconds:.1f} s"
    return f"fetched {settled.committed.path} from {chosen.place}: {size(settled.came)} came{rate}"


def _failed(decision: Refuse | Stuck | Nothing) -> str:
    if isinstance(decision, Refuse):
        return f"{decision.because}; {decision.advice}"
    if isinstance(decision, Nothing):
        return "no place has a checkpoint that can be used"
    hint = "; what has come is kept: run this again" if decision.again else ""
    return f"{decision.candidate.words} cannot be had: {decision.because}{hint}"


class Telling:
    """Progress of a fetch: a line rewritten on a terminal, elsewhere a new one every few seconds."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._began: tuple[float, int] | None = None
        self._told_at = 0.0

    def __call__(self, there: int, total: int) -> None:
        """So many bytes of so many are here."""
        now = time.monotonic()
        if self._began is None:
            self._began, self._told_at = (now, there), now
        done = there >= total
        if not done and now - self._told_at < (0.2 if self._terminal else _LINE_S):
            return
        self._told_at = now
        line = f"{size(there)} of {size(total)}{self._rate(there, now)}"
        start, end = ("\r\033[K", "") if self._terminal else ("", "\n")
        print(start + ("" if self._terminal and done else line), end=end, file=self._out, flush=True)

    def _rate(self, there: int, now: float) -> str:
        assert self._began is not None
        seconds = now - self._began[0]
        return f", {size(int((there - self._began[1]) / seconds))}/s" if seconds > 1 else ""
