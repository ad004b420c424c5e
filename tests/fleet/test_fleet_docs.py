"""The examples of ``docs/fleet.md`` do what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import astuple
from pathlib import Path

import duckdb
import numpy as np
import pytest

from outlast.daemon.fleet.imports import NAMES, cause_of
from outlast.daemon.fleet.load import observe
from outlast.daemon.fleet.rollup import COLUMNS
from outlast.daemon.rates.table import CAUSES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "fleet.md").read_text()
_FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SQL = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)


def lines() -> list[list[str]]:
    """The words after ``outlast`` of each example."""
    text = "".join(_SHELL.findall(PAGE)).replace("\\\n", " ")
    return [shlex.split(line, comments=True)[1:] for line in text.splitlines()]


def outlast(words: list[str], folder: Path) -> str:
    """Run an example; it has to succeed."""
    command = [sys.executable, "-m", "outlast", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, imported by the page's commands."""
    folder = tmp_path_factory.mktemp("page")
    for name, text in _FILE.findall(PAGE):
        (folder / name).write_text(text)
    imports = [words for words in lines() if words[:2] == ["history", "import"]]
    assert len(imports) == 4
    for words in imports:
        assert " added to fleet.sqlite3" in outlast(words, folder)
    return folder


def test_each_format_of_the_page_is_imported(folder: Path) -> None:
    """Two VMs lost of which one met the cap, a probed spell, three launches, three prices."""
    seen = observe([str(folder / "fleet.sqlite3")], time.time())
    table = seen.table
    lost = {pool.instance_type: int(table.losses[i].sum()) for i, pool in enumerate(table.pools)}
    assert lost == {"a2-highgpu-1g": 1, "p3.2xlarge": 1, "a3-highgpu-1g": 0}
    assert [one.got for one in seen.launches] == [16, 9, 0]
    assert [one.micro_usd for one in seen.prices] == [918000, 950000, 918000]


def test_the_pages_query_counts_as_the_report_does(folder: Path) -> None:
    """Another program that reads the Parquet as the page says finds the same figures."""
    (words,) = [
        words for words in lines() if words[:5] == ["history", "merge", "--into", "fleet", "--parquet"]
    ]
    outlast(words, folder)
    (query,) = _SQL.findall(PAGE)
    here = Path.cwd()
    os.chdir(folder)
    try:
        with duckdb.connect(":memory:") as db:
            rows = db.execute(query).fetchall()
    finally:
        os.chdir(here)
    table = observe([str(folder / "fleet")], time.time()).table
    places = enumerate(zip(table.pools, table.losses.sum(axis=(1, 2)), strict=True))
    ours = sorted((*astuple(pool), int(table.spells[i]), int(lost)) for i, (pool, lost) in places)
    assert sorted((*row[:5], row[6]) for row in rows) == ours
    assert sum(row[5] for row in rows) == pytest.approx(float(np.sum(table.exposure)))


def test_the_page_names_all_columns_and_causes(folder: Path) -> None:
    """What can be written is on the page, and what is on the page can be written."""
    for name in (*NAMES, *COLUMNS):
        assert f"`{name}`" in PAGE
    row = re.findall(r"^\| `cause` \| (.*) \|$", PAGE, re.MULTILINE)[0]
    assert {cause_of(word) for word in re.findall(r"`([^`]+)`", row)} == set(CAUSES)
    (share,) = [words for words in lines() if words[:2] == ["history", "share"]]
    outlast(share, folder)
    assert (folder / "rollup.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
