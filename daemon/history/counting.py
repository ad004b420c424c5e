"""What happened, counted: interruptions, bursts and exposure of each pool. Pure functions of rows.

Events come from state, not from words alone: a notice is an interruption once the node is silent after it,
and a node that its peer found gone is one without any notice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from outlast.daemon.history.merging import loss_rank, merge
from outlast.daemon.history.rows import TAKEN, LossRow, Pool, Rows, Spell

__all__ = [
    "BURST_S",
    "Counts",
    "Interruption",
    "PoolCounts",
    "bursts",
    "count",
    "interruptions",
    "merge",
    "settled",
    "strays",
]

# Interruptions of one pool no further apart than this belong to one burst, each to the one before it.
BURST_S = 180.0
# A node is silent once it has missed this much of its heartbeats.
SILENT_S = 180.0
# How far two nodes' clocks may differ.
SKEW_S = 60.0


@dataclass(frozen=True, slots=True)
class Interruption:
    """One node taken by the provider, at UTC ``at``. ``silent``: without a notice."""

    pool: Pool
    at: float
    silent: bool


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """One pool. ``exposure_hours`` are instance-hours at risk; drills and withdrawn notices are no risk."""

    pool: Pool
    spells: int = 0
    exposure_hours: float = 0.0
    interruptions: int = 0
    silent: int = 0
    bursts: int = 0
    hints: int = 0
    withdrawn: int = 0
    drills: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """All pools, in order of their names, and what they add up to."""

    pools: tuple[PoolCounts, ...]

    @property
    def total(self) -> PoolCounts:
        """The sum over all pools; its pool is empty."""
        names = (
            "spells",
            "exposure_hours",
            "interruptions",
            "silent",
            "bursts",
            "hints",
            "withdrawn",
            "drills",
        )
        sums = {name: sum(getattr(pool, name) for pool in self.pools) for name in names}
        return PoolCounts(Pool("", "", "", ""), **sums)


def count(rows: Rows, now: float, since: float = 0.0) -> Counts:
    """Count what happened from UTC ``since`` to ``now``. Rows may come from several files (see ``merge``)."""
    rows = settled(merge(rows), now)
    real = {spell.id: spell for spell in rows.spells if not spell.drill}
    taken = [stroke for stroke in _taken(rows) if since <= stroke.at <= now]
    tally: dict[str, Counter[Pool]] = defaultdict(Counter)
    exposure: dict[Pool, float] = defaultdict(float)
    for spell in real.values():
        if _ended_at(spell) >= since:
            tally["spells"][spell.pool] += 1
            exposure[spell.pool] += _exposed(spell, since) / 3600
    for stroke in taken:
        tally["interruptions"][stroke.pool] += 1
        tally["silent"][stroke.pool] += stroke.silent
    for pool, times in _times(taken).items():
        tally["bursts"][pool] = bursts(times)
    for hint in rows.hints:
        if hint.spell in real and hint.first_seen >= since:
            tally["hints"][real[hint.spell].pool] += 1
    _count_words(rows, real, since, tally)
    pools = sorted(set(exposure).union(*tally.values()))
    names = list(tally)
    return Counts(
        tuple(
            PoolCounts(pool, exposure_hours=exposure[pool], **{name: tally[name][pool] for name in names})
            for pool in pools
        )
    )


def bursts(times: Iterable[float]) -> int:
    """How many bursts these UTC instants of one pool form."""
    ordered = sorted(times)
    return sum(1 for i, at in enumerate(ordered) if i == 0 or at - ordered[i - 1] > BURST_S)


def interruptions(rows: Rows, now: float) -> list[Interruption]:
    """Every node the provider took, once each, whoever saw it. Drills are left out."""
    return _taken(settled(merge(rows), now))


def _taken(rows: Rows) -> list[Interruption]:
    noticed = {notice.spell for notice in rows.notices if notice.withdrawn is None}
    taken = [
        Interruption(spell.pool, _ended_at(spell), spell.id not in noticed)
        for spell in rows.spells
        if spell.cause in TAKEN and not spell.drill
    ]
    return taken + [Interruption(loss.pool, loss.at, silent=True) for loss in strays(rows)]


def strays(rows: Rows) -> list[LossRow]:
    """Nodes found gone of which no spell is known, each death once. Drills are left out."""
    stays = _by_victim(rows.spells)
    return _distinct(loss for loss in rows.losses if not loss.drill and _spell_of(stays, loss) is None)


# ---- from rows to causes


def settled(rows: Rows, now: float) -> Rows:
    """Merged rows as of UTC ``now``: ends a spell could not tell come from notices and peers."""
    stays = _by_victim(rows.spells)
    last: dict[int, float] = {}
    for notice in rows.notices:
        if notice.withdrawn is None and not notice.drill:
            last[notice.spell] = max(notice.deadline, last.get(notice.spell, notice.deadline))
    lost: dict[int, float] = {}
    for loss in rows.losses:
        spell = None if loss.drill else _spell_of(stays, loss)
        if spell is not None:
            lost[spell.id] = max(loss.at, lost.get(spell.id, loss.at))
    drilled = {notice.spell for notice in rows.notices if notice.drill} - set(last)
    return replace(rows, spells=tuple(_settle(spell, last, lost, drilled, now) for spell in rows.spells))


def _settle(
    spell: Spell, last: dict[int, float], lost: dict[int, float], drilled: set[int], now: float
) -> Spell:
    if spell.cause == "interruption" and spell.id in drilled:
        return replace(spell, cause="user-stop")
    if spell.cause != "running" or spell.drill:
        return spell
    if now - spell.heartbeat <= SILENT_S:
        return spell
    # A node that beats on after its deadline, or after a peer gave it up, was not taken then.
    if last.get(spell.id, now) < now and spell.heartbeat <= last[spell.id] + SILENT_S:
        return replace(spell, cause="interruption", ended=spell.heartbeat)
    if spell.heartbeat <= lost.get(spell.id, -SILENT_S) + SILENT_S:
        return replace(spell, cause="silent-loss", ended=spell.heartbeat)
    return spell


def _by_victim(spells: Iterable[Spell]) -> dict[str, list[Spell]]:
    stays: dict[str, list[Spell]] = defaultdict(list)
    for spell in spells:
        for name in {spell.instance_id, spell.node}:
            stays[name].append(spell)
    return stays


def _spell_of(stays: Mapping[str, list[Spell]], loss: LossRow) -> Spell | None:
    """The spell that a loss speaks of: the victim's latest that had begun by then."""
    own = [spell for spell in stays.get(loss.victim, ()) if spell.began <= loss.at + SKEW_S]
    return max(own, key=lambda spell: (spell.began, spell.id), default=None)


