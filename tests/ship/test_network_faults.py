"""T12: the connection is cut, falls silent, or alters a byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.checkpoint.destinations import Unreachable
from outlast.daemon.ship.link import Peer
from outlast.simulations.saved import committed
from outlast.simulations.sshd import Sshd
from outlast.simulations.wan import Relay
from outlast.wire.store import Committed, scan, verify

SHARD = 20_000_000
LARGE_SHARD = 67_000_000


@pytest.fixture
async def relay(sshd: Sshd) -> AsyncIterator[Relay]:
    """The way to the server, through a relay that can misbehave."""
    async with Relay(sshd.host, sshd.port) as way:
        yield way


@pytest.fixture
async def item(tmp_path: Path) -> Committed:
    """A checkpoint of about 60 MB."""
    return await asyncio.to_thread(committed, tmp_path / "store", 100, shard_bytes=SHARD)


async def whole_at_peer(tmp_path: Path, item: Committed) -> bool:
    """The replica is committed and verifies."""
    return not await asyncio.to_thread(verify, tmp_path / "replicas" / "gpt" / "epoch-1" / item.tag)


async def test_t12a_cut_in_mid_transfer(relay: Relay, item: Committed, dial: Any, tmp_path: Path) -> None:
    """Cut at 60 %: nothing has the final name; little more than the rest is sent again, inside files too."""
    peer: Peer = await dial(port=relay.port)
    await peer.ask_state()
    relay.cut_after = relay.forwarded + int(item.manifest.total_bytes * 0.6)
    with pytest.raises(Unreachable):
        await peer.ship(item)
    assert await asyncio.to_thread(scan, tmp_path / "replicas" / "gpt") == []
    shipped = await peer.ship(item)
    # The other 40 %, and what was under way on four channels: a window of 2 MiB each and a write of 1 MiB.
    assert shipped.bytes_sent <= item.manifest.total_bytes * 0.4 + 4 * 3 * 2**20
    assert await whole_at_peer(tmp_path, item)


@pytest.mark.parametrize("bulk", ["channels", "openssh"])
async def test_t12a_what_travels_again(bulk: str, relay: Relay, dial: Any, tmp_path: Path) -> None:
    """Of a checkpoint of 200 MB that is cut at 60 %, at most 45 % travels again."""
    item = await asyncio.to_thread(committed, tmp_path / "store", 100, shard_bytes=LARGE_SHARD)
    peer: Peer = await dial(port=relay.port, bulk=bulk)
    await peer.ask_state()
    relay.cut_after = relay.forwarded + int(item.manifest.total_bytes * 0.6)
    with pytest.raises(Unreachable):
        await peer.ship(item)
    shipped = await peer.ship(item)
    assert shipped.bytes_sent <= item.manifest.total_bytes * 0.45
    assert await whole_at_peer(tmp_path, item)


async def test_t12a_cut_under_rsync(relay: Relay, item: Committed, dial: Any, tmp_path: Path) -> None:
    """With rsync, files that had arrived are not sent again."""
    peer: Peer = await dial(port=relay.port, bulk="rsync")
    await peer.ask_state()
    relay.cut_after = relay.forwarded + int(item.manifest.total_bytes * 0.6)
    with pytest.raises(Unreachable):
        await peer.ship(item)
    assert await asyncio.to_thread(scan, tmp_path / "replicas" / "gpt") == []
    shipped = await peer.ship(item)
    assert shipped.bytes_sent < item.manifest.total_bytes * 0.75
    assert await whole_at_peer(tmp_path, item)


@pytest.mark.parametrize("bulk", ["channels", "openssh", "rsync"])
async def test_t12b_silence_is_noticed(
    bulk: str, relay: Relay, item: Committed, dial: Any, tmp_path: Path
) -> None:
    """A network that keeps the connection and forwards nothing is noticed within 15 s, then retried."""
    peer: Peer = await dial(port=relay.port, bulk=bulk, keepalive_s=1.0)
    await peer.ask_state()
    relay.silent_after = relay.forwarded + SHARD
    began = time.monotonic()
    with pytest.raises(Unreachable):
        await peer.ship(item)
    assert time.monotonic() - began < 8.0  # 15 s in proportion to the keepalive, and the bytes before it
    relay.silent_after = None
    assert (await peer.ship(item)).bytes_total == item.manifest.total_bytes
    assert await whole_at_peer(tmp_path, item)


async def test_t12d_an_altered_byte_is_never_taken(
    relay: Relay, item: Committed, dial: Any, tmp_path: Path
) -> None:
    """SSH itself refuses an altered packet; what was whole before it is not sent again."""
    peer: Peer = await dial(port=relay.port)
    await peer.ask_state()
    relay.alter_after = relay.forwarded + int(item.manifest.total_bytes * 0.6)
    with pytest.raises(Unreachable):
        await peer.ship(item)
    assert await asyncio.to_thread(scan, tmp_path / "replicas" / "gpt") == []
    shipped = await peer.ship(item)
    assert shipped.bytes_sent <= item.manifest.total_bytes * 0.65
    assert await whole_at_peer(tmp_path, item)
