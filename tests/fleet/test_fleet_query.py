"""Two implementations of one table: all spells at once in memory, and Parquet a part at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.daemon.fleet import query
from outlast.daemon.fleet.flat import Flat, Gather, Imported, join, newest, pick
from outlast.daemon.fleet.ledgers import read_launches, read_prices
from outlast.daemon.fleet.merge import copy_parquet, merge_parquet
from outlast.daemon.fleet.parquet import connection, partitions
from outlast.daemon.fleet.place import FolderPlace
from outlast.daemon.fleet.query import table_of
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import CAUSES, Launch, Origin, Price, Table
from outlast.daemon.rates.tabulate import tabulate

BEGIN = 1_767_200_400.0  # 2025-12-31 17:00 UTC: a month and a year end soon
NOW = BEGIN + 90 * 86400
POOLS = [
    Pool("aws", "us-east-1", "use1-az4", "g5.xlarge"),
    Pool("aws", "us-west-2", "usw2-az1", "g5.xlarge"),
    Pool("gcp", "us-central1", "us-central1-c", "a2/'x'=1 %2F"),
    Pool("", "", "", ""),
]
# Times in quarters of a second are the same in microseconds and in floating point.
TICKS = st.integers(0, 4 * 86400 * 95).map(lambda ticks: BEGIN + ticks / 4)
LENGTHS = st.one_of(
    st.sampled_from([0.0, 0.25, 900.0, 3600.0, 14400.0, 43200.0, 43200.25]),
    st.integers(0, 4 * 86400 * 3).map(lambda ticks: ticks / 4),
)
ORIGINS: list[Origin] = ["held", "probe"]
SPELLS = st.lists(
    st.tuples(
        st.sampled_from(POOLS),
        st.sampled_from(ORIGINS),
        st.integers(0, 6),
        TICKS,
        LENGTHS,
        st.sampled_from(CAUSES),
        st.booleans(),
        st.booleans(),
    ),
    max_size=40,
)
SLOW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

Row = tuple[Pool, Origin, int, float, float, str, bool, bool]
Twin = Callable[[Flat, Path], Table]


def flat_of(rows: list[Row]) -> Flat:
    """Spells, each with an id of its own or that of another of the same node and beginning."""
    gather = Gather()
    for pool, origin, node, began, length, cause, known, hinted in rows:
        gather.add(pool, f"n-{node}", began, began + length, cause, known=known, hinted=hinted, origin=origin)
    return gather.flat()


def in_memory(flat: Flat, _: Path) -> Table:
    """The table of all spells at once. Ties of a burst's first node go to the youngest band."""
    columns = newest(join([flat])).columns
    order = np.lexsort((columns.ended - columns.began, ~columns.known))
    return tabulate(pick(Flat(order, columns), order).columns, NOW)


def from_parquet(flat: Flat, folder: Path) -> Table:
    """The table of the same spells merged into Parquet in two goes, with a repetition."""
    place = FolderPlace(folder)
    half = np.arange(len(flat)) % 2 == 0
    for rows in (np.flatnonzero(half), np.flatnonzero(~half), np.flatnonzero(half)):
        merge_parquet(place, Imported(pick(flat, rows)))
    return table_of(place, NOW)


def from_both(flat: Flat, folder: Path) -> Table:
    """Half of the spells and a few more in Parquet, the rest beside it."""
    place = FolderPlace(folder)
    some = np.arange(len(flat)) % 3
    merge_parquet(place, Imported(pick(flat, np.flatnonzero(some < 2))))
    return table_of(place, NOW, pick(flat, np.flatnonzero(some > 0)))


def by_pool(table: Table) -> dict[tuple[Pool, Origin], dict[str, object]]:
    """What a table says of each pool that has spells, whatever the order of its pools."""
    said: dict[tuple[Pool, Origin], dict[str, object]] = {}
    for i, (pool, origin) in enumerate(zip(table.pools, table.origin, strict=True)):
        if not table.causes[i].any():
            continue
        mine = table.burst_pool == i
        said[pool, origin] = {
            "exposure": np.asarray(table.exposure[i], dtype=float),
            "losses": table.losses[i].tolist(),
            "bursts": table.bursts[i].tolist(),
            "counts": (int(table.spells[i]), int(table.nodes[i]), int(table.left_on_hint[i])),
            "causes": table.causes[i].tolist(),
            "strokes": list(zip(table.burst_at[mine].tolist(), table.burst_size[mine].tolist(), strict=True)),
        }
    return said


def same(one: Table, other: Table) -> None:
    """Assert that two tables say the same."""
    assert one.exposure.shape[1:] == other.exposure.shape[1:]
    if one.exposure.shape[2]:
        assert one.first_hour == other.first_hour
    ours, theirs = by_pool(one), by_pool(other)
    assert ours.keys() == theirs.keys()
    for name, said in ours.items():
        here, there = np.asarray(said.pop("exposure")), np.asarray(theirs[name].pop("exposure"))
        np.testing.assert_allclose(here, there, rtol=1e-6, atol=1e-9)
        assert said == theirs[name]


