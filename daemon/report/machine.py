"""The report for programs: one JSON object, or one CSV row a pool."""

from __future__ import annotations

import csv
import math
from dataclasses import asdict
from io import StringIO
from typing import Any

from outlast.daemon.advice.values import Advice, BackTest
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import Claim, PoolRate, Study
from outlast.daemon.report.text import cell

FORMAT = 1
COLUMNS = (
    "provider",
    "region",
    "zone",
    "instance_type",
    "origin",
    "exposure_h",
    "spells",
    "losses",
    "bursts",
    "days",
    "per_hour",
    "per_hour_low",
    "per_hour_high",
    "now_per_hour",
    "now_per_hour_low",
    "now_per_hour_high",
    "as_left_per_hour",
    "phi",
    "mean_burst",
    "largest_burst",
    "typical_stay_h",
    "newest",
    "state",
    "because",
)
_CLAIM_COLUMNS = ("provider", "region", "hours", "ratio", "low", "high", "p", "losses", "expected", "verdict")


def body(
    study: Study,
    observed: Observed,
    advice: Advice | None = None,
    claims: tuple[Claim, ...] | None = None,
    backtest: BackTest | None = None,
) -> dict[str, Any]:
    """All that was found, as JSON values; what is not a finite number is None. Text is as it was observed."""
    found = {"format": FORMAT, "sources": list(observed.sources), **asdict(study)}
    found["notes"] = [*study.notes, *observed.notes]
    found["advice"] = None if advice is None else asdict(advice)
    if backtest is not None:
        found["backtest"] = asdict(backtest)
    if claims is not None:
        found["claims"] = [asdict(claim) for claim in claims]
    plain: dict[str, Any] = _plain(found)
    return plain


def advice_body(advice: Advice, observed: Observed) -> dict[str, Any]:
    """The recommendation alone, as JSON values; what is not a finite number is None."""
    found = {"format": FORMAT, "sources": list(observed.sources), "notes": list(observed.notes)}
    plain: dict[str, Any] = _plain({**found, **asdict(advice)})
    return plain


def pools_csv(study: Study) -> str:
    """A heading and one row a pool. Text is made safe for terminals and spreadsheets."""
    return _csv(COLUMNS, [_pool(pool) for pool in study.pools])


def claims_csv(claims: tuple[Claim, ...]) -> str:
    """A heading and one row a verdict on a claim."""
    rows: list[tuple[object, ...]] = [
        (
            cell(c.provider),
            cell(c.region),
            " ".join(map(str, c.hours)),
            *(c.ratio.mean, c.ratio.low, c.ratio.high, c.p, c.losses, c.expected, c.verdict),
        )
        for c in claims
    ]
    return _csv(_CLAIM_COLUMNS, rows)


def _pool(pool: PoolRate) -> tuple[object, ...]:
    where = (pool.pool.provider, pool.pool.region, pool.pool.zone, pool.pool.instance_type)
    return (
        *map(cell, where),
        pool.origin,
        *(pool.exposure_h, pool.spells, pool.losses, pool.bursts, pool.days),
        *(pool.hazard.mean, pool.hazard.low, pool.hazard.high),
        *(pool.current.mean, pool.current.low, pool.current.high),
        *(pool.as_left, pool.phi, pool.mean_burst, pool.largest_burst, pool.typical_stay_h),
        pool.newest,
        pool.state,
        cell(pool.because),
    )


def _csv(heading: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    held = StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([_plain(list(row)) for row in rows])
    return held.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    return _plain(value.item())  # a numpy scalar
