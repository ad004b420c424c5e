"""Every word that a study has for a pool or a pattern, reached from spells and said as it is fixed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outlast.daemon.advice.recommend import advise
from outlast.daemon.advice.values import Request
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.ages import curves
from outlast.daemon.rates.dispersion import burst_dispersion, burst_sizes, node_dispersion
from outlast.daemon.rates.gang import gang
from outlast.daemon.rates.pools import estimate
from outlast.daemon.rates.series import series_of
from outlast.daemon.rates.study import study
from outlast.daemon.rates.table import CAUSES, Columns, Observed, Origin, Table
from outlast.daemon.rates.tabulate import tabulate
from outlast.daemon.rates.trend import trends
from outlast.daemon.rates.values import PoolRate

DAY, HOUR = 86_400.0, 3600.0
MIDNIGHT = 20_724 * DAY  # 2026-09-28, a Monday, UTC


@dataclass(frozen=True)
class Stay:
    """One spell, times in hours from MIDNIGHT; lost unless said otherwise."""

    zone: str
    began: float
    ended: float
    cause: str = "interruption"
    hinted: bool = False
    origin: Origin = "held"


def table(stays: list[Stay], now_h: float) -> Table:
    """Tabulate spells, a node each, of ages that are not known."""
    keys = sorted({(Pool("aws", stay.zone[:2], stay.zone, "p5"), stay.origin) for stay in stays})
    zones = [(pool.zone, origin) for pool, origin in keys]
    columns = Columns(
        pools=tuple(pool for pool, _ in keys),
        origin=tuple(origin for _, origin in keys),
        pool=np.array([zones.index((stay.zone, stay.origin)) for stay in stays], dtype=np.int64),
        node=np.arange(len(stays)),
        began=np.array([MIDNIGHT + HOUR * stay.began for stay in stays]),
        ended=np.array([MIDNIGHT + HOUR * stay.ended for stay in stays]),
        cause=np.array([CAUSES.index(stay.cause) for stay in stays], dtype=np.int64),
        known=np.zeros(len(stays), dtype=np.bool_),
        hinted=np.array([stay.hinted for stay in stays], dtype=np.bool_),
    )
    return tabulate(columns, MIDNIGHT + HOUR * now_h)


def lives(zone: str, days: int, each_h: float = 12.0, lost: int | None = None) -> list[Stay]:
    """Stays end to end over some days; the first ``lost`` of them are taken, all if it is not given."""
    number = round(days * 24 / each_h)
    taken = number if lost is None else lost
    return [
        Stay(zone, i * each_h, (i + 1) * each_h, "interruption" if i < taken else "user-stop")
        for i in range(number)
    ]


def rated(stays: list[Stay], now_h: float, zone: str = "z1") -> PoolRate:
    """The rate of one zone as of an hour."""
    (found,) = (
        rate
        for rate in estimate(table(stays, now_h), MIDNIGHT + HOUR * now_h)
        if rate.pool.zone == zone and rate.origin == "held"
    )
    return found


# ---- the states of a pool


@pytest.mark.parametrize(
    ("stays", "now_h", "state", "because"),
    [
        (lives("z1", 6), 144, "ok", "12 bursts on 6 days"),
        (lives("z1", 5, 24.0), 120, "ok", "5 bursts on 5 days"),
        (lives("z1", 4), 96, "thin", "4 days seen, 5 needed to rank"),
        (lives("z1", 1), 24, "thin", "1 day seen, 5 needed to rank"),
        (lives("z1", 6, lost=4), 144, "thin", "4 bursts seen, 5 needed to rank"),
        (lives("z1", 6, lost=1), 144, "thin", "1 burst seen, 5 needed to rank"),
        (lives("z1", 6, lost=0), 144, "thin", "0 bursts seen, 5 needed to rank"),
        (lives("z1", 1, lost=0)[:1], 12, "not enough", "12 h seen, need about 200 h"),
        ([Stay("z1", 0, 0.5)], 1, "not enough", "less than 1 h seen, need about 30 h"),
        (lives("z1", 6), 144 + 145, "stale", "the newest data are 6 days old"),
        (lives("z1", 6, lost=1), 144 + 24 * 30, "stale", "the newest data are 30 days old"),
    ],
)
def test_each_state_has_its_fixed_words(stays: list[Stay], now_h: float, state: str, because: str) -> None:
    """What a pool's history is good for, and the sentence that says why, at the bounds of each state."""
    found = rated(stays, now_h)
    assert (found.state, found.because) == (state, because)