@pytest.mark.parametrize("twin", [from_parquet, from_both])
@given(rows=SPELLS)
@SLOW
def test_both_ways_give_the_same_table(
    twin: Twin, rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Exposure, losses, bursts and counts do not depend on where the spells lie."""
    flat = flat_of(rows)
    same(in_memory(flat, Path()), twin(flat, tmp_path_factory.mktemp("fleet")))


@given(rows=SPELLS, size=st.integers(1, 7))
@SLOW
def test_no_size_of_a_part_changes_the_table(
    rows: list[Row], size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A partition too large for memory is read in pieces."""
    place = FolderPlace(tmp_path_factory.mktemp("fleet"))
    merge_parquet(place, Imported(flat_of(rows)))
    whole = table_of(place, NOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "MOST_ROWS", size)
        same(whole, table_of(place, NOW))


@given(rows=SPELLS)
@SLOW
def test_the_sum_of_exposure_is_that_of_the_lengths(
    rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No second at risk is lost or counted twice."""
    flat = newest(flat_of(rows))
    table = from_parquet(flat, tmp_path_factory.mktemp("fleet"))
    columns = flat.columns
    began, ended = np.minimum(columns.began, NOW), np.minimum(columns.ended, NOW)
    assert float(table.exposure.sum()) == pytest.approx(float((ended - began).sum()) / 3600, abs=1e-6)


def test_merging_again_adds_no_file(tmp_path: Path) -> None:
    """A merge of what is there already leaves the folder as it is."""
    place = FolderPlace(tmp_path)
    flat = flat_of(
        [
            (POOLS[0], "held", n, BEGIN + 3600 * n + 0.123456789, 5000.3, CAUSES[n % 9], True, False)
            for n in range(20)
        ]
    )
    assert merge_parquet(place, Imported(flat)) == 20
    before = place.names("")
    assert merge_parquet(place, Imported(flat)) == 0
    assert copy_parquet(place, place) == 0
    assert place.names("") == before


def test_a_later_version_counts_in_place_of_the_earlier(tmp_path: Path) -> None:
    """A spell that was running at one merge and is lost at the next is one spell, lost, in any order."""
    running = flat_of([(POOLS[0], "held", 1, BEGIN, 3600.0, "running", True, False)])
    lost = flat_of([(POOLS[0], "held", 1, BEGIN, 7200.0, "interruption", True, False)])
    for number, order in enumerate([(running, lost), (lost, running)]):
        place = FolderPlace(tmp_path / str(number))
        for flat in order:
            merge_parquet(place, Imported(flat))
        table = table_of(place, NOW)
        assert (table.spells.tolist(), int(table.losses.sum())) == ([1], 1)
        assert float(table.exposure.sum()) == pytest.approx(2.0)


def test_partitions_are_by_provider_and_month_of_beginning(tmp_path: Path) -> None:
    """Other programs find the files of a month without reading the others, whatever a provider is called."""
    place = FolderPlace(tmp_path)
    odd = replace(POOLS[0], provider="a/../b=c")
    rows: list[Row] = [
        (pool, "held", 1, at, 60.0, "job-done", True, False)
        for pool in (*POOLS, odd)
        for at in (BEGIN, BEGIN + 86400)
    ]
    merge_parquet(place, Imported(flat_of(rows)))
    found = {(part.provider, part.month) for part in partitions(place)}
    assert found == {(p, m) for p in ("", "aws", "gcp", "a/../b=c") for m in ("2025-12", "2026-01")}
    assert all(path.is_relative_to(tmp_path / "spells") for path in tmp_path.rglob("*.parquet"))
    same(table_of(place, NOW), in_memory(flat_of(rows), tmp_path))


WORDS = st.text(st.characters(codec="utf-8", min_codepoint=32), max_size=4)


@given(
    rows=st.lists(
        st.tuples(WORDS, WORDS, st.integers(0, 10**6).map(lambda n: BEGIN + n / 4), st.integers(0, 9)),
        max_size=8,
    )
)
@SLOW
def test_launches_and_prices_come_back_as_they_were(
    rows: list[tuple[str, str, float, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever pools are called, each launch and price is there once, after two merges."""
    place = FolderPlace(tmp_path_factory.mktemp("fleet"))
    pools = [Pool(provider, "r", zone, "") for provider, zone, *_ in rows]
    launches = {Launch(pool, at, n + 1, n) for pool, (*_, at, n) in zip(pools, rows, strict=True)}
    prices = {Price(pool, at, n, "min_bid") for pool, (*_, at, n) in zip(pools, rows, strict=True)}
    for _ in range(2):
        merge_parquet(place, Imported(flat_of([]), tuple(launches), tuple(prices)))
    with connection(place) as db:
        found = read_launches(db, place), read_prices(db, place)
    assert [len(found[0]), len(found[1])] == [len(launches), len(prices)]
    assert (set(found[0]), set(found[1])) == (launches, prices)
