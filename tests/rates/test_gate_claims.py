"""Claimed hours and weekends are supported, refused or left open, by what the data can tell."""

from __future__ import annotations

import numpy as np
import pytest
from tests.rates.gate_tables import MONDAY, OLD, by_hour, pool, stormy, table

from outlast.daemon.rates import claim, ratio, weekend
from outlast.daemon.rates.table import BANDS, Counts, Table

HOURS = (0, 6, 12, 18)
TWICE = np.where(np.isin(np.arange(24), HOURS), 2.0, 1.0)


def weeks(seed: int, days: int, weekend_rate: float, first_day: int = MONDAY) -> Table:
    """Draw days whose weekends have that many times the rate of weekdays."""
    factor = np.where((np.arange(first_day, first_day + days) + 3) % 7 >= 5, weekend_rate, 1.0)
    draw = np.random.default_rng(seed)
    counts: Counts = draw.poisson(factor[:, None] * draw.gamma(4.0, 0.25, (days, 1)) * np.full(24, 0.5))
    return by_hour(counts, first_hour=first_day * 24)


def test_a_true_claim_is_supported() -> None:
    """Hours that really have twice the rate are supported, in the region and over the provider."""
    rows = claim.claims(by_hour(stormy(20, days=120, bursts_a_day=8.0, profile=TWICE)), HOURS)
    assert [(row.region, row.verdict) for row in rows] == [("r1", "supported"), ("", "supported")]
    for row in rows:
        assert row.ratio.low < 2.0 < row.ratio.high
        assert row.losses > row.expected
        assert row.sentence.startswith("supported: 00, 06, 12, 18 UTC have ")


def test_a_false_claim_is_refused() -> None:
    """With losses at any hour and data enough, a peak that matters is excluded."""
    for row in claim.claims(by_hour(stormy(21, days=120)), (18, 0, 12, 6, 6)):
        assert row.hours == HOURS
        assert row.verdict == "refused"
        assert row.ratio.high < claim.MATTERS
        assert row.sentence.endswith("1.5x or more is excluded")


def test_a_claim_on_few_data_stays_open() -> None:
    """Ten losses cannot refuse a claim, true or false, nor none at all."""
    counts = np.zeros((12, 24), dtype=int)
    for row in claim.claims(by_hour(counts), HOURS):
        assert (row.verdict, row.losses) == ("open", 0)
    counts[np.arange(10), np.arange(10) * 5 % 24] = 1
    for row in claim.claims(by_hour(counts), HOURS):
        assert row.verdict == "open"
        assert row.sentence.endswith("the data do not tell")


def test_few_true_claims_are_refused_by_chance() -> None:
    """Of forty small histories in which the claim is true, with about 45 bursts, hardly one refuses it."""
    rows = [
        claim.claims(by_hour(stormy(seed, days=20, bursts_a_day=2.0, profile=TWICE)), HOURS)[1]
        for seed in range(40)
    ]
    assert sum(row.verdict == "refused" for row in rows) <= 3


def test_claimed_hours_are_held_out_on_blocks() -> None:
    """True hours gain on days held out, false ones lose."""
    from outlast.daemon.rates.residuals import residuals

    (true,) = residuals(by_hour(stormy(22, days=100, profile=TWICE)))
    gained, blocks = claim.gain(true, HOURS)
    assert gained > 0
    assert blocks == 20
    assert claim.gain(true, (3, 9, 15, 21))[0] < gained


@pytest.mark.parametrize("hours", [(), (24,), (-1, 3), tuple(range(24))])
def test_claims_that_name_no_hours_are_refused_as_input(hours: tuple[int, ...]) -> None:
    """Claimed hours must be some, but not all, of the hours of a day."""
    with pytest.raises(ValueError, match="hours"):
        claim.claims(by_hour(stormy(0)), hours)


def test_regions_and_their_provider_each_have_a_row() -> None:
    """Two regions give two rows and one over both, whose counts are their sum."""
    exposure = np.full((2, BANDS, 960), 0.0)
    exposure[:, OLD] = 10.0
    bursts = np.random.default_rng(3).poisson(exposure * 0.02)
    rows = claim.claims(table((pool("a", "r1"), pool("b", "r2")), exposure, bursts), HOURS)
    assert [row.region for row in rows] == ["r1", "r2", ""]
    assert rows[2].losses == rows[0].losses + rows[1].losses


def test_clumped_days_widen_the_interval_and_even_days_never_narrow_it() -> None:
    """Day-clustered limits contain the exact ones, and grow with the days' disagreement."""
    inside, outside = np.array([8.0, 0.0, 8.0, 0.0] * 5), np.array([4.0] * 20)
    due = np.ones(20)
    clumped, alone = ratio.clustered(inside, outside, due, due * 5, 19), ratio.exact(80, 80, 20, 100)
    even = ratio.clustered(outside, outside, due, due * 5, 19)
    assert clumped.low < alone.low < alone.ratio < alone.high < clumped.high
    assert (even.low, even.high) == (alone.low, alone.high)


def test_a_side_without_events_has_no_upper_bound() -> None:
    """Events on one side alone give a bound that is stated as a thousand, and a finite estimate."""
    found = ratio.exact(5, 0, 1, 10)
    assert found.high == ratio.UNBOUNDED
    assert np.isfinite(found.ratio)
    assert ratio.exact(0, 5, 1, 10).low == 0.0


def test_calm_weekends_are_found_and_used() -> None:
    """Weekends at half the rate are a pattern; the factor used is near, and nearer to one."""
    data = weeks(30, 98, 0.5)
    (found,) = weekend.weekends(data)
    assert found.state == "pattern"
    assert found.ratio.low < 0.5 < found.ratio.high
    assert found.sentence == f"weekends {found.ratio.mean:.2g}x weekdays (p {found.p:.2g})"
    used = weekend.factor(data)["aws", "r1"]
    assert found.ratio.mean < used < 0.75


def test_weekends_like_weekdays_are_no_pattern() -> None:
    """No difference gives the sentence with what would have shown, and a factor of one."""
    data = weeks(31, 98, 1.0)
    (found,) = weekend.weekends(data)
    assert found.state == "no pattern"
    assert found.sentence.startswith("no weekend effect found; one below 0.")
    assert weekend.factor(data) == {("aws", "r1"): 1.0}


def test_three_weekends_are_not_enough() -> None:
    """However clear they look, three weekends are not judged."""
    (found,) = weekend.weekends(weeks(32, 21, 0.1))
    assert found.state == "not enough"
    assert found.sentence.endswith("bursts, 3 weekends; need 30 and 4")


def test_the_weekend_test_keeps_its_size() -> None:
    """Of 200 histories of seven weeks without an effect and with uneven days, about 5 % have p below 0.05."""
    p = np.array([weekend.weekends(weeks(seed, 49, 1.0))[0].p for seed in range(200)])
    assert np.mean(p < 0.05) <= 0.09


def test_saturday_and_sunday_are_those_of_the_calendar() -> None:
    """4 October 2025 was a Saturday, 1 January 1970 a Thursday."""
    from outlast.daemon.rates.residuals import weekend_days

    assert weekend_days(20365, 3).tolist() == [True, True, False]
    assert weekend_days(0, 5).tolist() == [False, False, True, True, False]
