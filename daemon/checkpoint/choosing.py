"""Which of the checkpoints that were found a job goes on from. Pure: the same finds, the same decision.

The newest one counts, wherever it is. One that cannot be used as it is (damaged, not reached) is passed over
and told of; one that the run cannot load, or of an epoch that this node has no right to, is a refusal: to go
back to an older one without a word would lose work that is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from outlast.wire.fit import World, advice, is_universal, misfit
from outlast.wire.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Candidate:
    """A committed checkpoint at a place. ``near``: lower is closer; ``path``: its folder, if on this node.

    ``trouble`` says why it cannot be used, empty if nothing is known against it.
    """

    place: str
    near: int
    manifest: Manifest
    trouble: str = ""
    path: Path | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Newer is greater."""
        return (self.manifest.epoch, self.manifest.step)

    @property
    def words(self) -> str:
        """Which one it is, for a person."""
        return f"{self.manifest.tag} of epoch {self.manifest.epoch} ({self.place})"


@dataclass(frozen=True, slots=True)
class Silent:
    """A place of which nothing is known now, and why."""

    place: str
    because: str


@dataclass(frozen=True, slots=True)
class Go:
    """Go on from this one. ``passed``: a sentence for each that might have been newer."""

    candidate: Candidate
    passed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is no checkpoint to go on from, as far as the places told."""

    passed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The newest is not for this run here: ``because``, and ``advice`` on what to do."""

    candidate: Candidate
    because: str
    advice: str
    passed: tuple[str, ...]


Decision = Go | Nothing | Refuse


def choose(
    candidates: Iterable[Candidate], silent: Iterable[Silent], world: World, limit: int | None = None
) -> Decision:
    """The newest ``(epoch, step)`` that a run of ``world`` can load; ``limit`` is the highest epoch allowed.

    Of equals one of DeepSpeed's own files comes before a universal one, and the nearest first.
    """
    found = list(candidates)
    usable = [one for one in found if not one.trouble]
    newest = max((one.order for one in usable), default=None)
    passed = _passed(found, silent, newest)
    if newest is None:
        return Nothing(passed)
    equals = sorted((one for one in usable if one.order == newest), key=_preference)
    if limit is not None and newest[0] > limit:
        return _ahead(equals[0], limit, passed)
    fitting = [one for one in equals if not misfit(one.manifest, world)]
    if fitting:
        return Go(fitting[0], passed)
    first = equals[0]
    because = f"{first.words} does not fit this run: {misfit(first.manifest, world)}"
    return Refuse(first, because, advice(first.manifest), passed)


def _preference(one: Candidate) -> tuple[bool, int]:
    return (is_universal(one.manifest), one.near)


def _ahead(one: Candidate, limit: int, passed: tuple[str, ...]) -> Refuse:
    return Refuse(
        one,
        f"{one.words} is of a later epoch than this node's, which is {limit}: the job has gone on elsewhere",
        "see that no other node trains this job; then bring it back with 'outlast takeover' on a node that "
        "has its replicas, or delete this node's <node.state>/jobs/<job>.json and start the daemon again",
        passed,
    )


def _passed(
    found: Iterable[Candidate], silent: Iterable[Silent], newest: tuple[int, int] | None
) -> tuple[str, ...]:
    """What could have been newer than the newest that can be used."""
    bad = [one for one in found if one.trouble and (newest is None or one.order >= newest)]
    told = [f"{one.words} is passed over: {one.trouble}" for one in sorted(bad, key=_rank)]
    return (*told, *(f"{place.place} is passed over: {place.because}" for place in silent))


def _rank(one: Candidate) -> tuple[int, int, int]:
    return (-one.order[0], -one.order[1], one.near)
