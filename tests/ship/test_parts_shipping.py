"""Two nodes ship their parts of one checkpoint over a real SSH server, and the last one makes it count."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.ship.link import Peer
from outlast.simulations.saved import committed_part
from outlast.wire.manifest import Part
from outlast.wire.store import Committed, newest_whole, verify

if TYPE_CHECKING:
    from tests.ship.conftest import Dial

NODES = ("node-a", "node-b")
SHARD = 3 << 20


async def saved(folder: Path, step: int, index: int) -> Committed:
    """What one node has committed on its own disk."""
    return await asyncio.to_thread(
        committed_part, folder / NODES[index], step, Part(index, NODES), shard_bytes=SHARD
    )


async def newest(replicas: Path) -> Committed | None:
    return await asyncio.to_thread(newest_whole, replicas)


def heard(peer: Peer) -> tuple[int, str, int] | None:
    """The newest whole checkpoint that the sender knows of."""
    return peer.state.newest


@pytest.mark.parametrize("bulk", ["channels", "openssh", "rsync"])
async def test_two_nodes_make_one_checkpoint(dial: Dial, replicas: Path, tmp_path: Path, bulk: str) -> None:
    """Whichever way the bytes take, the first node hears whom it waits for, and both that it is whole."""
    one, other = await dial(bulk=bulk), await dial(bulk=bulk)
    first, second = await saved(tmp_path, 100, 0), await saved(tmp_path, 100, 1)
    shipped = await one.ship(first)
    assert shipped.waiting == ("node-b",)
    assert shipped.bytes_sent == first.manifest.total_bytes
    assert heard(one) is None
    (seen,) = (await other.ask_state()).parts
    assert (seen.tag, seen.there, seen.lacks) == (first.tag, ("node-a",), ("node-b",))
    assert await newest(replicas) is None
    assert (await other.ship(second)).waiting == ()
    assert other.state.newest == (1, "global_step100", 100)
    again = await one.ship(first)
    assert (again.waiting, again.bytes_sent) == ((), 0)
    assert heard(one) == (1, "global_step100", 100)
    assert (await one.ask_state()).parts == ()
    found = await newest(replicas)
    assert found is not None
    assert await asyncio.to_thread(verify, found.path) == []
    assert set(found.manifest.files) == {*first.manifest.files, *second.manifest.files}


async def test_both_nodes_at_once_and_cut_off_in_between(dial: Dial, replicas: Path, tmp_path: Path) -> None:
    """Two transfers side by side do not disturb each other, and one that broke off goes on where it was."""
    one, other = await dial(bulk="channels", limit_bytes_s=6e6), await dial(bulk="channels")
    first, second = await saved(tmp_path, 200, 0), await saved(tmp_path, 200, 1)
    begun = asyncio.Event()
    cut = asyncio.create_task(one.ship(first, lambda _sent, _total: begun.set()))
    await asyncio.wait_for(begun.wait(), 30)
    cut.cancel()
    await asyncio.gather(cut, return_exceptions=True)
    assert await newest(replicas) is None
    both = await asyncio.gather(one.ship(first), other.ship(second))
    assert sorted(map(len, (each.waiting for each in both))) == [0, 1]
    assert both[0].bytes_sent < first.manifest.total_bytes
    found = await newest(replicas)
    assert found is not None
    assert found.step == 200
