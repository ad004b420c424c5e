"""``outlast history merge``, ``import`` and ``share`` as a user meets them."""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.cli import history as command
from outlast.daemon.cli import history_common
from outlast.daemon.fleet.load import observe
from outlast.daemon.history.db import History
from outlast.daemon.history.reading import read_rows
from outlast.daemon.history.segments import write as write_segment
from outlast.daemon.rates.table import Table
from outlast.providers.base import Action, Identity, Notice

if TYPE_CHECKING:
    from tests.conftest import ManualClock

HEADER = "provider,region,zone,instance_type,node,began,ended,cause\n"
AWS = "aws,us-east-1,use1-az4,g5.xlarge"


def call(clock: ManualClock, *words: str) -> int:
    """Parse and run, as ``outlast history WORDS`` does."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["history", *words])
    return int(args.run(args, clock))


def node(folder: Path, name: str, clock: ManualClock, *, lost: bool = True) -> Path:
    """A node's own history: two hours of one spell, taken with a notice, and a launch before it."""
    path = folder / f"{name}.sqlite3"
    history = History.open(path, clock)
    spell = history.begin_spell(Identity("aws", "us-east-1", "a", "use1-az1", "p5.48xlarge", name), name, "b")
    clock.advance(7200)
    history.heartbeat(spell)
    if lost:
        history.notice_seen(
            spell, Notice("n-1", Action.TERMINATE, clock.monotonic() + 120, "spot"), clock.wall() + 120, "b"
        )
        history.end_spell(spell, "interruption")
    history.close()
    return path


def spells(folder: Path, nodes: int, name: str = "spells.csv") -> Path:
    """Nine hours of each of some nodes."""
    lines = [
        f"{AWS},n-{n},2026-01-0{n + 1}T00:00:00Z,2026-01-0{n + 1}T09:00:00Z,interruption\n"
        for n in range(nodes)
    ]
    path = folder / name
    path.write_text(HEADER + "".join(lines))
    return path


def said(table: Table) -> tuple[list[str], list[int], list[int], float]:
    """What a table says, whatever the order of its pools."""
    order = sorted(range(len(table.pools)), key=lambda i: table.pools[i])
    return (
        [table.pools[i].zone for i in order],
        [int(table.losses[i].sum()) for i in order],
        [int(table.spells[i]) for i in order],
        round(float(table.exposure.sum()), 6),
    )


# ---- merge


