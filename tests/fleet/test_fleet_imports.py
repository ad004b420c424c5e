"""Files from other hands: what they hold, and that a bad one is refused with its place and a way out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.daemon.fleet.faults import MOST_FAULTS, ImportFaultError
from outlast.daemon.fleet.imports import read_spells
from outlast.daemon.fleet.probes import read_availability, read_launches
from outlast.daemon.fleet.ticks import even_clock, read_ticks
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import CAUSES

POOL = Pool("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
HEADER = "provider,region,zone,instance_type,node,began,ended,cause\n"
ONE = "aws,us-east-1,use1-az4,g5.xlarge,n-1,2025-10-04T00:10:00Z,2025-10-04T03:40:00+02:00,interruption\n"
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder: Path, text: str | bytes, name: str = "file.csv") -> Path:
    """A file with this text."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_spell_keeps_its_instants_whatever_the_offset(tmp_path: Path) -> None:
    """Times with offsets become UTC seconds."""
    columns = read_spells(write(tmp_path, HEADER + ONE)).spells.columns
    assert columns.began.tolist() == [1759536600.0]
    assert columns.ended.tolist() == [1759542000.0]
    assert columns.cause.tolist() == [CAUSES.index("interruption")]
    assert columns.pools == (Pool("aws", "us-east-1", "use1-az4", "g5.xlarge"),)


def test_foreign_columns_are_mapped_and_constants_stand_in(tmp_path: Path) -> None:
    """A file of another program needs no rewriting; a life beyond the cap is no interruption."""
    text = (
        "vm,zone,kind,start,end,gone\n"
        "a,us-central1-c,n1,1553541793.5,1553544593.5,1\n"
        "b,us-central1-c,n1,1553541793.5,1553630000,1\n"
        "c,us-central1-c,n1,1553541793.5,1553545393.5,0\n"
    )
    mapping = {"node": "vm", "instance_type": "kind", "began": "start", "ended": "end", "cause": "gone"}
    columns = read_spells(write(tmp_path, text), mapping, {"provider": "gcp"}, max_life_h=23.5).spells.columns
    assert columns.pools == (Pool("gcp", "us-central1", "us-central1-c", "n1"),)
    assert [CAUSES[number] for number in columns.cause] == ["interruption", "max-life", "user-stop"]


def test_reading_twice_gives_the_same_ids(tmp_path: Path) -> None:
    """The same line is the same spell, in whichever file it stands."""
    one = read_spells(write(tmp_path, HEADER + ONE)).spells
    two = read_spells(write(tmp_path, HEADER + ONE.replace("interruption", "capacity"), "b.csv")).spells
    assert one.id.tolist() == two.id.tolist()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n", "file.csv:1: has no column"),
        ("", "file.csv:1: has no column"),
        (HEADER + "aws,r,z,t,n\n", "file.csv:2: has 5 fields"),
        (HEADER + ONE.replace("00Z", "00"), "has no offset; add one, or --utc"),
        (HEADER + ONE.replace("interruption", "gone \x1b[31m"), "is no cause; use one of"),
        (HEADER + ONE.replace("2025-10-04T00:10:00Z", "2026-01-01T00:00:00Z"), "ended before it began"),
        (HEADER + ONE.replace("2025-10-04T00:10:00Z", "1759536600000"), "no time between 1990 and 2100"),
        (HEADER + ONE.replace("aws", ""), "the provider is empty"),
        (HEADER + ONE.replace("g5", "\x07g5"), "control characters"),
        (HEADER + "\xff" + ONE, ""),
        ((HEADER + ONE).encode() + b"\xff\xfe\n", "is not UTF-8"),
        (HEADER + ONE.replace("aws", '"aws'), "is no CSV"),
        (HEADER + ONE.replace("g5", "g" * 5000), "is no CSV"),
    ],
)
def test_a_fault_names_its_line_and_what_to_do(tmp_path: Path, text: str | bytes, said: str) -> None:
    """Whoever imports a file learns where it is wrong."""
    if not said:
        read_spells(write(tmp_path, text))
        return
    with pytest.raises(ImportFaultError) as caught:
        read_spells(write(tmp_path, text))
    assert said in str(caught.value)
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_all_faults_are_told_at_once_up_to_a_bound(tmp_path: Path) -> None:
    """One run shows what there is to repair, and a file of another kind does not flood the terminal."""
    with pytest.raises(ImportFaultError) as caught:
        read_spells(write(tmp_path, HEADER + ONE.replace("aws", "") * 1000))
    assert len(str(caught.value).splitlines()) == MOST_FAULTS + 1


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    """A wrong name is an error of its own."""
    with pytest.raises(ImportFaultError, match="No such file"):
        read_spells(tmp_path / "no.csv")


@SLOW
@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode))
def test_no_bytes_break_a_reader(tmp_path: Path, body: bytes) -> None:
    """Whatever a file holds, a reader reads it or refuses it."""
    for name, text in (("a.csv", body), ("b.csv", HEADER.encode() + body), ("c.json", body)):
        path = write(tmp_path, text, name)
        for read in (
            read_spells,
            lambda file: read_availability(file, POOL),
            lambda file: read_launches(file, POOL),
            lambda file: read_ticks(file, {"a": POOL}, even_clock(1e9, 60, file)),
        ):
            said = ""
            try:
                read(path)
            except ImportFaultError as exc:
                said = str(exc)
            assert all(line.isprintable() for line in said.splitlines())


