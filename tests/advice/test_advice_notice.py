"""What a provider's notice is worth to the advice: the same lengths as the plan on paper goes by."""

from __future__ import annotations

import pytest

from outlast.daemon.advice.job import FLUSH_S, FLUSH_SHARE, filled
from outlast.daemon.advice.values import Request
from outlast.daemon.rates.table import Timing
from outlast.providers.notices import NOTICES, usual_s

PROVIDERS = sorted({notice.provider for notice in NOTICES})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_flush_counts_where_a_notice_of_the_plan_has_room_for_it(provider: str) -> None:
    """Half of the flushes are believed of a provider that plans say gives the time; else none."""
    job, _, _ = filled(Request(hours=10.0), Timing())
    longest = max(notice.seconds for notice in NOTICES if notice.provider == provider)
    assert job.flush_share(provider) == (FLUSH_SHARE if longest >= FLUSH_S else 0.0)


def test_seconds_to_count_on() -> None:
    """The published lengths, Azure's as seen; AWS's is not that of hibernation; nothing of a stranger."""
    counted = {provider: usual_s(provider) for provider in ("aws", "gcp", "azure", "vast", "nobody")}
    assert counted == {"aws": 120.0, "gcp": 30.0, "azure": 8.0, "vast": 0.0, "nobody": 0.0}
