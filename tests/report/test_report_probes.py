"""A pool that nodes were held in and that was probed as well: two sets of figures, told apart everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from zoneinfo import ZoneInfo

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import Study
from outlast.daemon.report import machine, rows
from outlast.daemon.report.html import page
from outlast.daemon.report.panels import MOST, panels

UTC = ZoneInfo("UTC")
EAST = Pool("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
Make = Callable[..., tuple[Study, Observed]]


def probed(history: Make, *others: Pool) -> tuple[Study, Observed]:
    """The usual study, in which the second pool's figures are those of probes of the first."""
    other = Pool("aws", "us-east-1", "us-east-1b", "p3.2xlarge")
    new = Pool("aws", "us-east-1", "us-east-1c", "p3.2xlarge")
    study, observed = history(EAST, other, *others, new)
    table = observed.table
    held, probe, *rest = study.pools
    known, its, *more = study.trends
    return (
        replace(
            study,
            pools=(held, replace(probe, pool=EAST, origin="probe"), *rest),
            trends=(known, replace(its, pool=EAST, origin="probe"), *more),
        ),
        replace(
            observed,
            table=replace(
                table,
                pools=(EAST, EAST, *table.pools[2:]),
                origin=("held", "probe", *table.origin[2:]),
            ),
        ),
    )


def test_each_chart_shows_the_weeks_of_its_own(history: Make) -> None:
    """The weeks drawn under a name add up to the losses of that pool's row, held or probed."""
    study, observed = probed(history)
    drawn = panels(study, observed, None, UTC)
    assert [chart.caption for chart in drawn.over_time] == ["us-east-1a", "us-east-1a (probes)"]
    assert [panel.name for panel in drawn.heat] == ["us-east-1a", "us-east-1a (probes)"]
    assert drawn.trends == study.trends
    sums = [sum(week.losses for week in trend.weeks) for trend in drawn.trends]
    assert sums == [pool.losses for pool in study.pools[:2]]
    assert sums[0] != sums[1]
    assert drawn.over_time[0].svg != drawn.over_time[1].svg


def test_rows_of_probes_say_so(history: Make) -> None:
    """The table of weeks and the raw counts have two rows of one pool, of which one is named as probes."""
    study, observed = probed(history)
    weeks = rows.weeks(panels(study, observed, None, UTC).trends)
    for name, pool in zip(("us-east-1a", "us-east-1a (probes)"), study.pools[:2], strict=True):
        assert sum(int(losses) for one, _, _, losses, _ in weeks if one == name) == pool.losses
    raw = rows.raw(study, observed)
    assert [row.name for row in raw.pools] == ["us-east-1a", "us-east-1a (probes)", "us-east-1c"]
    text = unescape(page(study, None, observed, study.now, UTC))
    assert len(re.findall(r"<svg[^>]*us-east-1a \(probes\) over time", text)) == 1


def test_a_pool_is_not_drawn_for_its_probes(history: Make) -> None:
    """Of many pools the most seen are drawn: being probed a lot brings no held nodes in, nor the reverse."""
    many = [Pool("aws", "us-east-1", f"use1-az{number}", "p3.2xlarge") for number in range(MOST)]
    study, observed = probed(history, *many)
    held, probe, *rest = study.pools
    hours = held.exposure_h
    study = replace(study, pools=(replace(held, exposure_h=hours / 2), probe, *rest))
    drawn = panels(study, observed, None, UTC)
    captions = [chart.caption for chart in drawn.over_time]
    assert len(captions) == MOST
    assert "us-east-1a" not in " ".join(captions).replace("us-east-1a (probes)", "")
    assert any("(probes)" in caption for caption in captions)


def test_programs_are_told_the_origin_of_a_trend(history: Make) -> None:
    """Two trends of one pool differ in their ``origin``, as its two pools do."""
    body = machine.body(*probed(history), None)
    assert [one["origin"] for one in body["trends"]] == ["held", "probe"]
    assert [one["origin"] for one in body["pools"][:2]] == ["held", "probe"]
    assert body["trends"][0]["pool"] == body["trends"][1]["pool"]
