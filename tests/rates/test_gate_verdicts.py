"""The gate finds true daily patterns and refuses those that only look like one."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats
from tests.rates.gate_tables import MONDAY, OLD, by_hour, pool, region, stormy, table, wave

from outlast.daemon.rates import gate, harmonic, rayleigh
from outlast.daemon.rates.residuals import by_provider, residuals
from outlast.daemon.rates.table import BANDS, Counts


def turned(counts: Counts, seed: int) -> Counts:
    """Turn every day's clock by an offset of its own."""
    draw = np.random.default_rng(seed)
    return np.stack([np.roll(day, draw.integers(0, 24)) for day in counts])


def test_a_true_peak_is_found_at_its_hour() -> None:
    """A rate that is twice its mean at 16 UTC is found there, with a profile that peaks there too."""
    (found,) = gate.patterns(by_hour(stormy(1, days=90, profile=wave(2.0, 16.0))))
    assert found.state == "pattern"
    assert found.peak_hour is not None
    assert found.peak_hour == pytest.approx(16.0, abs=1.5)
    assert found.peak_to_mean == pytest.approx(2.0, rel=0.25)
    assert len(found.profile) == 24
    assert abs(int(np.argmax(found.profile)) - 16) <= 2
    assert found.sentence.startswith(f"daily pattern: peaks at {round(found.peak_hour):02d} UTC, ")
    assert found.gain is not None
    assert found.gain > 0


def test_storms_at_any_hour_are_no_pattern() -> None:
    """Clumped losses without a clock give the fixed sentence with what would have shown."""
    (found,) = gate.patterns(by_hour(stormy(2)))
    assert found.state == "no pattern"
    assert found.profile == ()
    assert found.detectable is not None
    words = re.fullmatch(
        r"no daily pattern found; one stronger than (\d\.\d)x would have shown", found.sentence
    )
    assert words is not None
    assert found.detectable <= float(words[1]) < found.detectable + 0.1


def test_turning_all_days_alike_moves_the_peak_and_nothing_else() -> None:
    """Seven hours later every day: the peak is seven hours later, p and height are the same."""
    counts = stormy(3, profile=wave(1.8, 9.0))
    (here,), (there,) = gate.judge([region(counts)]), gate.judge([region(np.roll(counts, 7, axis=1))])
    assert here.peak_hour is not None
    assert there.peak_hour == pytest.approx((here.peak_hour + 7) % 24)
    assert (there.p_raw, there.p, there.peak_to_mean, there.gain) == pytest.approx(
        (here.p_raw, here.p, here.peak_to_mean, here.gain)
    )


def test_days_turned_at_random_give_any_p_alike() -> None:
    """With days turned at random the day-rotation p is uniform, while the naive test errs half the time."""
    counts = stormy(4, days=80, bursts_a_day=10.0)
    ours, naive = [], []
    for seed in range(500):
        copy = region(turned(counts, seed))
        ours.append(float(rayleigh.formula(rayleigh.day_sums(copy.counts - copy.expected))))
        score = harmonic.likelihood_ratio(copy.counts.sum(axis=0), copy.expected.sum(axis=0))
        naive.append(float(stats.chi2.sf(score, 2)))
    assert stats.kstest(ours, "uniform").pvalue > 0.01
    assert np.mean(np.array(ours) < 0.05) == pytest.approx(0.05, abs=0.03)
    assert np.mean(np.array(naive) < 0.05) > 0.25


def test_the_whole_gate_rarely_sees_what_is_not_there() -> None:
    """On 300 copies with days turned at random, of data with a strong pattern, at most 6 % show one."""
    data = by_hour(stormy(5, profile=wave(2.2, 12.0)))
    assert gate.patterns(data)[0].state == "pattern"
    assert gate.false_positives(data, 300, seed=1) <= 0.06


def test_turning_a_day_keeps_all_that_happened_in_it() -> None:
    """A turned day has the same hours in another place; no turn leaves all as it was."""
    before = region(stormy(6))
    offsets = np.random.default_rng(0).integers(0, 24, len(before.counts))
    after = gate.rotated(before, offsets)
    assert (after.counts.sum(axis=1) == before.counts.sum(axis=1)).all()
    assert (after.counts[0] == np.roll(before.counts[0], offsets[0])).all()
    assert (gate.rotated(before, offsets * 0).counts == before.counts).all()


def test_young_nodes_started_every_morning_are_no_pattern() -> None:
    """Nodes that are all started at nine and die young make a peak at nine, which age explains."""
    draw, days = np.random.default_rng(7), 40
    exposure = np.zeros((1, BANDS, days * 24))
    exposure[0, OLD] = 10.0
    exposure[0, 0, 9::24] = 10.0
    rate = np.zeros((BANDS, 1))
    rate[OLD], rate[0] = 0.02, 0.4
    bursts = draw.poisson(exposure * rate)
    (found,) = gate.patterns(table((pool(),), exposure, bursts))
    assert found.state == "no pattern"
    flat = region(bursts[0].sum(axis=0).reshape(days, 24))
    assert gate.judge([flat])[0].state == "pattern"  # what not asking for age would have found


