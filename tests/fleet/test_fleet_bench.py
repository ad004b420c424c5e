"""The made-up fleet, and the benchmark on a small one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from outlast.daemon.fleet.place import place_of
from outlast.daemon.fleet.query import table_of
from outlast.daemon.rates.study import study
from outlast.daemon.rates.table import Observed
from outlast.simulations.fleet.made_up import BEGINS, PATTERN, PEAK, WEEKEND, Plan, by_provider, pools_of
from outlast.simulations.fleet.writing import write

ROOT = Path(__file__).resolve().parents[2]
PLAN = Plan(nodes=600, days=120)


def test_spells_make_sense() -> None:
    """Each has an id of its own, a length, and nodes that are in one place at a time."""
    ids = []
    for _, flat in by_provider(PLAN):
        columns = flat.columns
        ids.append(flat.id)
        assert (columns.ended > columns.began).all()
        assert columns.began.min() >= BEGINS
        order = np.lexsort((columns.began, columns.node))
        same = np.diff(columns.node[order]) == 0
        assert (columns.began[order][1:][same] >= columns.ended[order][:-1][same]).all()
    every = np.concatenate(ids)
    assert len(np.unique(every)) == len(every)


def test_what_is_true_of_it_is_found(tmp_path: Path) -> None:
    """The one region with a daily cycle, its hour, and quiet weekends; no cycle anywhere else."""
    total = write(PLAN, place_of(str(tmp_path)), print)
    now = BEGINS + PLAN.days * 86400.0
    seen = Observed(table_of(place_of(str(tmp_path)), now))
    assert int(seen.table.spells.sum()) == pytest.approx(total, rel=0.001)
    assert set(seen.table.pools) == set(pools_of(PLAN))
    found = study(seen, now)
    patterns = {(one.provider, one.region): one for one in found.patterns if one.state == "pattern"}
    assert set(patterns) == {PATTERN}
    assert patterns[PATTERN].peak_hour == pytest.approx(PEAK, abs=1.0)
    weekends = [one.ratio.mean for one in found.weekends if one.state == "pattern"]
    assert len(weekends) > 3
    # Bursts know of no weekend, which takes some of the edge off.
    assert float(np.mean(weekends)) == pytest.approx(WEEKEND, abs=0.15)


def test_the_same_seed_is_the_same_fleet() -> None:
    """Two makings agree to the last bit; another seed differs."""
    one, two = (next(iter(by_provider(Plan(40, 30)))) for _ in range(2))
    other = next(iter(by_provider(Plan(40, 30, seed=2))))
    assert np.array_equal(one[1].columns.ended, two[1].columns.ended)
    assert not np.array_equal(one[1].columns.ended, other[1].columns.ended)


def test_the_benchmark_runs_on_a_small_fleet() -> None:
    """It finds what is true, and says how long each stage took."""
    words = [sys.executable, str(ROOT / "benchmarks/report.py"), "--nodes", "600", "--days", "90", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    body = json.loads(done.stdout)
    assert body["held"] is True
    assert set(body["seconds"]) == {"merge", "table", "study", "page"}
    assert body["added"] > 0