def _distinct(losses: Iterable[LossRow]) -> list[LossRow]:
    kept: dict[str, LossRow] = {}
    found = []
    for loss in sorted(losses, key=loss_rank):
        before = kept.get(loss.victim)
        if before is None or loss.at - before.at > BURST_S:
            found.append(loss)
        kept[loss.victim] = loss
    return found


def _count_words(rows: Rows, real: dict[int, Spell], since: float, tally: dict[str, Counter[Pool]]) -> None:
    pools = {spell.id: spell.pool for spell in rows.spells}
    drilled = {spell.id for spell in rows.spells if spell.drill and _ended_at(spell) >= since}
    for notice in rows.notices:
        if notice.first_seen < since or notice.spell not in pools:
            continue
        if notice.drill:
            drilled.add(notice.spell)
        elif notice.spell in real and notice.withdrawn is not None:
            tally["withdrawn"][pools[notice.spell]] += 1
    for spell in drilled:
        tally["drills"][pools[spell]] += 1


def _times(taken: Iterable[Interruption]) -> dict[Pool, list[float]]:
    times: dict[Pool, list[float]] = defaultdict(list)
    for stroke in taken:
        times[stroke.pool].append(stroke.at)
    return times


def _ended_at(spell: Spell) -> float:
    return spell.heartbeat if spell.ended is None else spell.ended


def _exposed(spell: Spell, since: float) -> float:
    """Seconds at risk from ``since`` on: the length is monotonic, only its place is the wall clock's."""
    return min(spell.alive_s, max(0.0, _ended_at(spell) - since))
