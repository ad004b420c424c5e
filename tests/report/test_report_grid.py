"""The heat-map is as fine as the data allow, and no finer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from outlast.daemon.rates.table import Observed, Table
from outlast.daemon.rates.values import Study
from outlast.daemon.report.grid import MOST_LEVEL, HeatMap, heat_map, part_label

Make = Callable[..., tuple[Study, Observed]]


def scaled(history: Make, times: float) -> HeatMap:
    """The heat-map of the second pool had it been seen and lost so many times as much."""
    study, observed = history()
    table = observed.table
    pool = study.pools[1]
    counts = (
        table.losses * round(times) if times >= 1 else np.random.default_rng(3).binomial(table.losses, times)
    )
    more = replace(table, exposure=table.exposure * times, losses=counts)
    losses = int(more.losses[1].sum())
    found = heat_map(more, replace(pool, exposure_h=pool.exposure_h * times, losses=losses, phi=1.0))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("times", "parts", "days"), [(30.0, 24, 7), (1.0, 24, 2), (0.5, 6, 7), (0.2, 6, 2), (0.02, 1, 2)]
)
def test_resolution_follows_the_data(history: Make, times: float, parts: int, days: int) -> None:
    """Ten times the data show more of the day and the week; too little shows neither."""
    found = scaled(history, times)
    assert (found.parts, len(found.days)) == (parts, days)
    if parts > 1:
        assert found.shown >= 0.8 * parts * days


def test_cells_add_up_to_what_was_seen(history: Make) -> None:
    """Nothing is lost between cells and margins, at any resolution."""
    for times in (30.0, 1.0, 0.1):
        found = scaled(history, times)
        whole = sum(cell.exposure_h for row in found.cells for cell in row)
        assert whole == pytest.approx(found.pool.exposure_h)
        assert sum(cell.exposure_h for cell in found.by_part) == pytest.approx(whole)
        assert sum(cell.losses for cell in found.by_day) == found.pool.losses


def test_an_hour_of_the_epoch_falls_on_its_weekday(history: Make) -> None:
    """The table begins on a Monday at midnight: a loss in hour 5 * 24 + 9 is Saturday's, at nine."""
    study, observed = history()
    losses = np.zeros_like(observed.table.losses)
    losses[0, 3, 5 * 24 + 9] = 40
    table: Table = replace(observed.table, losses=losses, exposure=observed.table.exposure * 30)
    pool = replace(study.pools[0], exposure_h=float(table.exposure[0].sum()), losses=40, phi=1.0)
    found = heat_map(table, pool)
    assert found is not None
    assert [cell.losses for cell in found.by_day] == [0, 40]


def test_levels_stay_on_the_scale_and_small_cells_say_nothing(history: Make) -> None:
    """A cell has a rate and a level from a quarter to four times the mean, or neither."""
    found = scaled(history, 0.5)
    for cell in (cell for row in found.cells for cell in row):
        assert abs(cell.level) <= MOST_LEVEL
        if cell.hazard is None:
            assert cell.level == 0
        else:
            assert cell.hazard.high < 8 * cell.hazard.low


def test_a_pool_without_losses_has_no_map(history: Make) -> None:
    """Nothing lost, nothing to colour."""
    study, observed = history()
    assert heat_map(observed.table, study.pools[-1]) is None
    assert [part_label(2, parts) for parts in (24, 6)] == ["02", "08\N{EN DASH}12"]
