"""On-demand as one more way to run the job: dearer, and nobody takes it back."""

from __future__ import annotations

from outlast.daemon.advice.cost import cost
from outlast.daemon.advice.interval import CAP_S, steps
from outlast.daemon.advice.job import Job
from outlast.daemon.advice.offers import OnDemand
from outlast.daemon.advice.values import Request, Row
from outlast.daemon.rates.values import Range


def row_of(one: OnDemand, job: Job, request: Request, now: float, count: int) -> Row:
    """Its row: checkpoints every hour in case of a fault, none of them sent away."""
    price = one.usd_h * count
    found = cost(job, price, 0.0, 1.0, CAP_S, remote=False)
    total = float(found.total)
    late = request.deadline is not None and (request.deadline - now) / 3600 < job.hours / float(found.goodput)
    return Row(
        pool=one.pool,
        market="on_demand",
        price_usd_h=price,
        cap="",
        hazard=None,
        state="ok",
        interval_s=CAP_S,
        interval_steps=steps(CAP_S, job.step_s) if job.step_s else None,
        goodput=float(found.goodput),
        per_useful_hour=Range(total, total, total),
        parts={name: float(value) for name, value in found.parts.items()},
        p_deadline=None if request.deadline is None else float(not late),
        p_best=0.0,
        p_capacity=None,
        notes=("taken to run without interruption",),
    )
