"""The newest checkpoint over all places, had here: look, choose, fetch, and choose again if that failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from outlast.daemon.checkpoint.arriving import CannotLand
from outlast.daemon.checkpoint.choosing import Candidate, Decision, Go, Silent, choose
from outlast.daemon.checkpoint.destinations import Progress, Refused, Unreachable
from outlast.daemon.core.sources import Source
from outlast.wire.fit import World
from outlast.wire.shards import state_name
from outlast.wire.store import Committed, proven, scan, verify

log = structlog.get_logger("outlast.restore")

# A place that has not answered by then is passed over: ranks wait for this.
LOOK_S = 10.0
# A fetch that broke off is taken up again, after so long each time.
_PAUSES_S = (0.5, 3.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the places told."""

    candidates: tuple[Candidate, ...]
    silent: tuple[Silent, ...] = ()


@dataclass(frozen=True, slots=True)
class Stuck:
    """The one to go on from cannot be had here. ``again``: another try may do, else a person has to act."""

    candidate: Candidate
    because: str
    again: bool
    passed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """How the search ended. ``committed``: the checkpoint, here, where the decision is to go on from one."""

    decision: Decision | Stuck
    seen: Seen
    committed: Committed | None = None
    came: int = 0
    seconds: float = 0.0


@dataclass
class Search:
    """Looks for one job. ``stores``: this node's own, the one to fetch into first; ``sources``: elsewhere."""

    stores: Sequence[Path]
    sources: Sequence[Source] = ()
    look_s: float = LOOK_S
    at_home: bool = True  # whether what is on this node counts
    guest: str = ""  # the first of ``stores`` is not the job's own: what counts there is of this job alone
    nodes: int = 1  # how many the job spans: parts of checkpoints of so many are of use
    on_fetch: Callable[[Candidate], None] = field(default=lambda _candidate: None)

    async def look(self, *, elsewhere: bool = True, ranks: Sequence[int] = ()) -> Seen:
        """Ask all places at once; one that fails or takes too long is silent, with a reason."""
        sources = self.sources if elsewhere else ()
        asked = asyncio.gather(*(self._ask(number, one) for number, one in enumerate(sources)))
        local = asyncio.to_thread(self._here, ranks)
        found, told = await asyncio.gather(local, asked)
        found += [one for answer in told if isinstance(answer, list) for one in answer]
        return Seen(tuple(found), tuple(answer for answer in told if isinstance(answer, Silent)))

    async def settle(
        self,
        world: World,
        limit: int | None = None,
        *,
        elsewhere: bool = True,
        ranks: Sequence[int] = (),
        stop: Callable[[], bool] = lambda: False,
        strict: bool = False,
        progress: Progress | None = None,
    ) -> Settled | None:
        """Decide, and have what was decided on in the first of ``stores`` unless it is in one of them.

        ``ranks``: those of this node, as far as they are known. None once ``stop`` says that it is no longer
        wanted. With ``strict`` a place that falls silent in the
        middle of a fetch ends the search, else that place is passed over.
        """
        seen = await self.look(elsewhere=elsewhere, ranks=ranks)
        while not stop():
            decision = choose(seen.candidates, seen.silent, world, limit)
            if not isinstance(decision, Go):
                return Settled(decision, seen)
            chosen = decision.candidate
            if chosen.path is not None:
                return Settled(
                    decision, seen, Committed(chosen.path.parent, chosen.path.name, chosen.manifest)
                )
            began = time.monotonic()
            try:
                committed, came = await self._fetch(chosen, progress)
            except CannotLand as exc:
                return Settled(Stuck(chosen, exc.because, again=False, passed=decision.passed), seen)
            except (Unreachable, Refused) as exc:
                if strict and isinstance(exc, Unreachable):
                    return Settled(Stuck(chosen, str(exc), again=True, passed=decision.passed), seen)
                seen = _without(seen, chosen, str(exc))
                continue
            return Settled(decision, seen, committed, came, time.monotonic() - began)
        return None

    async def _ask(self, number: int, source: Source) -> list[Candidate] | Silent:
        try:
            async with asyncio.timeout(self.look_s):
                found = await source.look()
        except TimeoutError:
            return Silent(source.name, f"no answer within {self.look_s:g} s")
        except (Unreachable, Refused) as exc:
            return Silent(source.name, str(exc))
        except Exception as exc:  # a bug of one place is reported; the others still count
            log.exception("unexpected_error", place=source.name, hint="please report this")
            return Silent(source.name, f"an unexpected error ({type(exc).__name__})")
        near = len(self.stores) + number
        return [Candidate(source.name, near, manifest, what) for manifest, what in found]

    async def _fetch(self, chosen: Candidate, progress: Progress | None) -> tuple[Committed, int]:
        """A few tries: what an earlier one brought is kept."""
        source = self.sources[chosen.near - len(self.stores)]
        self.on_fetch(chosen)
        for pause in _PAUSES_S:
            try:
                return await source.fetch(chosen.manifest, self.stores[0], progress, self.stores[1:])
            except Unreachable as exc:
                log.warning("fetch_broke_off", place=source.name, tag=chosen.manifest.tag, because=str(exc))
            await asyncio.sleep(pause)
        return await source.fetch(chosen.manifest, self.stores[0], progress, self.stores[1:])

    def _here(self, ranks: Sequence[int]) -> list[Candidate]:
        """The newest whole one of each store of this node, and the damaged ones above it. Reads them."""
        stores = self.stores if self.at_home else ()
        return [one for near, store in enumerate(stores) for one in self._newest(store, near, ranks)]

    def _newest(self, store: Path, near: int, ranks: Sequence[int]) -> list[Candidate]:
        found: list[Candidate] = []
        whole: tuple[int, int] | None = None
        for item in scan(store):
            if whole is not None and (item.epoch, item.step) < whole:
                break
            other = near == 0 and self.guest and item.manifest.job != self.guest
            trouble = f"a checkpoint of job {item.manifest.job}" if other else self._trouble(item, ranks)
            found.append(Candidate(str(store), near, item.manifest, trouble, item.path))
            if not trouble:
                whole = (item.epoch, item.step)
        return found

    def _trouble(self, item: Committed, ranks: Sequence[int]) -> str:
        """What is wrong with a checkpoint here, or an empty text. Its files are read."""
        if trouble := _of_no_use(item, self.nodes, ranks):
            return trouble
        problems = verify(item.path, parts=True)
        return f"{problems[0].path}: {problems[0].what}" if problems else ""


def _of_no_use(item: Committed, nodes: int, ranks: Sequence[int]) -> str:
    """Why this node cannot go on from a part: it is for the ranks that saved it, once all parts are whole."""
    part = item.manifest.part
    if part is None:
        return ""
    if not proven(item):
        return "one node's part of a checkpoint that is not known to be whole"
    if len(part.nodes) != nodes:
        return f"the part of one of {len(part.nodes)} nodes, and the job is on {nodes} now"
    there = {entry.path for entry in item.manifest.files}
    lacking = [rank for rank in ranks if state_name(rank) not in there]
    return f"one node's part, and rank {lacking[0]}, which is here now, was on another" if lacking else ""


def _without(seen: Seen, chosen: Candidate, trouble: str) -> Seen:
    """The same, with one candidate that did not prove good."""
    return replace(
        seen,
        candidates=tuple(replace(one, trouble=trouble) if one is chosen else one for one in seen.candidates),
    )
