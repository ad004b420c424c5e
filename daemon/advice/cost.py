"""What an hour of useful training costs, part by part. Takes one hazard or an array of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from outlast.daemon.advice.goodput import Life, Real, billed, wall
from outlast.daemon.advice.interval import choose
from outlast.daemon.advice.job import Job

HOURS_A_MONTH = 730.0
# The newest two committed checkpoints stay at the standby.
KEPT = 2
TRAFFIC = "traffic to the standby"
# An hour's hazard below this is no interruption in a thousand years.
LEAST = 1e-7


@dataclass(frozen=True, slots=True)
class Cost:
    """``parts`` are dollars an hour of useful training, by name; ``goodput`` is useful by billed time."""

    goodput: Any
    on_clock: Any
    parts: dict[str, Any]

    @property
    def total(self) -> Any:
        """Dollars an hour of useful training."""
        return sum(self.parts.values())


def interval_for(job: Job, hazard: float, share: float) -> float:
    """Seconds between checkpoints at a hazard per hour."""
    return choose(job.stall_s, 3600 / max(hazard, LEAST), share)


def cost(
    job: Job, price_usd_h: float, hazard: Real, share: float, interval_s: float, *, remote: bool = True
) -> Cost:
    """The cost at ``price_usd_h`` for all of the job's instances and ``hazard`` of the job per hour.

    ``remote``: checkpoints go to another region, which is paid by the gigabyte.
    """
    mtbf = 3600 / np.maximum(hazard, LEAST)
    life = Life(interval_s, job.stall_s, mtbf, job.restart_s, job.wait_s, share, job.flush_s)
    good, clock = billed(life), wall(life)
    stated, size = job.costs, (job.bytes or 0.0) / 1e9
    failure = stated.engineer_usd_h * stated.engineer_h_per_failure + stated.failed_run_usd
    parts = {
        "training": np.broadcast_to(price_usd_h, np.shape(good)).astype(np.float64),
        "checkpoints, lost work and restarts": price_usd_h * (1 / good - 1),
        "storage": KEPT * size * stated.storage_usd_gb_month / HOURS_A_MONTH / clock,
        TRAFFIC: (np.broadcast_to(size * stated.egress_usd_gb * 3600 / interval_s * remote, np.shape(good))),
        "failures, people and failed runs": np.asarray(hazard) * failure / good,
    }
    return Cost(good, clock, parts)