def test_data_of_two_half_lives_are_not_stale_yet() -> None:
    """Six days after the newest spell a rate still stands; an hour later it is too old for now."""
    assert rated(lives("z1", 6), 144 + 144).state == "ok"
    assert rated(lives("z1", 6), 144 + 145).state == "stale"


def test_no_losses_are_an_answer_where_the_days_bound_them() -> None:
    """Without a loss a pool is ok beside one that loses, if its bound is within ten times."""
    beside = lives("z2", 30, each_h=24.0)
    calm = rated([*beside, *lives("z1", 30, lost=0)], 720)
    assert (calm.state, calm.because) == ("ok", "0 bursts on 30 days")
    others = [*lives("z2", 200, each_h=240.0), *lives("z3", 200, each_h=1.0)]
    vague = rated([*others, Stay("z1", 4770, 4800, "user-stop")], 4800)
    assert vague.state == "not enough", "a bound above ten times the calmest pool's rate ranks nothing"
    assert vague.because == "30 h seen, need about 200 h"
    assert vague.typical_stay_h is None


def test_clumped_days_are_named() -> None:
    """Bursts that all fall on one day of ten say so, as many times as they are over-dispersed."""
    stays = [
        *(Stay("z1", 24.0 * day, 24.0 * (day + 1), "user-stop") for day in range(10)),
        *(Stay("z1", 24.0, 25.0 + hour) for hour in range(10)),
    ]
    found = rated(stays, 240)
    assert found.state == "ok"
    assert re.fullmatch(r"10 bursts on 10 days, clumped x\d+", found.because)


def test_a_pool_never_at_risk_borrows_or_is_left_out() -> None:
    """A node found gone of an unknown stay: no rate by itself, beside others theirs, and not enough."""
    gone = Stay("z1", 5, 5, "silent-loss")
    assert estimate(table([gone], 24), MIDNIGHT + DAY) == ()
    found = rated([gone, *lives("z2", 6)], 144)
    assert (found.state, found.because[:10]) == ("not enough", "0 h seen, ")
    assert (found.losses, found.exposure_h, found.spells) == (1, 0.0, 0)


# ---- whole studies


def test_an_empty_history_gives_an_empty_study() -> None:
    """Nothing seen: no pools, no patterns, nothing to be asked, and advice that says so."""
    nothing = Observed(table([], 24), notes=("a note",))
    found = study(nothing, MIDNIGHT)
    assert (found.pools, found.ages, found.weekends, found.patterns, found.trends) == ((), (), (), (), ())
    assert found.coverage is None
    assert found.notes == ("a note",)
    assert found.begins == found.ends
    advice = advise(found, nothing, Request(hours=10), (), (), MIDNIGHT)
    assert advice.verdict == "not enough data"
    assert advice.rows == ()


def test_one_day_is_studied_and_nothing_is_claimed_of_it() -> None:
    """A day's history: a thin rate, one week, no pattern, no weekend, no back-test, advice for nothing."""
    seen = Observed(table(lives("z1", 1, each_h=4.0), 24))
    found = study(seen, MIDNIGHT + DAY)
    (rate,) = found.pools
    assert (rate.state, rate.losses, round(rate.exposure_h, 6)) == ("thin", 6, 24.0)
    assert rate.hazard.mean == pytest.approx(6.5 / 24)
    (pattern,), (weekend,) = found.patterns, found.weekends
    assert (pattern.state, weekend.state) == ("not enough", "not enough")
    assert pattern.sentence == "not enough data: 6 bursts on 1 day; need 30 on 14"
    assert weekend.sentence == "not enough data: 6 bursts, 0 weekends; need 30 and 4"
    assert pattern.p is pattern.detectable is None
    assert found.coverage is None
    (trend,) = found.trends
    assert [(week.begins, week.losses) for week in trend.weeks] == [(MIDNIGHT, 6)]
    assert (found.begins, found.ends) == (MIDNIGHT, MIDNIGHT + DAY)
    advice = advise(found, seen, Request(hours=10), (), (), MIDNIGHT + DAY)
    assert advice.verdict == "not enough data"


