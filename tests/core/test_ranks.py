"""What is believed of a rank's words."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from outlast.daemon.core.ranks import Ranks
from outlast.daemon.core.trainers import Connection
from outlast.wire.messages import At, Hello, Layout, Progress


@pytest.mark.parametrize("pace", [math.nan, math.inf, -math.inf])
def test_a_pace_that_is_no_number_is_not_known(pace: float) -> None:
    """The step counts; a pace that JSON cannot carry on is left out of the status."""
    ranks = Ranks()
    connection = Connection(cast("Any", None), 1, 0, Hello("tune", 0, 1, "/data", Layout(1)))
    ranks.add(connection)
    ranks.progress(connection, Progress(5, pace))
    assert (ranks.step, ranks.step_s) == (5, 0.0)


def test_a_promise_tells_the_step() -> None:
    """A rank that will not pass the end of step 15 has completed 14, whatever it said a second ago."""
    ranks = Ranks()
    connection = Connection(cast("Any", None), 1, 0, Hello("tune", 0, 1, "/data", Layout(1), step=10))
    ranks.add(connection)
    ranks.at(connection, At("flush", 15))
    assert ranks.step == 14
