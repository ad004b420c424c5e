"""The table against a slow and plain count of the same spells, and what must not change it."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.series import series_of
from outlast.daemon.rates.table import CAUSES, LOST, UNKNOWN_AGE, Columns, Counts, Floats, Table
from outlast.daemon.rates.tabulate import MOST_HOURS, tabulate

BEGIN = 1_790_000_400  # 2026-09-21 14:20 UTC, twenty minutes into an hour
NOW = BEGIN + 10 * 86_400
POOLS = tuple(Pool("aws", "us-east-1", f"use1-az{zone}", "p5.48xlarge") for zone in (1, 2, 3))
EDGES = (0, 900, 3600, 14_400, 43_200, 10**12)  # bounds of the age bands, seconds


@dataclass(frozen=True)
class Stay:
    """One row of the columns. Times are whole seconds, so that the count is exact."""

    pool: int
    node: int
    began: int
    ended: int
    cause: str
    known: bool = True
    hinted: bool = False

    @property
    def lost(self) -> bool:
        """Whether the provider took the node."""
        return self.cause in LOST


def columns(stays: list[Stay]) -> Columns:
    """The same stays as columns, in the order given."""
    return Columns(
        pools=POOLS,
        pool=np.array([stay.pool for stay in stays], dtype=np.int64),
        node=np.array([stay.node for stay in stays], dtype=np.int64),
        began=np.array([stay.began for stay in stays], dtype=np.float64),
        ended=np.array([stay.ended for stay in stays], dtype=np.float64),
        cause=np.array([CAUSES.index(stay.cause) for stay in stays], dtype=np.int8),
        known=np.array([stay.known for stay in stays], dtype=np.bool_),
        hinted=np.array([stay.hinted for stay in stays], dtype=np.bool_),
    )


def tabled(stays: list[Stay]) -> Table:
    """Tabulate stays as of NOW."""
    return tabulate(columns(stays), float(NOW))


# Near each other, at one instant and on the hour often enough for bursts, ties and bounds to be met.
ENDS = st.one_of(
    st.sampled_from([BEGIN + 90_000, BEGIN + 90_180, BEGIN + 90_361]),
    st.integers(BEGIN + 90_000, BEGIN + 91_200),
    st.integers(0, 48).map(lambda hour: BEGIN + 2400 + 3600 * hour),
    st.integers(BEGIN - 86_400, NOW + 86_400),
)
LENGTHS = st.one_of(
    st.sampled_from([0, 1, *EDGES[1:5], 43_201]), st.integers(0, 600), st.integers(0, 3 * 86_400)
)
STAYS = st.lists(
    st.builds(
        lambda pool, node, ended, length, *rest: Stay(pool, node, ended - length, ended, *rest),
        st.integers(0, 2),
        st.integers(0, 5),
        ENDS,
        LENGTHS,
        st.sampled_from(LOST) | st.sampled_from(CAUSES),
        st.booleans(),
        st.booleans(),
    ),
    max_size=25,
)

Cells = dict[tuple[int, int, int], int]  # pool, band, hour since the epoch


def by_hand(stays: list[Stay]) -> tuple[Cells, Cells, Cells, list[tuple[int, int, int]]]:
    """Loop over stays, hours and bands: exposure (seconds), losses, bursts; each burst's pool, time, size."""
    seen = [
        stay if stay.ended <= NOW else replace(stay, ended=NOW, cause="running")
        for stay in stays
        if stay.began <= NOW
    ]
    exposure: Counter[tuple[int, int, int]] = Counter()
    losses: Counter[tuple[int, int, int]] = Counter()
    bursts: Counter[tuple[int, int, int]] = Counter()
    taken = []
    for stay in seen:
        for hour in range(stay.began // 3600, stay.ended // 3600 + 1):
            low, high = max(stay.began, 3600 * hour), min(stay.ended, 3600 * (hour + 1))
            for band, (young, old) in enumerate(pairwise(EDGES)):
                seconds = min(high, stay.began + old) - max(low, stay.began + young)
                if seconds > 0:
                    exposure[stay.pool, band if stay.known else UNKNOWN_AGE, hour] += seconds
        if stay.lost:
            taken.append((stay.pool, stay.ended, band_at_end(stay)))
    strokes: list[tuple[int, int, int]] = []
    before: tuple[int, int] | None = None
    for pool, at, band in sorted(taken):
        losses[pool, band, (at - 1) // 3600] += 1
        if before is None or before[0] != pool or at - before[1] > 180:
            bursts[pool, band, (at - 1) // 3600] += 1
            strokes.append((pool, at, 0))
        strokes[-1] = (*strokes[-1][:2], strokes[-1][2] + 1)
        before = pool, at
    return exposure, losses, bursts, strokes


def band_at_end(stay: Stay) -> int:
    """The band in which the last second of a stay lies; the first for one of no length."""
    length = stay.ended - stay.began
    if not stay.known:
        return UNKNOWN_AGE
    return max(0, sum(length > edge for edge in EDGES) - 1)


def cells(table: Table, cube: Floats | Counts) -> Cells:
    """What is not nought of a cube, by pool, band and hour since the epoch."""
    found = zip(np.argwhere(cube), cube[cube != 0], strict=True)
    return {(int(p), int(b), int(h) + table.first_hour): int(value) for (p, b, h), value in found}


def strokes(table: Table) -> list[tuple[int, float, int]]:
    """Each burst's pool, time and size."""
    parts = (table.burst_pool.tolist(), table.burst_at.tolist(), table.burst_size.tolist())
    return list(zip(*parts, strict=True))


def same(one: Table, other: Table) -> None:
    """Assert that two tables say the same."""
    assert (one.first_hour, one.pools, one.origin) == (other.first_hour, other.pools, other.origin)
    np.testing.assert_allclose(one.exposure, other.exposure, atol=1e-9)
    for name in ("losses", "bursts", "spells", "nodes", "causes", "left_on_hint"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert strokes(one) == strokes(other)


# ---- the count


@given(STAYS)
def test_the_table_is_what_counting_by_hand_gives(stays: list[Stay]) -> None:
    """Exposure, losses and bursts of every pool, band and hour are those of a loop over every stay."""
    table = tabled(stays)
    exposure, losses, bursts, taken = by_hand(stays)
    assert cells(table, np.round(table.exposure * 3600)) == exposure
    assert np.abs(table.exposure * 3600 - np.round(table.exposure * 3600)).max(initial=0) < 1e-5
    assert cells(table, table.losses) == losses
    assert cells(table, table.bursts) == bursts
    assert strokes(table) == taken


@given(STAYS)
def test_what_is_counted_per_pool_is_what_a_loop_counts(stays: list[Stay]) -> None:
    """Spells, nodes, causes and stays left on a hint, each as of now."""
    table = tabled(stays)
    seen = [stay for stay in stays if stay.began <= NOW]
    over = [stay for stay in seen if stay.ended <= NOW]
    for pool in range(3):
        mine = [stay for stay in seen if stay.pool == pool]
        done = [stay for stay in over if stay.pool == pool]
        assert table.spells[pool] == sum(min(stay.ended, NOW) > stay.began for stay in mine)
        assert table.nodes[pool] == len({stay.node for stay in mine})
        assert table.left_on_hint[pool] == sum(stay.hinted and stay.cause == "failover" for stay in done)
        for number, cause in enumerate(CAUSES[1:], 1):
            assert table.causes[pool, number] == sum(stay.cause == cause for stay in done)
        assert table.causes[pool].sum() == len(mine)


@given(
    st.lists(
        st.tuples(
            st.floats(0, 400 * 86_400), st.floats(0, 40 * 86_400), st.sampled_from(CAUSES), st.booleans()
        ),
        max_size=20,
    )
)
def test_the_sum_of_exposure_is_that_of_the_lengths(rows: list[tuple[float, float, str, bool]]) -> None:
    """Whatever the fractions of a second, no time at risk is lost and none is made up."""
    first = 1_700_000_000.123
    made = replace(
        columns([Stay(0, n, 0, 0, cause, known) for n, (_, _, cause, known) in enumerate(rows)]),
        began=np.array([first + began for began, *_ in rows]),
        ended=np.array([first + began + length for began, length, *_ in rows]),
    )
    table = tabulate(made, first + 500 * 86_400)
    assert table.exposure.sum() == pytest.approx((made.ended - made.began).sum() / 3600, abs=1e-6)
    assert table.losses.sum() == sum(cause in LOST for _, _, cause, _ in rows)
    assert table.burst_size.sum() == table.losses.sum()
    assert table.bursts.sum() == len(table.burst_at)


# ---- what must not change it


@given(STAYS, st.data())
def test_the_order_of_the_rows_says_nothing(stays: list[Stay], data: st.DataObject) -> None:
    """Any order of the spells gives the same table, also where several are lost at one instant."""
    same(tabled(stays), tabled(data.draw(st.permutations(stays))))
    same(tabled(stays), tabled(stays[::-1]))


def test_of_nodes_lost_at_one_instant_the_youngest_begins_the_burst() -> None:
    """A burst has one first node in whatever order the rows come; a node of unknown age is never it."""
    end = BEGIN + 20 * 3600
    old, young = Stay(0, 1, BEGIN, end, "interruption"), Stay(0, 2, end - 600, end, "interruption")
    unknown = Stay(0, 3, BEGIN, end, "interruption", known=False)
    for order in ([old, young, unknown], [unknown, old, young], [young, unknown, old]):
        assert tabled(order).bursts.sum(axis=(0, 2)).tolist() == [1, 0, 0, 0, 0, 0]


@given(STAYS, st.floats(0, 1))
def test_a_stay_told_in_two_parts_counts_as_one(stays: list[Stay], share: float) -> None:
    """A first half that was cut off and a second of unknown age: exposure and losses by hour are the same."""
    halves = []
    for stay in stays:
        cut = stay.began + int(share * (stay.ended - stay.began))
        halves += [replace(stay, ended=cut, cause="running", hinted=False)]
        halves += [replace(stay, began=cut, known=False)]
    whole, parted = tabled(stays), tabled(halves)
    for cube in ("exposure", "losses", "bursts"):
        assert hourly(whole, cube) == pytest.approx(hourly(parted, cube), abs=1e-7)
    assert strokes(whole) == strokes(parted)


@given(STAYS, st.floats(0, 1))
def test_a_cut_takes_nothing_where_no_age_is_known(stays: list[Stay], share: float) -> None:
    """Both parts of unknown age like the whole: every cube is the same, band by band."""
    whole = [replace(stay, known=False) for stay in stays]
    halves = []
    for stay in whole:
        cut = stay.began + int(share * (stay.ended - stay.began))
        halves += [replace(stay, ended=cut, cause="running", hinted=False), replace(stay, began=cut)]
    one, two = tabled(whole), tabled(halves)
    for cube in ("losses", "bursts"):
        assert cells(one, getattr(one, cube)) == cells(two, getattr(two, cube))
    assert cells(one, np.round(one.exposure * 3600)) == cells(two, np.round(two.exposure * 3600))
    assert one.nodes.tolist() == two.nodes.tolist()


def hourly(table: Table, cube: str) -> dict[tuple[int, int], float]:
    """A cube over all ages: pool and hour since the epoch, without what is nought but for rounding."""
    sums = getattr(series_of(table), cube)
    return {
        (int(pool), int(hour) + table.first_hour): float(sums[pool, hour])
        for pool, hour in np.argwhere(sums > 1e-8)
    }


@given(STAYS, st.integers(2, 4))
def test_more_nodes_that_share_their_fate_make_no_more_bursts(stays: list[Stay], times: int) -> None:
    """Each node of a gang several times over: as many bursts, each so much larger, and so much more lost."""
    gang = [replace(stay, node=stay.node + 100 * copy) for stay in stays for copy in range(times)]
    one, many = tabled(stays), tabled(gang)
    np.testing.assert_array_equal(one.bursts, many.bursts)
    np.testing.assert_array_equal(one.losses * times, many.losses)
    np.testing.assert_allclose(one.exposure * times, many.exposure, atol=1e-8)
    assert [(pool, at, size * times) for pool, at, size in strokes(one)] == strokes(many)
    assert (one.nodes * times).tolist() == many.nodes.tolist()


@given(STAYS, st.integers(-400, 400))
def test_a_shift_by_whole_hours_shifts_the_table(stays: list[Stay], hours: int) -> None:
    """No hour of the calendar is special: the same spells at other hours are the same table, moved."""
    moved = [
        replace(stay, began=stay.began + 3600 * hours, ended=stay.ended + 3600 * hours) for stay in stays
    ]
    before, after = tabled(stays), tabulate(columns(moved), float(NOW + 3600 * hours))
    if not before.exposure.shape[2]:
        assert after.exposure.shape[2] == 0
        return
    assert after.first_hour == before.first_hour + hours
    np.testing.assert_allclose(before.exposure, after.exposure, atol=1e-8)
    np.testing.assert_array_equal(before.losses, after.losses)
    np.testing.assert_array_equal(before.bursts, after.bursts)


@given(STAYS, st.integers(0, 9 * 86_400))
@settings(max_examples=50)
def test_what_comes_later_does_not_change_what_was(stays: list[Stay], ago: int) -> None:
    """The table as of an earlier instant has the same whole hours before it as the table of now."""
    then = float(NOW - ago)
    late, early = tabled(stays), tabulate(columns(stays), then)
    for cube in ("exposure", "losses"):
        ours = {key: value for key, value in hourly(late, cube).items() if (key[1] + 1) * 3600 <= then}
        theirs = {key: value for key, value in hourly(early, cube).items() if (key[1] + 1) * 3600 <= then}
        assert ours == pytest.approx(theirs, abs=1e-7)


# ---- the calendar and the clock


def at(text: str) -> int:
    """UTC seconds of a written instant."""
    return round(dt.datetime.fromisoformat(text + "+00:00").timestamp())


@pytest.mark.parametrize(
    ("day", "name"),
    [("2028-02-29", "leap day"), ("2028-03-26", "summer time begins"), ("2028-10-29", "summer time ends")],
)
def test_every_day_of_the_calendar_has_24_hours(day: str, name: str) -> None:
    """A node held from the day before to the day after is at risk one hour in each hour of a special day."""
    midnight = at(f"{day}T00:00:00")
    stay = Stay(0, 1, midnight - 3600 * 6, midnight + 3600 * 30, "interruption")
    table = tabulate(columns([stay]), midnight + 90 * 86_400.0)
    hours = table.exposure[0].sum(axis=0)
    first = midnight // 3600 - table.first_hour
    assert hours[first : first + 24].tolist() == pytest.approx([1.0] * 24), name
    assert len(hours) == 36
    days = series_of(table).folded(table.exposure.sum(axis=1), 24)[0].tolist()
    assert days == pytest.approx([6.0, 24.0, 6.0])


def test_february_of_a_leap_year_has_29_days() -> None:
    """From the first of February to the first of March 2028 are 696 hours."""
    stay = Stay(0, 1, at("2028-02-01T00:00:00"), at("2028-03-01T00:00:00"), "user-stop")
    table = tabulate(columns([stay]), at("2028-06-01T00:00:00"))
    assert table.exposure.sum() == pytest.approx(29 * 24)
    assert table.exposure.shape[2] == 29 * 24


def test_a_stay_that_ends_before_it_began_has_no_length() -> None:
    """A clock that was set back takes no exposure away; the loss is one, where the stay began."""
    back = Stay(0, 1, BEGIN + 7200, BEGIN, "interruption")
    table = tabled([back, Stay(0, 2, BEGIN, BEGIN + 3600, "user-stop")])
    assert table.exposure.min() >= 0
    assert table.exposure.sum() == pytest.approx(1.0)
    assert cells(table, table.losses) == {(0, 0, (BEGIN + 7199) // 3600): 1}
    assert table.spells.tolist() == [1, 0, 0]


@pytest.mark.parametrize("cause", ["running", "interruption", "failover"])
def test_an_end_far_in_the_future_is_no_end(cause: str) -> None:
    """A clock that runs ahead makes no exposure beyond now, no loss and no hours up to there."""
    ahead = Stay(0, 1, NOW - 7200, NOW + 50 * 366 * 86_400, cause, hinted=True)
    table = tabled([ahead, Stay(1, 2, NOW + 1, NOW + 3600, "interruption")])
    assert table.exposure.sum() == pytest.approx(2.0)
    assert table.losses.sum() == table.left_on_hint.sum() == 0
    assert table.causes[0].tolist() == [1] + [0] * (len(CAUSES) - 1)
    assert table.causes[1].sum() == 0
    assert table.exposure.shape[2] <= 3


def test_a_clock_that_was_never_set_makes_no_table_of_half_a_century() -> None:
    """What is said to lie in 1970 is not counted; what began there and goes on is cut to ten years."""
    never = Stay(0, 1, 10, 3600, "interruption")
    assert tabled([never]).exposure.shape[2] == 0
    since = tabled([never, Stay(0, 2, 10, NOW - 3600, "interruption")])
    assert since.exposure.sum() == pytest.approx(MOST_HOURS - 1)
    assert since.exposure[0, UNKNOWN_AGE].sum() == pytest.approx(MOST_HOURS - 1), "its age is not believed"
    assert since.losses.sum() == 1


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("known", [True, False])
def test_a_stay_of_no_length_is_no_time_at_risk(cause: str, known: bool) -> None:
    """A node found gone counts as lost, in the hour before; it is no spell and adds no exposure."""
    hour = 3600 * (BEGIN // 3600 + 1)
    table = tabled([Stay(0, 1, hour, hour, cause, known)])
    assert table.exposure.sum() == 0
    assert table.spells.sum() == 0
    assert table.losses.sum() == (cause in LOST)
    if cause in LOST:
        band = 0 if known else UNKNOWN_AGE
        assert cells(table, table.losses) == {(0, band, hour // 3600 - 1): 1}
    assert table.nodes.tolist() == [1, 0, 0]


def test_nothing_gives_a_table_of_no_hours() -> None:
    """No spells: no hours, no bursts, and the pools that were named."""
    table = tabled([])
    assert table.exposure.shape == (3, UNKNOWN_AGE + 1, 0)
    assert strokes(table) == []
    assert table.begins == table.ends
