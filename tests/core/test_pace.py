"""The interval between checkpoints: Daly's, with the stall, the rate and the transfer that were measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.core.pace import FIRST_S, LEAST_S, MOST_S, hazard, interval, span


@pytest.mark.parametrize(
    ("stall_s", "mtbf_h", "seconds"),
    [(30.0, 10.0, 1449.762), (30.0, 2.0, 637.419), (5.0, 10.0, 596.671), (120.0, 1.0, 851.237)],
)
def test_it_is_dalys_within_the_bounds(stall_s: float, mtbf_h: float, seconds: float) -> None:
    """Known values of Daly's formula come through where no bound is near."""
    pace = interval(stall_s, 1 / mtbf_h, ship_s=60.0)
    assert pace.seconds == pytest.approx(seconds, abs=0.001)
    assert pace.sentence == (
        f"every {span(seconds)}: a checkpoint holds training up for {span(stall_s)}, "
        f"an interruption is expected once in {span(mtbf_h * 3600)}"
    )


@pytest.mark.parametrize(
    ("stall_s", "rate", "ship_s", "seconds", "why"),
    [
        (5.0, 0.1, 784.0, 784.0, "Daly's 9.9 min would be less than one takes to ship"),
        (0.02, 0.1, 1.0, LEAST_S, "never below 60 s"),
        (0.0, 0.1, None, LEAST_S, "never below 60 s"),
        (120.0, 0.0001, 80.0, MOST_S, "never above 2.0 h"),
        (120.0, 0.0, None, MOST_S, "an interruption is expected never; never above 2.0 h"),
        (5.0, 0.1, 9000.0, 9000.0, "less than one takes to ship"),
        (None, 0.1, None, FIRST_S, "every 5.0 min until a checkpoint was measured"),
        (None, 0.1, 784.0, 784.0, "every 13.1 min until a checkpoint was measured"),
        (30.0, None, None, 1449.762, "once in 10.0 h (assumed)"),
    ],
)
def test_the_bounds_and_what_is_not_known(
    stall_s: float | None, rate: float | None, ship_s: float | None, seconds: float, why: str
) -> None:
    """Never below what a checkpoint takes to ship, nor a minute; never above two hours; and it says so."""
    pace = interval(stall_s, rate, ship_s)
    assert pace.seconds == pytest.approx(seconds, abs=0.001)
    assert pace.sentence.endswith(why) or why in pace.sentence


def test_the_record_outweighs_the_prior() -> None:
    """No record: one in ten hours. A long one: its own rate."""
    assert hazard(0, 0.0) == pytest.approx(0.1)
    assert hazard(0, 90.0) == pytest.approx(0.01)
    assert hazard(500, 1000.0) == pytest.approx(0.5, rel=0.02)


STALLS = st.floats(0.0, 300.0)
RATES = st.floats(0.0, 5.0)
SHIPS = st.none() | st.floats(0.0, 20_000.0)


@given(st.none() | STALLS, st.none() | RATES, SHIPS)
def test_it_stays_within_its_bounds(stall_s: float | None, rate: float | None, ship_s: float | None) -> None:
    """Whatever was measured: at least a minute and the transfer, at most two hours unless the transfer
    takes longer; and the sentence names the seconds."""
    pace = interval(stall_s, rate, ship_s)
    assert max(LEAST_S, ship_s or 0.0) <= pace.seconds <= max(MOST_S, ship_s or 0.0)
    assert pace.sentence.startswith(f"every {span(pace.seconds)}")


@given(STALLS, RATES, RATES, SHIPS)
def test_a_pool_that_is_taken_more_often_is_saved_more_often(
    stall_s: float, one: float, other: float, ship_s: float | None
) -> None:
    """The higher rate never gives the longer interval."""
    calm, rough = sorted((one, other))
    assert interval(stall_s, rough, ship_s).seconds <= interval(stall_s, calm, ship_s).seconds + 1e-6


@given(STALLS, RATES, st.floats(0.0, 9000.0), st.floats(0.0, 9000.0))
def test_a_slower_link_is_never_given_more_to_do(
    stall_s: float, rate: float, one: float, other: float
) -> None:
    """What takes longer to ship is never shipped more often."""
    fast, slow = sorted((one, other))
    assert interval(stall_s, rate, fast).seconds <= interval(stall_s, rate, slow).seconds
