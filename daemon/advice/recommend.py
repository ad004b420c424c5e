"""The recommendation: every pool that fits the job priced, ranked, and said with what it rests on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from outlast.daemon.advice import bids
from outlast.daemon.advice.deadline import with_posterior
from outlast.daemon.advice.goodput import Life
from outlast.daemon.advice.interval import steps
from outlast.daemon.advice.job import Job, filled
from outlast.daemon.advice.offers import Offers, OnDemand, capacity
from outlast.daemon.advice.on_demand import row_of
from outlast.daemon.advice.ranking import Candidate, Ranked, rank, tied
from outlast.daemon.advice.values import Advice, BackTest, BidCurve, Request, Row
from outlast.daemon.advice.verdict import Findings, decide
from outlast.daemon.advice.window import weekend, window
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.gang import gang
from outlast.daemon.rates.table import Observed, Table
from outlast.daemon.rates.values import PoolRate, Study
from outlast.providers.market.base import Quote, Risk
from outlast.providers.market.catalogue import carries, gpus_of

VALID_S = 24 * 3600.0


def advise(
    study: Study,
    observed: Observed,
    request: Request,
    quotes: Sequence[Quote],
    risks: Sequence[Risk],
    now: float,
    backtest: BackTest | None = None,
) -> Advice:
    """What to do as of UTC ``now``. Without prices, quotes or rates it says what it lacks; it never raises.

    ``risks`` are published figures: they are named, never turned into a rate.
    """
    job, assumed, lacks = filled(request, observed.timing)
    offers = Offers(observed.prices, quotes)
    fitting = [rate for rate in study.pools if _fits(rate.pool, request)]
    priced = any(offers.spot(rate.pool) is not None for rate in fitting)
    candidates = _candidates(fitting, offers, request, priced, observed.table)
    places = {candidate.rate.pool.region for candidate in candidates}
    ranked = rank(candidates, job, remote=len(places) > 1)
    demand = _on_demand(offers, request, study)
    found = decide(
        Findings(
            request,
            job,
            fitting,
            ranked,
            _eligible(ranked, demand, job, request, priced),
            demand,
            priced,
            now,
            observed,
        )
    )
    order = tuple(one.candidate.rate.pool for one in found.order)
    first = order[0] if order else None
    when, why = window(study, first, request.hours) if first else ("any hour", "")
    best = found.order[0] if found.order else None
    rows = [_row(one, job, request, observed, now) for one in ranked]
    rows += [row_of(one, job, request, now, _count(one.pool, request)) for one in demand]
    return Advice(
        verdict=found.verdict,
        sentence=found.sentence,
        request=request,
        rows=tuple(rows),
        order=order,
        standby=next((pool for pool in order[1:] if first and pool.region != first.region), None),
        window=when,
        policy=found.policy,
        cap=bids.cap(first.provider) if first else "",
        interval_s=best.interval_s if best else None,
        interval_steps=steps(best.interval_s, job.step_s) if best and job.step_s else None,
        bids=_curves(ranked, observed, job, now),
        reasons=tuple(told for told in (*found.reasons, why, weekend(study, first) if first else "") if told),
        not_known=(
            *lacks,
            *found.not_known,
            *_unpriced(fitting, offers, priced),
            *_published(risks, fitting),
        ),
        assumed=assumed,
        data_from=study.begins,
        data_to=study.ends,
        valid_until=now + VALID_S,
        backtest=backtest,
    )


def _fits(pool: Pool, request: Request) -> bool:
    if request.instance_types:
        return pool.instance_type in request.instance_types
    return not request.gpu_type or carries(pool.instance_type, request.gpu_type)


def _count(pool: Pool, request: Request) -> int:
    """Instances that hold the job's GPUs; one where the type's GPUs are not known."""
    known = gpus_of(pool.instance_type)
    return math.ceil(request.gpus / known[1]) if known else 1


def _candidates(
    rates: Sequence[PoolRate], offers: Offers, request: Request, priced: bool, table: Table
) -> tuple[Candidate, ...]:
    """Pools with enough data, with a price where any has one; without prices an hour costs one."""
    found = []
    for rate in rates:
        price = offers.spot(rate.pool)
        if rate.state != "ok" or (priced and price is None):
            continue
        count = _count(rate.pool, request)
        each = 1.0 if price is None else price
        found.append(Candidate(rate, count * each, count, _factor(table, rate, count)))
    return tuple(found)


def _factor(table: Table, rate: PoolRate, count: int) -> float:
    """Hits of the whole job by those of one node; where they cannot be told, every loss as one of its own."""
    if count == 1:
        return 1.0
    places = zip(table.pools, table.origin, strict=True)
    index = next(i for i, place in enumerate(places) if place == (rate.pool, rate.origin))
    whole, one = gang(table, index, count), gang(table, index, 1)
    return max(1.0, whole / one) if whole and one else float(count)


def _on_demand(offers: Offers, request: Request, study: Study) -> tuple[OnDemand, ...]:
    types = {rate.pool.instance_type for rate in study.pools if _fits(rate.pool, request)}
    return tuple(one for one in offers.on_demand(sorted(types)) if _fits(one.pool, request))


def _eligible(
    ranked: Sequence[Ranked], demand: Sequence[OnDemand], job: Job, request: Request, priced: bool
) -> tuple[Ranked, ...]:
    """Spot that is dearer than on-demand, useful hour by useful hour, is never advised."""
    if not demand or not priced:
        return tuple(ranked)
    rows = [row_of(one, job, request, 0.0, _count(one.pool, request)) for one in demand]
    least = min(row.per_useful_hour.mean for row in rows)
    return tuple(one for one in ranked if one.range.mean < least)


def _row(one: Ranked, job: Job, request: Request, observed: Observed, now: float) -> Row:
    rate = one.candidate.rate
    share = job.flush_share(rate.pool.provider)
    return Row(
        pool=rate.pool,
        market="spot",
        price_usd_h=one.candidate.price_usd_h,
        cap=bids.cap(rate.pool.provider),
        hazard=rate.current,
        state=rate.state,
        interval_s=one.interval_s,
        interval_steps=steps(one.interval_s, job.step_s) if job.step_s else None,
        goodput=float(one.middle.goodput),
        per_useful_hour=one.range,
        parts={name: float(value) for name, value in one.middle.parts.items()},
        p_deadline=_in_time(one, job, share, request, now),
        p_best=one.p_best,
        p_capacity=capacity(observed.launches, rate.pool),
        notes=("launch probes, not held nodes: an upper bound",) if rate.origin == "probe" else (),
    )


def _in_time(one: Ranked, job: Job, share: float, request: Request, now: float) -> float | None:
    if request.deadline is None:
        return None
    lost = job.restart_s + share * job.flush_s + (1 - share) * one.interval_s / 2
    rate = one.candidate.rate
    return with_posterior(
        job.hours,
        (request.deadline - now) / 3600,
        job.stall_s / one.interval_s,
        (lost + job.wait_s) / 3600,
        rate.current_shape,
        rate.current_rate_h / one.candidate.factor,
    )


def _curves(ranked: Sequence[Ranked], observed: Observed, job: Job, now: float) -> tuple[BidCurve, ...]:
    found = []
    for one in ranked:
        pool = one.candidate.rate.pool
        series = sorted(
            (price for price in observed.prices if price.pool == pool and price.kind == "min_bid"),
            key=lambda price: price.at,
        )
        if pool.provider not in bids.BIDDERS or len(series) < 2:
            continue
        least = series[-1].micro_usd / 1e6
        life = Life(
            0.0, job.stall_s, 0.0, job.restart_s, job.wait_s, job.flush_share(pool.provider), job.flush_s
        )
        outbid = bids.outbid_rates(series, least, now)
        found.append(bids.curve(pool, least, max(one.hazard, 1e-6), outbid, life))
    return tuple(found)


def _unpriced(rates: Sequence[PoolRate], offers: Offers, priced: bool) -> tuple[str, ...]:
    lacking = [rate.pool for rate in rates if offers.spot(rate.pool) is None]
    if not lacking or not priced:
        return ()
    names = ", ".join(pool.zone or pool.region for pool in lacking[:5])
    more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
    return (f"The price of {names}{more}: not ranked.",)


def _published(risks: Sequence[Risk], rates: Sequence[PoolRate]) -> tuple[str, ...]:
    """Published figures are of another kind than a hazard: they are shown as they are."""
    types = {rate.pool.instance_type for rate in rates}
    lines = [
        f"{risk.source} publishes for {risk.instance_type} in {risk.zone or risk.region}: {risk.text}"
        f" ({risk.measure}); it is no rate of interruptions and was not used."
        for risk in risks
        if risk.instance_type in types
    ]
    return tuple(lines[:5])


__all__ = ["advise", "tied"]
