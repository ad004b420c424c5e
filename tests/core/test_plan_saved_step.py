"""Which step a checkpoint is committed under: the one the ranks say they saved."""

from __future__ import annotations

import pytest

from outlast.daemon.core.facts import Cause, Commit, Facts, FlushFact, GiveUp, RankFact
from outlast.daemon.core.plan import plan

NOW = 1_000.0
FLUSH = "i-1@7"


def saved(*steps: int, agreed: int | None) -> Facts:
    """All ranks have saved ``global_step7``, each saying for itself of which step that is."""
    ranks = tuple(
        RankFact(number, 70 + number, 9, 8, "global_step7", saved_step=step)
        for number, step in enumerate(steps)
    )
    flush = FlushFact(FLUSH, Cause.NOTICE, NOW - 1.0, NOW + 60.0, hold=True, agreed=agreed)
    return Facts(now=NOW, epoch=1, world=len(steps), ranks=ranks, flush=flush)


@pytest.mark.parametrize("agreed", [7, 8, None])
def test_the_step_that_was_saved_counts(agreed: int | None) -> None:
    """A flush that outlived a daemon may have been agreed upon again, later than the ranks had saved."""
    assert plan(saved(7, 7, agreed=agreed)).actions == (Commit(FLUSH, "global_step7", 7),)


def test_different_steps_are_no_checkpoint() -> None:
    """Ranks that saved different steps under one name have no checkpoint in common."""
    decision = plan(saved(7, 8, agreed=8))
    assert decision.actions == (GiveUp(FLUSH, "ranks saved different steps (7, 8)"),)