@pytest.mark.parametrize("peaked", [True, False])
def test_a_daily_pattern_is_said_or_what_would_have_shown(peaked: bool) -> None:
    """Losses at one hour of each of 40 days are a pattern; at hours that turn with the days they are none."""
    stays = []
    for day in range(40):
        hour = 15.5 if peaked else (day * 7) % 24 + 0.5
        stays += [Stay("z1", 24.0 * day, 24.0 * day + hour), Stay("z1", 24.0 * day, 24.0 * day + 24, "host")]
    (found,) = study(Observed(table(stays, 960)), MIDNIGHT + 40 * DAY).patterns
    if peaked:
        assert found.state == "pattern"
        said = (
            r"daily pattern: peaks at 1[56] UTC, \d+\.\dx the mean"
            r" \(p [\d.e-]+, held out-of-sample in \d of 8 blocks\)"
        )
        assert len(found.profile) == 24
    else:
        assert found.state == "no pattern"
        said = r"no daily pattern found; one stronger than \d+\.\dx would have shown"
        assert found.profile == ()
    assert re.fullmatch(said, found.sentence)


@pytest.mark.parametrize(("second", "verdict"), [(12.0, "tie"), (120.0, "run")])
def test_pools_that_cannot_be_told_apart_are_a_tie(second: float, verdict: str) -> None:
    """Two zones of one rate are a tie, in fixed words; one that is ten times calmer is advised."""
    seen = Observed(table([*lives("z1", 60), *lives("z2", 60, each_h=second)], 60 * 24))
    now = MIDNIGHT + 60 * DAY
    advice = advise(study(seen, now), seen, Request(hours=10), (), (), now)
    assert advice.verdict == verdict
    if verdict == "tie":
        assert re.fullmatch(
            r"A tie between aws z[12] p5, aws z[12] p5: none is the cheapest with 80% confidence\.",
            advice.sentence,
        )
        assert {pool.zone for pool in advice.order} == {"z1", "z2"}
    else:
        assert advice.order[0].zone == "z2"


# ---- figures


def test_phi_of_counts_worked_out_by_hand() -> None:
    """Bursts of 0, 4, 0, 4 a day at even exposure: 4 x (2^2 / 2) / 3; of 2, 2, 2, 2 none more than chance."""
    uneven, even = (
        [stay for day, lost in enumerate(counts) for stay in parts(day, lost)]
        for counts in ([0, 4, 0, 4], [2, 2, 2, 2])
    )
    assert burst_dispersion(series_of(table(uneven, 96))).tolist() == pytest.approx([8 / 3])
    assert burst_dispersion(series_of(table(even, 96))).tolist() == [1.0]


def parts(day: int, lost: int) -> list[Stay]:
    """One day in as many parts as nodes are lost, one at least, each of them lost at its end."""
    each = 24.0 / max(lost, 1)
    cause = "interruption" if lost else "user-stop"
    return [
        Stay("z1", 24.0 * day + i * each, 24.0 * day + (i + 1) * each, cause) for i in range(max(lost, 1))
    ]


def test_phi_of_nodes_counts_the_size_of_bursts() -> None:
    """Bursts of 1 and 3 nodes have mean 2 and variance 1: phi is 1/2 + 2 times the bursts' own."""
    stays = [Stay("z1", 0, 10), *(Stay("z1", 0, 20) for _ in range(3))]
    mean, variance, largest = burst_sizes(table(stays, 24))
    assert (mean.tolist(), variance.tolist(), largest.tolist()) == ([2.0], [1.0], [3])
    assert node_dispersion(np.array([1.5]), mean, variance).tolist() == pytest.approx([0.5 + 1.5 * 2])


@pytest.mark.parametrize("left", [0, 1, 5])
def test_stays_left_on_a_hint_bracket_the_rate(left: int) -> None:
    """A stay left after a hint may have been a loss: the rate lies between none of them being one and all."""
    gone = [
        replace(stay, cause="failover", hinted=i < left) if i < 6 else stay
        for i, stay in enumerate(lives("z1", 10))
    ]
    as_lost = [replace(stay, cause="interruption") if stay.hinted else stay for stay in gone]
    found, whole = rated(gone, 240), rated(as_lost, 240)
    assert found.phi == whole.phi == 1.0
    assert found.as_left == pytest.approx(whole.hazard.mean), "all of them are losses at worst"
    assert found.as_left == pytest.approx(found.hazard.mean + left / found.phi / found.rate_h)
    assert found.as_left >= found.hazard.mean
    assert (found.as_left > found.hazard.mean) == (left > 0)
    assert found.causes.get("failover", 0) == 6


