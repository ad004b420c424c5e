"""Where a job goes on: decided once, by rank 0, for all ranks; nothing is loaded unless all can."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from outlast.hooks.ballot import POLL_S, Ballot, gather
from outlast.hooks.link import Absent, Link
from outlast.wire.fit import advice, misfit, world_of
from outlast.wire.manifest import ManifestError, read
from outlast.wire.messages import Layout, Park, Resume, StandDown
from outlast.wire.store import newest_whole

log = logging.getLogger("outlast")

ANSWER_S = 5.0
OTHERS_S = 15.0
PREFLIGHT_S = 300.0
TELL_S = 60.0
# A node's daemon may fetch a large checkpoint for so long after rank 0's had it.
OWN_S = 240.0


class ResumeError(RuntimeError):
    """The job cannot go on here; the text says why and what to do."""


@dataclass(frozen=True)
class Origin:
    """What this run begins with: ``folder/tag`` after ``step`` steps, or scratch where ``tag`` is None.

    ``epoch`` is the epoch to train in (0: not told yet), ``epoch_saved`` the one it was saved in.
    """

    step: int = 0
    epoch: int = 0
    folder: Path | None = None
    tag: str | None = None
    epoch_saved: int = 0
    leave: str | None = None
    refused: str | None = None


def decide(link: Link, ballot: Ballot, store: Path, clock: Callable[[], float] = time.monotonic) -> Origin:
    """The same origin on every rank. Parked, it waits for as long as it takes.

    Raises SystemExit(0) when the daemon says that this trainer is not needed, and ResumeError when it says
    that this run cannot go on here.
    """
    answer = link.first_answer(clock() + ANSWER_S)
    ballot.post(f"heard/{ballot.rank}", _kind(answer))
    if ballot.rank == 0:
        origin = _decided(link, ballot, store, answer, clock)
        ballot.post("origin", _dump(origin))
    else:
        origin = _told(ballot)
        if isinstance(answer, Park) and origin.tag is not None:
            # Where rank 0 is on another node, the daemon of this one may still be fetching.
            _own_word(link, clock)
    if origin.refused is not None:
        raise ResumeError(f"this run cannot go on here: {origin.refused}")
    if origin.leave is not None:
        log.warning("this trainer is not needed here: %s", origin.leave)
        raise SystemExit(0)
    return origin


def preflight(
    ballot: Ballot, origin: Origin, layout: Layout, clock: Callable[[], float] = time.monotonic
) -> None:
    """Raises ResumeError on every rank if any rank could not load ``origin``: loading is collective."""
    ballot.post(f"preflight/{ballot.rank}", _misfit(origin, layout))
    said = gather(ballot, "preflight", clock() + PREFLIGHT_S, clock=clock)
    if said is None:
        raise ResumeError("not every rank came to protect(): call it on all of them")
    for rank, why in enumerate(said):
        if why:
            raise ResumeError(f"rank {rank}: {why}")


def _kind(answer: Resume | Park | StandDown | Absent) -> str:
    if isinstance(answer, Absent):
        return "absent"
    if isinstance(answer, StandDown):
        return "exit" if answer.then == "exit" else "absent"
    return answer.type


def _decided(
    link: Link,
    ballot: Ballot,
    store: Path,
    answer: Resume | Park | StandDown | Absent,
    clock: Callable[[], float],
) -> Origin:
    if _kind(answer) == "absent":
        answer = _second_thought(link, ballot, answer, clock)
    if isinstance(answer, Park):
        answer = _parked(link, clock)
    if isinstance(answer, Resume):
        return _resumed(answer)
    if isinstance(answer, StandDown) and answer.then == "exit":
        return Origin(refused=answer.reason) if answer.refused else Origin(leave=answer.reason)
    return _alone(store, answer)


def _own_word(link: Link, clock: Callable[[], float]) -> None:
    """Wait for this node's daemon, as long as it keeps a connection; preflight says what is missing then."""
    until = clock() + OWN_S
    while clock() < until and link.next_answer(clock() + 1.0) is None:
        if not link.connected:
            return


def _second_thought(
    link: Link, ballot: Ballot, answer: StandDown | Absent | Park | Resume, clock: Callable[[], float]
) -> Resume | Park | StandDown | Absent:
    """Rank 0 hears nothing. Where another rank is parked, this node must not start by itself."""
    heard = gather(ballot, "heard", clock() + OTHERS_S, clock=clock) or []
    if "park" in heard:
        return _parked(link, clock)
    if "resume" in heard or "exit" in heard:
        return link.next_answer(clock() + TELL_S) or answer
    return answer


def _parked(link: Link, clock: Callable[[], float]) -> Resume | StandDown:
    while True:
        answer = link.next_answer(clock() + TELL_S)
        if answer is not None and not (isinstance(answer, StandDown) and answer.then != "exit"):
            return answer
        time.sleep(0.05)


def _resumed(answer: Resume) -> Origin:
    if answer.folder is None or answer.tag is None:
        return Origin(epoch=answer.epoch)
    folder = Path(answer.folder)
    return Origin(answer.step, answer.epoch, folder, answer.tag, _epoch_saved(folder / answer.tag))


def _epoch_saved(path: Path) -> int:
    try:
        return read(path).epoch
    except ManifestError:
        return 0  # preflight says what is wrong


def _alone(store: Path, answer: StandDown | Absent | Park) -> Origin:
    why = answer.because if isinstance(answer, Absent) else answer.reason
    found = newest_whole(store)
    log.warning(
        "no Outlast daemon (%s): training is not protected until one answers; begins from %s",
        why,
        found.path if found else f"scratch, as {store} holds no whole checkpoint",
    )
    if found is None:
        return Origin()
    return Origin(found.step, found.epoch, found.folder, found.tag, found.epoch)


def _told(ballot: Ballot) -> Origin:
    """Rank 0's decision. Waits without end: rank 0 may be parked, and if it dies the store goes or we do."""
    while True:
        text = ballot.read("origin")
        if text is not None:
            body = json.loads(text)
            folder = Path(body.pop("folder")) if body["folder"] else None
            return replace(Origin(**{**body, "folder": None}), folder=folder)
        time.sleep(POLL_S * 10)


def _dump(origin: Origin) -> str:
    return json.dumps({**asdict(origin), "folder": str(origin.folder) if origin.folder else ""})


def _misfit(origin: Origin, layout: Layout) -> str:
    """Why this rank could not load ``origin``, or an empty text."""
    if origin.tag is None or origin.folder is None:
        return ""
    path = origin.folder / origin.tag
    try:
        manifest = read(path)
    except ManifestError as exc:
        return f"{path} is not a committed checkpoint: {exc}"
    if manifest.step != origin.step:
        return f"{path} is of step {manifest.step}, not {origin.step} as announced"
    what = misfit(manifest, world_of(layout))
    return f"{path} does not fit: {what}; {advice(manifest)}" if what else ""
