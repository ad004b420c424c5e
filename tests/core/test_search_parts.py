"""A node's own part of a checkpoint is gone on from by the ranks that saved it; others take the whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from outlast.daemon.checkpoint.choosing import Go
from outlast.daemon.checkpoint.place import prove
from outlast.daemon.core.search import Search
from outlast.simulations.saved import FOUR_RANKS, committed_part
from outlast.wire.fit import world_of
from outlast.wire.manifest import Part


def _saved(store: Path) -> None:
    """Step 100, of which this node has saved ranks 0 and 1; all of it is whole at the peer."""
    prove(committed_part(store, 100, Part(0, ("a", "b"))))


@pytest.mark.parametrize(
    ("nodes", "ranks", "why"),
    [
        (2, (0, 1), ""),
        (2, (), ""),
        (2, (2,), "rank 2, which is here now, was on another"),
        (1, (0, 1), "the part of one of 2 nodes, and the job is on 1 now"),
        (4, (0,), "the part of one of 2 nodes, and the job is on 4 now"),
    ],
)
async def test_a_part_is_for_the_ranks_that_saved_it(
    tmp_path: Path, nodes: int, ranks: tuple[int, ...], why: str
) -> None:
    """Ranks that torchrun has put on another node, and a job on fewer nodes, lack files in it."""
    await asyncio.to_thread(_saved, tmp_path / "own")
    search = Search([tmp_path / "own"], nodes=nodes)
    found = await search.settle(world_of(FOUR_RANKS), ranks=ranks)
    assert found is not None
    assert isinstance(found.decision, Go) is not bool(why)
    assert why in "; ".join(found.decision.passed)
