"""From the ranking to a verdict in one sentence, its reasons, and the policy under a deadline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from outlast.daemon.advice.cost import TRAFFIC
from outlast.daemon.advice.job import Job
from outlast.daemon.advice.offers import OnDemand
from outlast.daemon.advice.policy import Policy, compare
from outlast.daemon.advice.ranking import SURE, Ranked, tied
from outlast.daemon.advice.values import Request, Verdict
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import PoolRate

# Below this ratio of time left to work, Uniform Progress was cheaper on real traces; above, waiting was.
TIGHT = 1.4
# Beyond this share of the cost, what the replication costs is worth a word.
DEAR_TRAFFIC = 0.2


@dataclass(frozen=True, slots=True)
class Findings:
    """All that the verdict rests on."""

    request: Request
    job: Job
    fitting: Sequence[PoolRate]
    ranked: Sequence[Ranked]
    eligible: Sequence[Ranked]
    demand: Sequence[OnDemand]
    priced: bool
    now: float
    observed: Observed


@dataclass(frozen=True, slots=True)
class Said:
    """The verdict, its order of pools, and what goes with it."""

    verdict: Verdict
    sentence: str
    order: tuple[Ranked, ...] = ()
    policy: str = ""
    reasons: tuple[str, ...] = ()
    not_known: tuple[str, ...] = field(default=())


def decide(found: Findings) -> Said:
    """The verdict. The order holds only pools that may be advised."""
    lacks = _lacks(found)
    if not found.fitting:
        what = found.request.gpu_type or ", ".join(found.request.instance_types) or "any type"
        return Said("not enough data", f"No pool with {what} is in this history.", not_known=lacks)
    if not found.ranked:
        return Said("not enough data", _too_little(found.fitting), not_known=lacks)
    if not found.eligible:
        cheapest = found.demand[0]
        sentence = (
            f"Run on demand, {_name(cheapest.pool)} at ${cheapest.usd_h:.2f} an hour: in no pool does spot"
            " cost less for an hour of useful training."
        )
        return Said("on-demand", sentence, not_known=lacks)
    policy = _policy(found)
    reasons = (*_reasons(found), *_dearer(found))
    group = tied(found.eligible)
    if len(group) > 1:
        names = ", ".join(_name(one.candidate.rate.pool) for one in group)
        sentence = f"A tie between {names}: none is the cheapest with {SURE:.0%} confidence."
        return Said("tie", sentence, _with_first(group, found.eligible), policy, reasons, lacks)
    return Said("run", _run(found, group[0]), _with_first(group, found.eligible), policy, reasons, lacks)


def _with_first(group: Sequence[Ranked], eligible: Sequence[Ranked]) -> tuple[Ranked, ...]:
    return (*group, *(one for one in eligible if one not in group))


def _run(found: Findings, best: Ranked) -> str:
    name, cost = _name(best.candidate.rate.pool), best.range
    if not found.priced:
        return (
            f"Run in {name}: {cost.mean:.2f} paid hours for each useful one ({cost.low:.2f}-{cost.high:.2f})."
        )
    return f"Run in {name}: ${cost.mean:.2f} for an hour of useful training ({cost.low:.2f}-{cost.high:.2f})."


def _too_little(rates: Sequence[PoolRate]) -> str:
    if all(rate.state == "stale" for rate in rates):
        return f"No pool can be ranked for now: of {len(rates)} only old data are known. {rates[0].because}."
    hours = sum(rate.exposure_h for rate in rates)
    return (
        f"No pool can be ranked: {hours:.0f} instance-hours were seen in {len(rates)}"
        f" pool{'s' if len(rates) != 1 else ''}, in none enough. {rates[0].because}"
    )


def _reasons(found: Findings) -> tuple[str, ...]:
    best = found.eligible[0]
    rate = best.candidate.rate
    hazard = rate.current
    first = (
        f"{_name(rate.pool)} loses {100 * hazard.mean:.1f} per 100 instance-hours now"
        f" ({100 * hazard.low:.1f}-{100 * hazard.high:.1f}); {rate.bursts} bursts were seen in"
        f" {rate.exposure_h:.0f} h."
    )
    lines = [first]
    worst = found.eligible[-1]
    if worst is not best and worst.range.mean > best.range.mean:
        dearer = worst.range.mean / best.range.mean - 1
        lines.append(f"Place matters: {_name(worst.candidate.rate.pool)} would cost {dearer:.0%} more.")
    traffic = float(best.middle.parts[TRAFFIC])
    share = traffic / best.range.mean
    if found.priced and share >= DEAR_TRAFFIC:
        lines.append(
            f"Traffic to the standby is {share:.0%} of the cost (${traffic:.2f}): a longer interval, smaller"
            " checkpoints or a region with cheaper traffic would save most of it."
        )
    return tuple(lines)


def _dearer(found: Findings) -> tuple[str, ...]:
    out = [one for one in found.ranked if one not in found.eligible]
    if not out:
        return ()
    names = ", ".join(_name(one.candidate.rate.pool) for one in out[:5])
    return (f"Spot in {names} costs more for a useful hour than on-demand: not advised.",)


def _lacks(found: Findings) -> tuple[str, ...]:
    lines = []
    if found.fitting and not found.priced:
        lines.append("Prices: pools are ranked by the time they lose, an hour counting the same in each.")
    if not found.demand:
        lines.append("The on-demand price: whether spot is worth it cannot be said.")
    held_back = [rate for rate in found.fitting if rate.state != "ok"]
    lines += [f"{_name(rate.pool)}: {rate.because}" for rate in held_back[:5]]
    if any(one.candidate.count > 1 for one in found.ranked):
        lines.append("Which nodes of a pool go together: the job's are taken to be any that were up.")
    regions = {one.candidate.rate.pool.region for one in found.eligible}
    if len(regions) == 1:
        lines.append("A standby in another region: only one region can be ranked.")
    return tuple(lines)


def _policy(found: Findings) -> str:
    if found.request.deadline is None:
        return ""
    left = (found.request.deadline - found.now) / 3600
    hours = found.job.hours
    if left < hours:
        return f"{left:.1f} h are left for {hours:.1f} h of training: no way of running is done in time."
    ratio = left / hours
    measured = _replayed(found, left)
    if measured:
        best = min(measured, key=lambda name: measured[name])
        shares = ", ".join(f"{name} {share:.2f}" for name, share in measured.items())
        return f"{best} (replayed on this pool's history, cost against on-demand: {shares})"
    if ratio < TIGHT:
        return f"uniform progress: {left:.0f} h for {hours:.0f} h are tight; on demand when behind the line"
    return f"greedy: {left:.0f} h for {hours:.0f} h leave time to wait for spot; on demand at the last moment"


def _replayed(found: Findings, left: float) -> dict[Policy, float]:
    """Both policies on the first pool's own availability, where that was probed hour by hour."""
    best = found.eligible[0]
    table, rate = found.observed.table, best.candidate.rate
    if rate.origin != "probe" or not found.demand or not found.priced:
        return {}
    index = table.pools.index(rate.pool)
    up = np.asarray(table.exposure[index].sum(axis=0)) >= 0.5
    ratio = best.candidate.price_usd_h / (found.demand[0].usd_h * best.candidate.count)
    return compare(up.tolist(), 1.0, found.job.hours, left, found.job.restart_s / 3600, min(ratio, 1.0))


def _name(pool: Pool) -> str:
    return " ".join(part for part in (pool.provider, pool.zone or pool.region, pool.instance_type) if part)
