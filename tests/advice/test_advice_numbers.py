"""Published and computed answers, to the digits given."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outlast.daemon.advice.bids import curve
from outlast.daemon.advice.deadline import with_posterior, with_rate, with_waits
from outlast.daemon.advice.goodput import Life, billed, break_even, optimum, wall
from outlast.daemon.advice.interval import CAP_S, choose, daly, steps, young
from outlast.daemon.history.rows import Pool

POOL = Pool("vast", "US", "1", "8x")


@pytest.mark.parametrize(
    ("stall", "mtbf", "first", "second", "best"),
    [
        (30, 36_000, 1469.694, 1449.762, 1449.762),
        (30, 7_200, 657.267, 637.419, 637.421),
        (30, 3_600, 464.758, 444.973, 444.977),
        (5, 36_000, 600.000, 596.671, 596.671),
        (120, 3_600, 929.516, 851.237, 851.297),
        (300, 1_800, 1039.230, 848.853, 849.615),
    ],
)
def test_intervals(stall: float, mtbf: float, first: float, second: float, best: float) -> None:
    """Young, Daly and the exact optimum of Daly's model, seconds."""
    assert young(stall, mtbf) == pytest.approx(first, abs=5e-4)
    assert daly(stall, mtbf) == pytest.approx(second, abs=5e-4)
    assert optimum(stall, mtbf) == pytest.approx(best, abs=5e-4)


@pytest.mark.parametrize(
    ("mtbf", "minutes", "published", "digits"),
    [(86_400, 116.69, 117, 0), (21_600, 56.71, 57, 0), (900, 9.14, 9.1, 1)],
)
def test_daly_as_published(mtbf: float, minutes: float, published: float, digits: int) -> None:
    """The three figures of the paper, a checkpoint of five minutes."""
    found = daly(300, mtbf) / 60
    assert found == pytest.approx(minutes, abs=5e-3)
    assert round(found, digits) == published


def test_checkpoints_dearer_than_the_time_between_interruptions() -> None:
    """Then the interval is that time."""
    assert daly(500, 200) == 200


@pytest.mark.parametrize(("share", "interval"), [(0.0, 637), (0.5, 910), (0.9, 2058)])
def test_interval_with_notice(share: float, interval: float) -> None:
    """Only the interruptions that no flush catches count."""
    assert choose(30, 7200, share) == pytest.approx(interval, abs=0.6)


def test_interval_is_capped() -> None:
    """A share that tends to 1 hits the cap, since it was measured on few events."""
    assert choose(30, 7200, 0.99, cap_s=1e9) == pytest.approx(6553, abs=0.5)
    assert choose(30, 7200, 0.99) == choose(30, 7200, 1.0) == choose(30, math.inf) == CAP_S


@pytest.mark.parametrize("wrong", [(0, 1, 0), (1, 0, 0), (1, 1, 1.1), (1, 1, -0.1), (math.nan, 1, 0)])
def test_nonsense_has_no_interval(wrong: tuple[float, float, float]) -> None:
    """Nothing is computed from what cannot be."""
    with pytest.raises(ValueError, match="above 0"):
        choose(*wrong)


def test_steps() -> None:
    """Seconds become steps; a step longer than the interval is one."""
    assert (steps(600, 1.0), steps(600, 7.0), steps(10, 60.0)) == (600, 86, 1)


@pytest.mark.parametrize(
    ("life", "clock", "paid"),
    [
        (Life(1449.762, 30, 36_000, 300), 0.951764, 0.951764),
        (Life(1449.762, 30, 36_000, 300, 600, 0.9, 20), 0.953608, 0.969494),
        (Life(600, 30, 7_200, 300, 600, 0.5, 20), 0.824919, 0.893571),
        (Life(1200, 30, 7_200, 300, 600, 1.0, 20), 0.863438, 0.935200),
        (Life(637.4194, 30, 7_200, 300), 0.874272, 0.874272),
        (Life(math.inf, 30, 36_000, 300, 0, 1.0, 20), 0.991155, 0.991155),
    ],
)
def test_goodput(life: Life, clock: float, paid: float) -> None:
    """The share of the clock and of the bill that is useful."""
    assert float(wall(life)) == pytest.approx(clock, abs=5e-7)
    assert float(billed(life)) == pytest.approx(paid, abs=5e-7)


def test_no_checkpoint_and_a_sure_flush() -> None:
    """Then only the flush and the restart are lost."""
    life = Life(math.inf, 30, 36_000, 300, 0, 1.0, 20)
    assert float(billed(life)) == pytest.approx(1 / (math.exp(300 / 36_000) + 20 / 36_000), rel=1e-12)


def test_goodput_agrees_with_a_simulation() -> None:
    """Lives drawn at random, flushes succeeding by chance, say the same."""
    rng = np.random.default_rng(7)
    life = Life(600, 30, 7_200, 300, 600, 0.5, 20)
    useful = clock = 0.0
    for lived in rng.exponential(7_200, 60_000):
        clock += lived + 600
        if lived <= 300:
            continue
        cycles, rest = divmod(lived - 300, 630)
        useful += cycles * 600
        if rng.random() < 0.5:
            useful += min(rest, 600)
            clock += 20
    assert useful / clock == pytest.approx(float(wall(life)), abs=0.004)


