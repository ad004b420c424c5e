"""Whether a job is done by its deadline, each interruption costing a known time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import pdtr
from scipy.stats import nbinom

# Fewer waits than this say too little to draw from.
LEAST_WAITS = 10


def most(hours: float, left_h: float, overhead: float, loss_h: float) -> int:
    """How many interruptions the time allows: -1 if the job is late without any.

    ``hours`` of useful training with checkpoints costing ``overhead`` (a share), ``left_h`` until the
    deadline, each interruption costing ``loss_h``.
    """
    spare = left_h - hours * (1 + overhead)
    if spare < 0:
        return -1
    # A millionth of an interruption is rounding, not time.
    return math.floor(spare / loss_h + 1e-6) if loss_h > 0 else 10**9


def with_rate(hours: float, left_h: float, overhead: float, loss_h: float, hazard: float) -> float:
    """The probability where the hazard (per hour) is known exactly: N is Poisson."""
    count = most(hours, left_h, overhead, loss_h)
    return 0.0 if count < 0 else float(pdtr(count, hazard * hours * (1 + overhead)))


def with_posterior(
    hours: float, left_h: float, overhead: float, loss_h: float, shape: float, rate_h: float
) -> float:
    """The probability where the hazard is Gamma(shape, rate_h): N is negative binomial."""
    count = most(hours, left_h, overhead, loss_h)
    if count < 0:
        return 0.0
    return float(nbinom.cdf(count, shape, rate_h / (rate_h + hours * (1 + overhead))))


def with_waits(
    hours: float,
    left_h: float,
    overhead: float,
    loss_h: float,
    gamma: tuple[float, float],
    waits_h: Sequence[float],
    draws: int = 4000,
    seed: int = 0,
) -> float | None:
    """As ``with_posterior``, each interruption also costing a wait drawn from those observed.

    The first start waits too. None where fewer than LEAST_WAITS were observed.
    """
    if len(waits_h) < LEAST_WAITS:
        return None
    rng = np.random.default_rng(seed)
    run = hours * (1 + overhead)
    counts = rng.poisson(rng.gamma(gamma[0], 1 / gamma[1], draws) * run)
    waits = np.asarray(waits_h, dtype=np.float64)
    late = [
        run + count * loss_h + rng.choice(waits, int(count) + 1).sum() > left_h for count in counts.tolist()
    ]
    return 1 - float(np.mean(late))