# ---- traces of probes


def trace(up: str, step: int = 195, begins: float = 1_676_498_896.0) -> str:
    """A trace with one digit a probe; a dot is a probe that is missing."""
    lines = [f"{begins + step * i:.0f},{digit}" for i, digit in enumerate(up) if digit != "."]
    return "\n".join(["date,availability", *lines, ""])


def test_a_run_of_capacity_is_a_spell_up_to_the_first_probe_without(tmp_path: Path) -> None:
    """Exposure is the time from each probe that found capacity to the next one."""
    columns = read_availability(write(tmp_path, trace("011100110")), POOL).spells.columns
    assert (columns.ended - columns.began).tolist() == [3 * 195, 2 * 195]
    assert [CAUSES[number] for number in columns.cause] == ["interruption", "interruption"]
    assert columns.known.all()
    assert columns.origin == ("probe",)


def test_a_gap_and_the_end_cut_spells_off(tmp_path: Path) -> None:
    """Where no probe was made, nothing is said, neither loss nor exposure nor the age after it."""
    columns = read_availability(write(tmp_path, trace("11.....110011")), POOL).spells.columns
    assert [CAUSES[number] for number in columns.cause] == ["running", "interruption", "running"]
    assert (columns.ended - columns.began).tolist() == [195, 2 * 195, 195]
    assert columns.known.tolist() == [False, False, True]


def test_each_slot_of_a_count_is_lost_for_itself(tmp_path: Path) -> None:
    """Four instances that become one are three losses."""
    columns = read_availability(write(tmp_path, trace("0441100")), POOL).spells.columns
    lost = columns.cause == CAUSES.index("interruption")
    assert int(lost.sum()) == 4
    assert len(np.unique(columns.node)) == 4


def test_a_trace_without_a_clock_needs_one(tmp_path: Path) -> None:
    """A guess at the hour of the day would be worse than none."""
    path = write(tmp_path, json.dumps({"metadata": {"gap_seconds": 600}, "data": [0, 1, 1, 0]}), "t.json")
    with pytest.raises(ImportFaultError, match="--begins"):
        read_availability(path, POOL)
    columns = read_availability(path, POOL, begins=1e9).spells.columns
    assert columns.began.tolist() == [1e9 + 600]
    assert columns.ended.tolist() == [1e9 + 1800]


@given(st.text(alphabet="01", min_size=2, max_size=60))
@settings(deadline=None, max_examples=60)
def test_exposure_and_losses_are_those_of_the_samples(
    tmp_path_factory: pytest.TempPathFactory, up: str
) -> None:
    """For any trace: one loss a drop, and one step of exposure a probe with capacity but the last."""
    path = write(tmp_path_factory.mktemp("trace"), trace(up))
    columns = read_availability(path, POOL).spells.columns
    assert int((columns.cause == 1).sum()) == up.count("10")
    assert float((columns.ended - columns.began).sum()) == 195 * up[:-1].count("1")


def test_launch_probes_are_launches_and_the_last_slots_loss(tmp_path: Path) -> None:
    """The answer to each launch is kept; losing the last slot is the loss."""
    lines = [
        f"2025-10-04T00:{minute:02d}:00+00:00,{zone},{got},16"
        for minute, got in [(0, 0), (10, 16), (20, 3), (30, 0)]
        for zone in ("us-east4-a", "us-east4-b")
    ]
    text = "\n".join(["started_at_utc,zone,instances_created,instances_requested", *lines])
    found = read_launches(write(tmp_path, text), Pool("gcp", "", "", "a3-highgpu-1g"))
    assert [(launch.asked, launch.got) for launch in found.launches[:4]] == [
        (16, 0),
        (16, 16),
        (16, 3),
        (16, 0),
    ]
    assert {launch.pool.region for launch in found.launches} == {"us-east4"}
    columns = found.spells.columns
    assert columns.cause.tolist() == [1, 1]
    assert (columns.ended - columns.began).tolist() == [1200, 1200]


# ---- prices


def test_prices_are_kept_where_they_change(tmp_path: Path) -> None:
    """A price that stays is one row; money is in millionths of a dollar."""
    path = write(tmp_path, json.dumps({"a": [1.5, 1.5, None, 1.6703, 1.5]}))
    prices = read_ticks(path, {"a": POOL}, even_clock(1e9, 60, path))
    assert [(price.at, price.micro_usd) for price in prices] == [
        (1e9, 1_500_000),
        (1e9 + 180, 1_670_300),
        (1e9 + 240, 1_500_000),
    ]


@pytest.mark.parametrize("value", ["NaN", "-1", "1e999", '"1"', "true", "1e9"])
def test_a_price_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    """The fault says which tick it is."""
    path = write(tmp_path, f'{{"a": [1, {value}]}}')
    with pytest.raises(ImportFaultError, match=r"a\[1\] is no price"):
        read_ticks(path, {"a": POOL}, [1e9, 1e9 + 60])
