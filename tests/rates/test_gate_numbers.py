"""The estimators behind the gate give their known answers, to the digits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from outlast.daemon.rates import gate, harmonic, ratio, rayleigh

STEPS = np.repeat([2.0, 4.0, 8.0, 4.0], 6)
EVEN = np.full(24, 10.0)
SPIKES = np.ones(24)
SPIKES[[0, 6, 12, 18]] = 4.0


def test_one_harmonic_of_a_stepped_day_is_fitted_to_six_digits() -> None:
    """An unpenalised harmonic through 2, 4, 8, 4 has the coefficients, peak and height worked out by hand."""
    fitted = harmonic.shape(STEPS, EVEN, ridge=0.0)
    assert fitted.coefficients == pytest.approx((-0.895808, -0.446497, -0.446497), abs=5e-7)
    assert fitted.peak_to_mean == pytest.approx(1.88032, abs=5e-6)
    assert fitted.peak_hour == pytest.approx(15.0)
    assert fitted.profile == pytest.approx(fitted.profile[::-1][18:] + fitted.profile[::-1][:18])


def test_the_likelihood_ratio_of_a_stepped_day_is_known() -> None:
    """The naive test of the same day gives 20.0321, p 4.468e-5."""
    found = harmonic.likelihood_ratio(STEPS, EVEN)
    assert found == pytest.approx(20.0321, abs=5e-5)
    assert stats.chi2.sf(found, 2) == pytest.approx(4.468e-5, abs=5e-9)


def test_six_hourly_spikes_show_in_the_fourth_harmonic_alone() -> None:
    """Spikes at 0, 6, 12, 18 give LR 8.2368 at four cycles a day, none at one, and escape an omnibus test."""
    four = harmonic.likelihood_ratio(SPIKES, EVEN, 4)
    assert four == pytest.approx(8.2368, abs=5e-5)
    assert stats.chi2.sf(four, 2) == pytest.approx(0.01627, abs=5e-6)
    assert harmonic.likelihood_ratio(SPIKES, EVEN, 1) == pytest.approx(0.0, abs=1e-9)
    pearson = float(((SPIKES - 1.5) ** 2 / 1.5).sum())
    assert pearson == pytest.approx(20.0)
    assert stats.chi2.sf(pearson, 23) == pytest.approx(0.64, abs=0.005)


def test_claimed_spikes_have_a_known_ratio_and_exact_limits() -> None:
    """Sixteen of 36 events in four of 24 hours are a ratio of 4.0, 95 % 1.938-8.124, p 8.76e-5."""
    found = ratio.exact(16, 20, 40, 200, level=0.95)
    assert found.ratio == pytest.approx(4.0)
    assert (found.low, found.high) == pytest.approx((1.938, 8.124), abs=5e-4)
    assert found.p == pytest.approx(8.76e-5, abs=5e-8)


def test_four_days_that_agree_have_the_formulas_p() -> None:
    """Four days with a sum of one each give exp(-4); a p for so few days is drawn, not computed."""
    sums = np.ones(4, dtype=complex)
    assert float(rayleigh.formula(sums)) == pytest.approx(0.0183156, abs=5e-8)
    assert rayleigh.p_value(sums) == pytest.approx(rayleigh.FLOOR)


def test_random_phases_agree_with_the_formula_where_both_hold() -> None:
    """With nine days of like weight the drawn p is near the formula's, and the same at every call."""
    sums = np.exp(2j * np.pi * np.array([0.1, 0.2, 0.15, 0.5, 0.9, 0.3, 0.22, 0.7, 0.05]))
    drawn = rayleigh.p_value(sums)
    assert drawn == pytest.approx(float(rayleigh.formula(sums)), abs=0.02)
    assert drawn == rayleigh.p_value(sums)


def test_a_single_day_proves_nothing() -> None:
    """One day agrees with itself at any rotation."""
    assert rayleigh.p_value(np.array([3 + 4j])) == pytest.approx(1.0)
    assert rayleigh.p_value(np.zeros(30, dtype=complex)) == pytest.approx(1.0)


def test_holm_adjusts_in_the_order_given() -> None:
    """Holm's steps multiply by 4, 3, 2, 1 and never fall."""
    assert rayleigh.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert rayleigh.holm([0.9, 0.8]) == (1.0, 1.0)
    assert rayleigh.holm([]) == ()


@pytest.mark.parametrize(("events", "least"), [(30, 2.62), (50, 2.11), (100, 1.69), (200, 1.45), (400, 1.30)])
def test_the_least_pattern_that_would_show_is_known(events: int, least: float) -> None:
    """The detectable peak of one region follows exp(sqrt(27.74 / N))."""
    assert gate.detectable(events) == pytest.approx(least, abs=0.005)
    assert gate.detectable(events) == pytest.approx(math.exp(math.sqrt(27.74 / events)), rel=5e-4)
    assert gate.detectable(events, tests=8) > gate.detectable(events)


def test_three_events_in_a_day_do_not_break_the_fit() -> None:
    """All events in one hour give a finite, moderate shape with the ridge, and no singular matrix without."""
    lone = np.zeros(24)
    lone[3] = 3.0
    assert 1.0 < harmonic.shape(lone, EVEN).peak_to_mean < 2.0
    assert np.isfinite(harmonic.fit(lone, EVEN, harmonic.waves(1), ridge=0.0)).all()


def test_a_fit_without_events_or_exposure_is_flat() -> None:
    """Nothing seen gives no shape at all."""
    assert harmonic.shape(np.zeros(24), EVEN).peak_to_mean == pytest.approx(1.0)
    assert harmonic.shape(np.zeros(24), np.zeros(24)).peak_to_mean == pytest.approx(1.0)


def test_newtons_answer_is_the_optimum_that_scipy_finds() -> None:
    """A penalised fit of two harmonics has a gradient of nought and agrees with a general optimiser."""
    from scipy import optimize

    counts = np.random.default_rng(5).poisson(3.0, 24).astype(float)
    expected = np.random.default_rng(6).uniform(1.0, 4.0, 24)
    columns = harmonic.waves(2)

    def cost(b: np.ndarray) -> float:
        gain = harmonic.log_likelihood(counts, expected, columns, b)
        return float(-gain + harmonic.RIDGE / 2 * (b[1:] ** 2).sum())

    best = optimize.minimize(cost, np.zeros(5), method="BFGS", options={"gtol": 1e-8})
    assert harmonic.fit(counts, expected, columns) == pytest.approx(best.x, abs=1e-5)


@pytest.mark.parametrize("days", [10, 14, 15, 19, 22, 47, 365])
def test_blocks_cover_all_days_in_fives_to_sevens(days: int) -> None:
    """Every day is held out once, in a block of five to seven days."""
    parts = harmonic.blocks(days)
    assert [i for part in parts for i in range(days)[part]] == list(range(days))
    assert all(5 <= part.stop - part.start <= 7 for part in parts)
