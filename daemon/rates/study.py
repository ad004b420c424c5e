"""Everything that can be found in what was observed, in one value."""

from __future__ import annotations

from outlast.daemon.rates.ages import curves
from outlast.daemon.rates.coverage import WEEKS, coverage
from outlast.daemon.rates.gate import patterns
from outlast.daemon.rates.pools import estimate
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.trend import trends
from outlast.daemon.rates.values import Study
from outlast.daemon.rates.weekend import weekends


def study(observed: Observed, now: float) -> Study:
    """Estimate all rates and judge all patterns as of UTC ``now``. An empty history gives an empty study."""
    table = observed.table
    pools = estimate(table, now)
    return Study(
        begins=table.begins,
        ends=min(table.ends, now),
        now=now,
        pools=pools,
        ages=curves(table),
        weekends=weekends(table),
        patterns=patterns(table),
        trends=trends(table, pools),
        coverage=coverage(table, weeks=WEEKS),
        notes=observed.notes,
    )