@pytest.mark.parametrize(
    ("step_s", "kept", "best"),
    [
        (1, (0.731, 0.762, 0.768), (0.874, 0.952, 0.980)),
        (5, (0.872, 0.929, 0.940), (0.874, 0.952, 0.980)),
        (20, (0.818, 0.950, 0.978), (0.874, 0.952, 0.980)),
        (60, (0.610, 0.906, 0.977), (0.874, 0.952, 0.980)),
    ],
)
def test_every_hundred_steps_is_a_unit_error(
    step_s: float, kept: tuple[float, ...], best: tuple[float, ...]
) -> None:
    """What a fixed hundred steps keep of the paid time, against the best interval in seconds."""
    for hours, share, most in zip((2, 10, 50), kept, best, strict=True):
        mtbf = hours * 3600.0
        assert float(billed(Life(100 * step_s, 30, mtbf, 300))) == pytest.approx(share, abs=6e-4)
        assert float(billed(Life(optimum(30, mtbf), 30, mtbf, 300))) == pytest.approx(most, abs=6e-4)


@pytest.mark.parametrize(("ratio", "minutes"), [(0.25, 5.4), (0.40, 8.9)])
def test_where_spot_stops_paying(ratio: float, minutes: float) -> None:
    """Only where interruptions are minutes apart."""
    assert break_even(ratio, 30, 300) / 60 == pytest.approx(minutes, abs=0.05)


@pytest.mark.parametrize(
    ("price", "mtbf_h", "plain", "flushed"),
    [
        (0.947, 10.5, (0.9531, 0.994), (0.9796, 0.967)),
        (0.930, 5.7, (0.9332, 0.997), (0.9687, 0.960)),
        (1.265, 2.3, (0.8846, 1.430), (0.9387, 1.348)),
        (1.654, 0.72, (0.7620, 2.171), (0.8490, 1.948)),
    ],
)
def test_cost_of_a_useful_hour(
    price: float, mtbf_h: float, plain: tuple[float, float], flushed: tuple[float, float]
) -> None:
    """Four zones as measured; their mean times are given to two digits, which bounds the agreement."""
    mtbf = mtbf_h * 3600
    for share, (good, cost) in ((0.0, plain), (0.9, flushed)):
        life = Life(choose(30, mtbf, share, 1e9), 30, mtbf, 300, 0, share, 20)
        assert float(billed(life)) == pytest.approx(good, abs=1.5e-3)
        assert price / float(billed(life)) == pytest.approx(cost, abs=5e-3)


def test_done_by_the_deadline() -> None:
    """Not knowing the rate exactly costs six points: the second figure is the one to print."""
    assert with_rate(24, 26, 0, 0.25, 0.2) == pytest.approx(0.944183, abs=5e-7)
    assert with_posterior(24, 26, 0, 0.25, 5, 25) == pytest.approx(0.881959, abs=5e-7)
    assert with_rate(10, 12, 0.02, 0.2, 0.5) == pytest.approx(0.964399, abs=5e-7)
    assert with_posterior(10, 12, 0.02, 0.2, 5.5, 11) == pytest.approx(0.908100, abs=5e-7)


def test_late_without_any_interruption() -> None:
    """A deadline before the work could be done is not met; one with no cost of an interruption is."""
    assert with_posterior(10, 9.9, 0, 0.2, 5, 25) == with_rate(10, 9.9, 0, 0.2, 0.1) == 0.0
    assert with_rate(10, 10, 0, 0.0, 0.1) == pytest.approx(1.0)


def test_waits_count_where_enough_were_seen() -> None:
    """Ten observed waits are drawn from; with fewer the answer is that they are not included."""
    gamma = (5.0, 25.0)
    assert with_waits(24, 26, 0, 0.25, gamma, [0.0] * 9) is None
    without = with_waits(24, 26, 0, 0.25, gamma, [0.0] * 10)
    late = with_waits(24, 26, 0, 0.25, gamma, [0.5] * 10)
    assert without is not None
    assert late is not None
    assert without == pytest.approx(0.881959, abs=0.02)
    assert late < without


@pytest.mark.parametrize(
    ("stall", "restart", "costs", "best"),
    [
        (30, 300, (0.4616, 0.4796, 0.5297, 0.6266, 0.8300), 0.40),
        (60, 1200, (0.5519, 0.5247, 0.5581, 0.6492, 0.8538), 0.44),
    ],
)
def test_the_whole_curve_of_bids(stall: float, restart: float, costs: tuple[float, ...], best: float) -> None:
    """Just over the minimum, a little more where restarts are dear."""
    outbid = [(1.0, 0.5), (1.1, 0.2), (1.25, 0.08), (1.5, 0.03), (2.0, 0.01)]
    found = curve(POOL, 0.40, 0.05, outbid, Life(0, stall, 0, restart))
    assert [point.per_useful_hour for point in found.points] == pytest.approx(costs, abs=6e-5)
    assert found.best.bid_usd_h == pytest.approx(best)