@pytest.mark.parametrize("parquet", [False, True])
def test_nodes_segments_and_imports_become_one_history(
    parquet: bool, tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of nodes, a folder of segments and a CSV file: merged, they say what they said apart."""
    one, two = node(tmp_path, "one", manual_clock), node(tmp_path, "two", manual_clock, lost=False)
    three = History.open(node(tmp_path, "three", manual_clock), manual_clock)
    changed = three.changed("", -1)
    assert changed is not None
    write_segment(tmp_path / "stats", "three", changed, 1)
    three.close()
    sources = [str(one), str(two), str(tmp_path / "stats"), str(spells(tmp_path, 4))]
    before = observe(sources, manual_clock.wall())
    into = str(tmp_path / "fleet")
    words = ["merge", "--into", into, *sources, *(["--parquet"] if parquet else [])]
    assert call(manual_clock, *words) == 0
    after = observe([into], manual_clock.wall())
    assert said(after.table) == said(before.table)
    assert said(after.table)[1:3] == ([2, 4], [3, 4])
    assert (after.timing == before.timing) or parquet
    assert call(manual_clock, *words) == 0
    assert call(manual_clock, "merge", "--into", into, into) == 0
    out = capsys.readouterr().out.splitlines()
    assert "rows added" in out[0]
    assert [line.split(":")[0] for line in out[1:]] == ["nothing new", "nothing new"]


def test_the_order_of_merges_does_not_matter(tmp_path: Path, manual_clock: ManualClock) -> None:
    """A history from before and after its node was lost, an import and a repetition, either way round."""
    path = node(tmp_path, "one", manual_clock, lost=False)
    early = tmp_path / "early.sqlite3"
    early.write_bytes(path.read_bytes())
    history = History.open(path, manual_clock)
    (spell,) = (row.id for row in read_rows(path).spells)
    history.end_spell(spell, "interruption")
    history.close()
    sources = [str(early), str(path), str(spells(tmp_path, 3))]
    tables = []
    for number, order in enumerate([sources, sources[::-1], [*sources, *sources[::-1]]]):
        for kind in ("file", "folder"):
            into = str(tmp_path / f"{kind}-{number}")
            for source in order:
                flag = ["--parquet"] if kind == "folder" else []
                assert call(manual_clock, "merge", "--into", into, source, *flag) == 0
            tables.append(said(observe([into], manual_clock.wall()).table))
    assert tables == tables[:1] * 6
    assert tables[0][1] == [1, 3]


def test_what_is_merged_is_told_as_json(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object with what was added, and what could not be read of a torn segment."""
    source, into = str(spells(tmp_path, 3)), str(tmp_path / "f.sqlite3")
    assert call(manual_clock, "merge", "--into", into, source, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"format": 1, "into": into, "sources": [source], "added": 3, "notes": []}


@pytest.mark.parametrize("name", ["none.sqlite3", "bad.sqlite3", "empty", "bad\x1b[2J.csv"])
def test_a_source_that_cannot_be_read_changes_nothing(
    name: str, tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1, what is wrong and what to do; the destination is not made."""
    (tmp_path / "bad.sqlite3").write_bytes(b"?" * 9000)
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad\x1b[2J.csv").write_text("a,b\n")
    into = tmp_path / "f.sqlite3"
    assert call(manual_clock, "merge", "--into", str(into), str(tmp_path / name)) == 1
    err = capsys.readouterr().err
    assert err.startswith("outlast history merge: ")
    assert "\x1b" not in err
    assert not into.exists()


def test_a_destination_that_is_something_else_is_left_alone(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without --parquet, a file with it, another program's file."""
    source = str(spells(tmp_path, 3))
    (tmp_path / "notes").write_text("mine")
    assert call(manual_clock, "merge", "--into", str(tmp_path), source) == 1
    assert call(manual_clock, "merge", "--into", str(tmp_path / "notes"), source) == 1
    assert call(manual_clock, "merge", "--into", str(tmp_path / "notes"), source, "--parquet") == 1
    err = capsys.readouterr().err.splitlines()
    assert [said in line for said, line in zip(("--parquet", "Name another", "folder"), err, strict=True)]
    assert (tmp_path / "notes").read_text() == "mine"


def test_the_daemons_own_file_is_not_merged_into(
    tmp_path: Path,
    manual_clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Everything in it goes to the peer as this node's: exit status 2, and not a byte changed."""
    own = node(tmp_path, "own", manual_clock)
    monkeypatch.setattr(command, "_own_file", lambda: own)
    before = own.read_bytes()
    assert call(manual_clock, "merge", "--into", str(own), str(spells(tmp_path, 3))) == 2
    assert "this node's own history" in capsys.readouterr().err
    assert own.read_bytes() == before


# Ready when told so, off when told so: all at the same instant.
_MERGER = """
import sys
from pathlib import Path
from outlast.daemon.fleet.database import merge_database
from outlast.daemon.fleet.imports import read_spells
from outlast.daemon.history.rows import Rows
into, *files = map(Path, sys.argv[1:])
flats = [read_spells(file).spells for file in files]
print("ready", flush=True)
sys.stdin.readline()
for flat in flats:
    merge_database(into, Rows(), flat)
"""


def test_mergers_that_make_a_file_at_once_lose_nothing(tmp_path: Path, manual_clock: ManualClock) -> None:
    """Three processes find no file, make it, and add what they have; each spell is there once."""
    one, two, into = spells(tmp_path, 4), spells(tmp_path, 7, "two.csv"), str(tmp_path / "f")
    mergers = [
        subprocess.Popen(
            [sys.executable, "-c", _MERGER, into, *files],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for files in ([one, two], [two, one], [two])
    ]
    for process in mergers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in mergers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in mergers:
        _, err = process.communicate(timeout=50)
        assert process.returncode == 0, err
    assert said(observe([into], manual_clock.wall()).table)[1:3] == ([7], [7])


# ---- import


def test_another_programs_columns_are_imported_once(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns are named, constants given, the provider's cap told apart; again, nothing is new."""
    file = tmp_path / "vms.csv"
    file.write_text(
        "vm,where,type,start,end,how\n"
        "a,us-central1-a,n1,2026-01-01T00:00:00Z,2026-01-01T08:00:00Z,1\n"
        "b,us-central1-a,n1,2026-01-01T00:00:00Z,2026-01-01T23:50:00Z,1\n"
    )
    names = {"node": "vm", "zone": "where", "instance_type": "type", "began": "start", "ended": "end"}
    mapping = [word for pair in ({**names, "cause": "how"}).items() for word in ("--map", "=".join(pair))]
    into = str(tmp_path / "f.sqlite3")
    words = ["import", "spells", str(file), "--into", into, *mapping]
    words += ["--set", "provider=gcp", "--max-life", "23.5h"]
    assert [call(manual_clock, *words), call(manual_clock, *words)] == [0, 0]
    assert capsys.readouterr().out.splitlines() == [
        f"2 rows added to {into}",
        f"nothing new: {into} has it all",
    ]
    table = observe([into], manual_clock.wall()).table
    assert (table.pools[0].region, int(table.losses.sum())) == ("us-central1", 1)
    assert call(manual_clock, "--db", into) == 0
    assert "2 imported spells are not counted here" in capsys.readouterr().err


def test_probes_launches_and_prices_are_imported(tmp_path: Path, manual_clock: ManualClock) -> None:
    """Each format ends where the report reads it, in a file as in Parquet."""
    at = [f"2026-01-01T0{hour}:00:00" for hour in range(6)]
    ups = zip(at, (1, 1, 1, 0, 1, 1), strict=True)
    (tmp_path / "up.csv").write_text("date,availability\n" + "".join(f"{a},{up}\n" for a, up in ups))
    heading = "started_at_utc,zone,instances_created,instances_requested\n"
    (tmp_path / "tries.csv").write_text(
        heading + "".join(f"{a}Z,us-central1-a,{n},8\n" for n, a in enumerate(at))
    )
    (tmp_path / "ticks.json").write_text(json.dumps({"v100": [1.0, 1.0, 1.5]}))
    pool = ["--set", "provider=aws", "--set", "zone=us-east-1a", "--set", "instance_type=p3"]
    other = ["--set", "provider=gcp", "--set", "instance_type=a3"]
    seen = []
    for into, flag in ((tmp_path / "f.sqlite3", []), (tmp_path / "fleet", ["--parquet"])):
        target = ["--into", str(into), *flag]
        for _ in range(2):
            assert (
                call(
                    manual_clock, "import", "availability", str(tmp_path / "up.csv"), "--utc", *pool, *target
                )
                == 0
            )
            assert call(manual_clock, "import", "launches", str(tmp_path / "tries.csv"), *other, *target) == 0
            clock = [
                "--begins",
                "2026-01-01T00:00:00Z",
                "--gap",
                "1h",
                "--pool",
                "v100=aws/us-east-1/us-east-1a/p3",
            ]
            assert call(manual_clock, "import", "prices", str(tmp_path / "ticks.json"), *clock, *target) == 0
        seen.append(observe([str(into)], manual_clock.wall()))
    assert [(one.at, one.micro_usd) for one in seen[0].prices] == [
        (1767225600.0, 1000000),
        (1767232800.0, 1500000),
    ]
    assert [one.got for one in seen[0].launches] == list(range(6))
    assert set(seen[0].table.origin) == {"probe"}
    assert replace(seen[0], table=seen[1].table, sources=()) == replace(seen[1], sources=())
    assert said(seen[0].table) == said(seen[1].table)


def test_every_fault_of_a_file_is_told_and_nothing_imported(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line a fault, with its place; the good lines of the file do not get in."""
    file = spells(tmp_path, 3)
    file.write_text(file.read_text() + f"{AWS},x,yesterday,today,interruption\n{AWS},x,1,2\n")
    into = tmp_path / "f.sqlite3"
    assert call(manual_clock, "import", "spells", str(file), "--into", str(into)) == 1
    err = capsys.readouterr().err
    assert "spells.csv:5: " in err or "spells.csv:6: " in err
    assert not into.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("spells", "--begins", "2026-01-01T00:00:00Z"), "--begins is for availability and prices"),
        (("launches", "--map", "node=vm"), "--map is for spells"),
        (("launches",), "--set provider=NAME"),
        (("prices", "--gap", "5m"), "--pool, --begins and --gap"),
        (("spells", "--set", "colour=red"), "there is no column colour"),
        (("availability", "--set", "provider=a\x07", "--set", "instance_type=b"), "control characters"),
    ],
)
def test_words_that_do_not_fit_a_format_are_refused(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    manual_clock: ManualClock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit status 2 rather than an option that nobody hears."""
    file = spells(tmp_path, 3)
    kind, *rest = words
    assert call(manual_clock, "import", kind, str(file), "--into", str(tmp_path / "f"), *rest) == 2
    assert said in capsys.readouterr().err


# ---- share


def test_what_is_shared_has_sums_and_no_node(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exposure and losses add up to the table's; pools of two nodes are left out, and nobody is named."""
    few = spells(tmp_path, 2, "few.csv")
    few.write_text(few.read_text().replace("use1-az4", "use1-az6"))
    out = tmp_path / "rollup.csv"
    words = (
        "share",
        "--out",
        str(out),
        str(spells(tmp_path, 4)),
        str(few),
        str(node(tmp_path, "hidden", manual_clock)),
    )
    assert call(manual_clock, *words) == 0
    assert capsys.readouterr().out.splitlines()[1] == "2 pools left out: fewer than 3 nodes"
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert {row["zone"] for row in rows} == {"use1-az4"}
    assert sum(float(row["exposure_h"]) for row in rows) == pytest.approx(36.0)
    lost = [(row["day"], row["hour"], row["age_from_h"]) for row in rows if int(row["losses"])]
    assert lost == [(f"2026-01-0{n}", "8", "4.0") for n in range(1, 5)]
    text = out.read_text()
    assert call(manual_clock, *words[:2], f"{out}.gz", *words[3:]) == 0
    assert gzip.decompress(Path(f"{out}.gz").read_bytes()).decode() == text
    assert not any(name in text for name in ("n-0", "n-1", "hidden"))


def test_names_in_what_is_shared_are_harmless(
    tmp_path: Path, manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """No formula for a spreadsheet; what was there before stays if a source cannot be read."""
    file, out = spells(tmp_path, 4), tmp_path / "rollup.csv"
    file.write_text(file.read_text().replace("use1-az4", "=1+1"))
    assert call(manual_clock, "share", "--out", str(out), str(file), "--json") == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["pools"], body["left_out"], body["out"]) == (1, 0, str(out))
    assert ",'=1+1," in out.read_text()
    before = out.read_text()
    assert call(manual_clock, "share", "--out", str(out), str(tmp_path / "none")) == 1
    assert call(manual_clock, "share", "--out", str(tmp_path / "no" / "x.csv"), str(file)) == 1
    assert out.read_text() == before


# ---- the family


def test_history_knows_its_commands(tmp_path: Path, manual_clock: ManualClock) -> None:
    """The plain command counts; ``launch`` and the others are its own."""
    file = tmp_path / "launches.sqlite3"
    words = ("--pool", "aws/us-east-1/use1-az4/p4d.24xlarge", "--asked", "2", "--got", "1", "--db", str(file))
    assert call(manual_clock, "launch", *words) == 0
    assert call(manual_clock, "--db", str(file)) == 0
    assert observe([str(file)], manual_clock.wall()).launches[0].got == 1


def test_progress_is_told_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipe gets none of it."""
    with history_common.progress() as tell:
        tell("merging", 1, 2)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with history_common.progress() as tell:
        tell("merging", 1, 2)
        time.sleep(0.3)  # as long as it takes to be drawn
    assert "merging" in capsys.readouterr().err
