"""Shipping over real SSH while the trainer wants the network for itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.ship.conftest import Dial

from outlast.simulations.saved import committed
from outlast.wire.digests import CHUNK
from outlast.wire.store import newest_whole


@pytest.mark.parametrize("bulk", ["channels", "openssh"])
async def test_bulk_waits_for_the_end_of_a_pause_and_words_do_not(
    bulk: str, dial: Dial, replicas: Path, tmp_path: Path
) -> None:
    """Nothing arrives in a pause, a warning does at once, and afterwards the checkpoint is whole there."""
    item = await asyncio.to_thread(committed, tmp_path / "store", 10, shard_bytes=6 * CHUNK)
    peer = await dial(bulk=bulk)
    left = 60.0
    peer.pause_with(lambda: left)
    shipping = asyncio.create_task(peer.ship(item))
    done, _ = await asyncio.wait({shipping}, timeout=1.5)
    assert not done
    staged = await asyncio.to_thread(lambda: list(replicas.rglob("*.outlast-part")))
    assert staged == []
    async with asyncio.timeout(5.0):
        await peer.warn("hint", None, 10, 1)
    left = 0.0
    shipped = await asyncio.wait_for(shipping, 30.0)
    assert shipped.bytes_total == item.manifest.total_bytes
    found = await asyncio.to_thread(newest_whole, replicas)
    assert found is not None
    assert found.tag == item.tag
