"""Poisson fits of a daily shape: one harmonic, a second where it helps, and how well they do on unseen days.

The model of an hour's count is Poisson with mean ``expected * exp(b0 + x b)``. Counts of the same hour on
different days have the same factor, so 24 sums are all that a fit needs, and thousands are fitted at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from outlast.daemon.rates.table import Floats

# Added to the curvature of each coefficient but the level: three events in one hour must not give a peak
# of a hundred times the mean. With 30 events it takes a quarter off a twofold peak, with 300 a few per cent.
RIDGE = 5.0
# Days a block of the cross-validation has (the last may have a few more): longer than a spell of bad days.
BLOCK_DAYS = 5
_STEPS = 50
_LONGEST_STEP = 1.0
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Shape:
    """A fitted day. ``coefficients`` are b0, then a cosine and a sine of each harmonic.

    ``profile`` has the factor of each of 24 hours on what is expected without a pattern. ``peak_hour`` is
    UTC; ``peak_to_mean`` is the peak over the (geometric) mean of the curve: exp(amplitude).
    """

    coefficients: tuple[float, ...]
    profile: tuple[float, ...]
    peak_hour: float
    peak_to_mean: float


def waves(harmonics: int, hours: int = 24) -> Floats:
    """Give the columns cos, sin of harmonics 1, 2, … at the middles of the hours; shape hours x 2k."""
    angle = 2 * np.pi * (np.arange(hours) + 0.5) / hours
    columns = [wave(k * angle) for k in range(1, harmonics + 1) for wave in (np.cos, np.sin)]
    return np.stack(columns, axis=1) if columns else np.zeros((hours, 0))


def fit(counts: Floats, expected: Floats, columns: Floats, ridge: float = RIDGE) -> Floats:
    """Fit b0 and b by Newton's method; shape of the result: leading axes, 1 + columns.

    ``counts`` and ``expected`` have the 24 hours last and any number of axes before, each of them a fit of
    its own. The level b0 is not penalised. A fit without events stays at a vanishing level.
    """
    design = np.concatenate([np.ones((len(columns), 1)), columns], axis=1)
    penalty = np.diag([0.0] + [ridge] * columns.shape[1])
    guard = np.diag([_TINY] * design.shape[1])  # hours never seen leave a direction without curvature
    total = np.maximum(counts.sum(axis=-1), _TINY)
    b = np.zeros((*counts.shape[:-1], design.shape[1]))
    b[..., 0] = np.log(total / np.maximum(expected.sum(axis=-1), _TINY))
    for _ in range(_STEPS):
        mean = expected * np.exp(b @ design.T)
        slope = (counts - mean) @ design - b @ penalty
        bend = np.einsum("...h,hi,hj->...ij", mean, design, design) + penalty + guard
        step = np.linalg.solve(bend, slope[..., None])[..., 0]
        longest = np.abs(step).max(axis=-1, keepdims=True)
        b = b + step * np.minimum(1.0, _LONGEST_STEP / np.maximum(longest, _TINY))
        if longest.size == 0 or longest.max() < 1e-10:
            break
    return b


def log_likelihood(counts: Floats, expected: Floats, columns: Floats, b: Floats) -> Floats:
    """Give the Poisson log-likelihood of fits, less what does not depend on them, over the last axis."""
    log_rate = b[..., :1] + b[..., 1:] @ columns.T
    gain: Floats = (counts * log_rate - expected * np.exp(log_rate)).sum(axis=-1)
    return gain


def likelihood_ratio(counts: Floats, expected: Floats, harmonic: int = 1) -> float:
    """Give twice the unpenalised log-likelihood that harmonic k alone adds to a flat day (chi-squared, 2).

    The naive test: it takes every event for itself. It is here to be compared with, not to decide.
    """
    columns = waves(harmonic)[:, -2:]
    flat = np.zeros((len(columns), 0))
    full = log_likelihood(counts, expected, columns, fit(counts, expected, columns, 0.0))
    return float(2 * (full - log_likelihood(counts, expected, flat, fit(counts, expected, flat))))


def shape(counts: Floats, expected: Floats, harmonics: int = 1, ridge: float = RIDGE) -> Shape:
    """Fit one day's shape to 24 sums of counts and expected counts."""
    columns = waves(harmonics)
    b = fit(counts, expected, columns, ridge)
    angle = 2 * np.pi * np.arange(24 * 60) / (24 * 60)
    fine = np.stack([f(k * angle) for k in range(1, harmonics + 1) for f in (np.cos, np.sin)], axis=1) @ b[1:]
    top = int(fine.argmax())
    peak_hour, amplitude = top / 60, float(fine[top])
    if harmonics == 1:  # exact where a formula gives it
        peak_hour = float(np.arctan2(b[2], b[1]) * 12 / np.pi % 24)
        amplitude = float(np.hypot(b[1], b[2]))
    profile = np.exp(b[0] + columns @ b[1:])
    return Shape(tuple(map(float, b)), tuple(map(float, profile)), peak_hour, float(np.exp(amplitude)))


def blocks(days: int) -> tuple[slice, ...]:
    """Cut days into blocks of five to seven; fewer than ten days are one block, and nothing is held out."""
    count = max(1, days // BLOCK_DAYS)
    edges = [round(days * i / count) for i in range(count + 1)]
    return tuple(slice(a, b) for a, b in pairwise(edges))


def held_out(counts: Floats, expected: Floats, columns: Floats, base: Floats | None = None) -> Floats:
    """Give the log-likelihood (nats) that ``columns`` gain over ``base`` on each block of days when fitted
    without it; shape: leading axes, blocks. ``base`` are the columns of the simpler model, default none.

    Axes of the arrays: any, day, hour. Days should be those with exposure, in order. Each block's own level
    is given to both models: only how its events lie over the day is judged, not how many there were.
    """
    parts = blocks(counts.shape[-2])
    seen = np.stack([counts[..., part, :].sum(axis=-2) for part in parts], axis=-2)
    due = np.stack([expected[..., part, :].sum(axis=-2) for part in parts], axis=-2)
    rest = seen.sum(axis=-2, keepdims=True) - seen, due.sum(axis=-2, keepdims=True) - due
    simpler = np.zeros((counts.shape[-1], 0)) if base is None else base
    return _score(seen, due, columns, fit(*rest, columns)) - _score(seen, due, simpler, fit(*rest, simpler))


def _score(seen: Floats, due: Floats, columns: Floats, b: Floats) -> Floats:
    """Give the log-likelihood of hours given the block's total."""
    log_rate = b[..., 1:] @ columns.T
    level = (due * np.exp(log_rate)).sum(axis=-1)
    level = np.where(level > 0, level, 1.0)
    total = due.sum(axis=-1)
    log_level = np.log(level) - np.log(np.where(total > 0, total, 1.0))
    gain: Floats = (seen * (log_rate - log_level[..., None])).sum(axis=-1)
    return gain
