"""The report for programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace

from outlast.daemon.advice.values import Advice
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import Claim, Range, Study
from outlast.daemon.report import machine

Make = Callable[..., tuple[Study, Observed]]
KEYS = {
    "format",
    "sources",
    "begins",
    "ends",
    "now",
    "pools",
    "ages",
    "weekends",
    "patterns",
    "trends",
    "coverage",
    "notes",
    "advice",
}
POOL_KEYS = {
    "pool",
    "origin",
    "exposure_h",
    "spells",
    "losses",
    "bursts",
    "days",
    "shape",
    "rate_h",
    "phi",
    "hazard",
    "as_left",
    "current",
    "current_shape",
    "current_rate_h",
    "typical_stay_h",
    "state",
    "because",
    "newest",
    "causes",
    "mean_burst",
    "largest_burst",
}


def test_no_key_of_the_json_is_taken_away(history: Make, advice: Advice) -> None:
    """Programs read these; keys are only ever added."""
    body = json.loads(json.dumps(machine.body(*history(), advice), allow_nan=False))
    assert set(body) >= KEYS
    assert set(body["pools"][0]) >= POOL_KEYS
    assert body["format"] == 1
    assert body["pools"][0]["pool"] == {
        "provider": "aws",
        "region": "us-west-2",
        "zone": "us-west-2b",
        "instance_type": "p3.2xlarge",
    }
    assert body["advice"]["verdict"] == "run"


def test_what_is_no_number_is_null(history: Make) -> None:
    """JSON knows no infinity; a reader of it is not to fail on one."""
    study, observed = history()
    odd = replace(study.pools[0], hazard=Range(0.1, 0.0, float("inf")), typical_stay_h=float("nan"))
    body = machine.body(replace(study, pools=(odd,)), observed)
    text = json.dumps(body, allow_nan=False)
    assert json.loads(text)["pools"][0]["hazard"] == {"mean": 0.1, "low": 0.0, "high": None}


def test_csv_has_one_row_a_pool_that_a_spreadsheet_reads(history: Make) -> None:
    """Heading and rows are equally long, figures are figures, and a name is no formula."""
    study, _ = history(*(Pool("aws", "r", f'=1+1,"{i}"\n\x1b[1m', "t") for i in range(3)))
    rows = list(csv.DictReader(machine.pools_csv(study).splitlines()))
    assert len(rows) == 3
    assert set(rows[0]) == set(machine.COLUMNS)
    assert rows[0]["zone"] == '\'=1+1,"0" [1m'
    assert float(rows[0]["per_hour"]) == study.pools[0].hazard.mean
    assert rows[2]["typical_stay_h"] == ""


def test_claims_have_a_csv_of_their_own() -> None:
    """One row a verdict."""
    claim = Claim("aws", "", (0, 6), Range(1.0, 0.9, 1.2), 0.4, 10, 9.5, "refused", "no")
    (row,) = csv.DictReader(machine.claims_csv((claim,)).splitlines())
    assert (row["hours"], row["verdict"], row["ratio"]) == ("0 6", "refused", "1.0")
