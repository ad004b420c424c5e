"""Figures, times and rows of blocks as a reader sees them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import Range, Study
from outlast.daemon.report import sparks, times, words

BERLIN = ZoneInfo("Europe/Berlin")
Make = Callable[..., tuple[Study, Observed]]


@pytest.mark.parametrize(
    ("value", "shown"), [(1234.6, "1,235"), (10.2, "10"), (4.62, "4.6"), (0.0312, "0.031"), (0.0, "0")]
)
def test_figures_have_two_significant_digits(value: float, shown: str) -> None:
    """Neither false precision nor zeros in the place of small rates."""
    assert words.figure(value) == shown


def test_a_rate_is_shown_with_its_range_per_hundred_hours() -> None:
    """The three figures have the decimals of the mean."""
    assert words.spread(Range(0.0949, 0.062, 0.141)) == "9.5 (6.2-14.1)"
    assert words.spread(Range(1.4, 1.16, 1.64)) == "140 (116-164)"


def test_without_a_loss_only_an_upper_bound_is_told(history: Make) -> None:
    """A mean of a prior is nobody's rate."""
    study, _ = history()
    assert words.rate(study.pools[-1]) == "0-16"
    assert words.rate(replace(study.pools[-1], exposure_h=0.0)) == "?"


def test_states_are_told_in_the_fixed_words(history: Make) -> None:
    """The sentence follows the state and does not repeat it."""
    study, _ = history()
    assert words.state(study.pools[0]) == "ok, clumped x3"
    assert words.state(replace(study.pools[0], phi=1.2)) == "ok"
    assert words.state(study.pools[-1]) == "not enough: 12 h seen, need about 100"
    assert words.state(replace(study.pools[-1], because="not enough: 12 h")) == "not enough: 12 h"


def test_a_zone_id_is_shown_with_its_region_and_a_zone_name_is_not() -> None:
    """``use1-az4`` alone would not say where it is."""
    assert words.place(Pool("aws", "us-east-1", "use1-az4", "t")) == "us-east-1 use1-az4"
    assert words.place(Pool("aws", "us-east-1", "us-east-1a", "t")) == "us-east-1a"
    assert words.place(Pool("runpod", "EU-RO-1", "", "t")) == "EU-RO-1"


def test_what_pools_share_is_said_once(history: Make) -> None:
    """Provider and type are in the heading if they are all the same, else in each name."""
    one, other = Pool("aws", "r", "rA", "t"), Pool("gcp", "r", "rB", "t")
    assert words.common([one, one]) == "AWS t"
    assert words.names([one, other]) == {one: "AWS rA", other: "GCP rB"}


def test_instants_are_told_in_utc_with_the_readers_clock_beside() -> None:
    """Also on another day, and in summer time."""
    winter = dt.datetime(2026, 1, 31, 23, 30, tzinfo=dt.UTC).timestamp()
    assert times.stamp(winter, BERLIN) == "2026-01-31 23:30 UTC (02-01 00:30 CET)"
    assert times.stamp(winter + 86_400 * 180, BERLIN).endswith("(07-31 01:30 CEST)")
    assert times.stamp(winter, ZoneInfo("UTC")) == "2026-01-31 23:30 UTC"
    assert times.clock(16, ZoneInfo("Asia/Kolkata"), winter) == "21:30"
    assert times.abbreviation(ZoneInfo("Asia/Kathmandu"), winter) == "+0545"


def test_a_period_names_the_year_once() -> None:
    """Unless it ends in another."""
    begins = dt.datetime(2023, 2, 15, tzinfo=dt.UTC).timestamp()
    assert times.period(begins, begins + 46 * 86_400) == "2023-02-15 to 04-01 (46 days, UTC)"
    assert times.period(begins, begins + 366 * 86_400) == "2023-02-15 to 2024-02-15 (366 days, UTC)"


def test_blocks_have_a_fixed_scale_and_leave_out_what_was_not_seen() -> None:
    """Half of the mean is the lowest block, twice the highest; noise does not fill the row."""
    exposure = np.full(24, 100.0)
    losses = np.full(24, 10.0)
    assert sparks.sparkline(exposure, losses) == "▅" * 24
    losses[:2] = (4.0, 40.0)
    exposure[23] = 0.0
    line = sparks.sparkline(exposure, losses)
    assert (line[0], line[1], line[23], len(line)) == ("▁", "█", "·", 24)
    assert sparks.sparkline(exposure, np.zeros(24)) == ""
    assert sparks.in_ascii("▁█·…ü") == "_# ~?"