def test_a_bad_pool_used_at_night_is_no_pattern() -> None:
    """A pool that is ten times worse and runs at night only is compared with itself."""
    draw, days = np.random.default_rng(8), 40
    exposure = np.zeros((2, BANDS, days * 24))
    exposure[0, OLD] = 10.0
    exposure[1, OLD] = np.tile(np.repeat([10.0, 0.0], [8, 16]), days)
    bursts = draw.poisson(exposure * np.array([0.02, 0.2])[:, None, None])
    (found,) = gate.patterns(table((pool("r1a"), pool("r1b")), exposure, bursts))
    assert found.state == "no pattern"


@pytest.mark.parametrize(
    ("counts", "missing"),
    [
        (np.zeros((30, 24), int), "0 bursts on 0 days; need 30 on 14"),
        (np.eye(24, dtype=int)[:20], "20 bursts on 20 days; need 30 on 14"),
        (np.ones((10, 24), int), "240 bursts on 10 days; need 30 on 14"),
    ],
)
def test_too_few_bursts_or_days_are_not_judged(counts: Counts, missing: str) -> None:
    """Below thirty bursts or fourteen days the gate says what it has and what it needs, and no figure."""
    (found,) = gate.patterns(by_hour(counts))
    assert (found.state, found.sentence) == ("not enough", f"not enough data: {missing}")
    assert found.p is None
    assert found.peak_hour is None


def test_hours_never_seen_are_not_judged() -> None:
    """A job that only runs by day says nothing about the night."""
    seen = np.tile(np.repeat([0.0, 1.0], [8, 16]), 40)
    exposure = np.zeros((1, BANDS, 960))
    exposure[0, OLD] = 10 * seen
    bursts = np.zeros(exposure.shape, dtype=int)
    bursts[0, OLD] = np.random.default_rng(9).poisson(0.2 * seen)
    (found,) = gate.patterns(table((pool(),), exposure, bursts))
    assert found.sentence == "not enough data: 00-04 UTC seen on 0 days; need 7"


def test_regions_are_judged_each_by_itself() -> None:
    """Two regions that peak twelve hours apart both show; added up they would not."""
    exposure = np.full((2, BANDS, 90 * 24), 0.0)
    exposure[:, OLD] = 10.0
    bursts = np.zeros(exposure.shape, dtype=int)
    bursts[0, OLD] = stormy(10, 90, profile=wave(2.0, 16.0)).ravel()
    bursts[1, OLD] = stormy(11, 90, profile=wave(2.0, 4.0)).ravel()
    data = table((pool("r1a", "r1"), pool("r2a", "r2")), exposure, bursts)
    assert [(row.region, row.state) for row in gate.patterns(data)] == [("r1", "pattern"), ("r2", "pattern")]
    assert [row.state for row in gate.judge(by_provider(residuals(data)))] == ["no pattern"]


def test_an_empty_table_has_no_patterns() -> None:
    """No pools, no verdicts."""
    assert gate.patterns(table((), np.zeros((0, BANDS, 0)), np.zeros((0, BANDS, 0), int))) == ()


def test_what_is_expected_adds_up_to_what_was_seen() -> None:
    """Residuals of a region add up to nothing, for bursts and nodes, with and without a weekend factor."""
    exposure = np.random.default_rng(12).uniform(0, 5, (3, BANDS, 500))
    bursts = np.random.default_rng(13).poisson(0.05 * exposure)
    data = table(tuple(pool(f"r1{z}") for z in "abc"), exposure, bursts, MONDAY * 24 + 7, size=4)
    for unit, total in (("bursts", bursts.sum()), ("nodes", 4 * bursts.sum())):
        for weekend in (None, {("aws", "r1"): 0.5}):
            (found,) = residuals(data, unit, weekend)  # type: ignore[arg-type]
            assert found.counts.sum() == total
            assert found.expected.sum() == pytest.approx(total)
            assert (found.losses, found.first_day) == (4 * bursts.sum(), MONDAY)


def test_hours_of_a_table_fall_on_the_hours_of_the_day() -> None:
    """A table that begins at 23 UTC has its second hour at midnight of the next day."""
    counts = np.zeros(30, dtype=int)
    counts[1] = 1
    (found,) = residuals(by_hour(counts, first_hour=MONDAY * 24 + 23))
    assert np.argwhere(found.counts > 0).tolist() == [[1, 0]]
    assert found.counts.shape == (3, 24)


def test_a_loss_without_any_time_at_risk_is_left_out() -> None:
    """A node found gone in an hour without exposure has no rate to be compared with."""
    exposure = np.zeros((1, BANDS, 48))
    exposure[0, OLD, 24:] = 1.0
    bursts = np.zeros(exposure.shape, dtype=int)
    bursts[0, OLD, [3, 30]] = 1
    (found,) = residuals(table((pool(),), exposure, bursts))
    assert (found.counts.sum(), found.losses) == (1, 2)
    assert np.isfinite(found.expected).all()