def test_a_stay_that_was_hinted_and_lost_is_in_no_bracket() -> None:
    """A loss that a hint came before is a loss already."""
    stays = [replace(stay, hinted=True) for stay in lives("z1", 10)]
    found = rated(stays, 240)
    assert found.as_left == found.hazard.mean


# ---- a job on several nodes


FLEETS = st.lists(st.lists(st.integers(1, 8), max_size=4), min_size=2, max_size=20)


def fleet(days: list[list[int]], nodes: int = 8) -> Table:
    """So many nodes held for ever; each day's bursts take so many of them, which are back at once."""
    stays = []
    last = [0.0] * nodes
    for day, bursts in enumerate(days):
        for number, size in enumerate(bursts):
            hour = 24.0 * day + 5 * (number + 1)
            for node in range(size):
                stays.append(Stay("z1", last[node], hour))
                last[node] = hour
    end = 24.0 * len(days)
    stays += [Stay("z1", began, end, "running") for began in last]
    return table(stays, end)


@given(FLEETS)
def test_a_job_on_more_nodes_is_hit_more_often_but_never_as_often_as_if_alone(days: list[list[int]]) -> None:
    """With eight nodes always up: 1 to 8 nodes are hit at least as often each, at most nodes times one."""
    found = fleet(days)
    rates = [gang(found, 0, nodes) or 0.0 for nodes in range(1, 9)]
    for nodes, (less, more) in enumerate(pairwise(rates), 2):
        assert more >= less - 1e-12
        assert more <= nodes * rates[0] + 1e-12
    hours = 24.0 * len(days)
    assert rates[0] == pytest.approx(sum(map(sum, days)) / (8 * hours)), "a node is hit as nodes are lost"
    assert rates[7] == pytest.approx(sum(map(len, days)) / hours), "all nodes are hit by every burst"


@given(st.lists(st.integers(0, 3), min_size=2, max_size=20))
def test_a_pool_of_one_node_is_hit_by_all_its_bursts(losses: list[int]) -> None:
    """One node's rate is the pool's bursts per hour at risk, and as many nodes as one wants have it too."""
    assume(any(losses))
    found = fleet([[1] * number for number in losses], nodes=1)
    expected = sum(losses) / (24.0 * len(losses))
    assert gang(found, 0, 1) == pytest.approx(expected)
    assert gang(found, 0, 16) == pytest.approx(expected)


def test_a_gang_of_a_pool_never_at_risk_has_no_rate() -> None:
    """A node found gone is no time at risk to divide by."""
    assert gang(table([Stay("z1", 5, 5, "silent-loss")], 24), 0, 4) is None


# ---- held nodes and probes


def test_probes_and_held_nodes_of_one_pool_are_kept_apart() -> None:
    """Launch probes that fail often say nothing of held nodes: two rates and two trends."""
    held = lives("z1", 14, each_h=24.0)
    probes = [replace(stay, origin="probe") for stay in lives("z1", 14, each_h=2.0)]
    found = table([*held, *probes], 14 * 24)
    now = MIDNIGHT + 14 * DAY
    rates = estimate(found, now)
    assert [(rate.origin, rate.losses) for rate in rates] == [("held", 14), ("probe", 168)]
    one, two = trends(found, rates)
    assert one.pool == two.pool
    assert (one.origin, two.origin) == ("held", "probe")
    assert [week.losses for week in one.weeks] == [7, 7]
    assert [week.losses for week in two.weeks] == [84, 84]
    for trend, rate in ((one, rates[0]), (two, rates[1])):
        assert all(week.hazard.low < rate.hazard.mean < week.hazard.high for week in trend.weeks)
        assert [week.begins for week in trend.weeks] == [MIDNIGHT, MIDNIGHT + 7 * DAY]
    assert curves(found) == (), "no age is known of any of them"
