"""Shipping to a real sshd, by either bulk: one behaviour. Then what goes wrong on the way."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.ship import transfer
from outlast.daemon.ship.link import Peer
from outlast.daemon.ship.session import Session
from outlast.daemon.ship.transfer import Transfer
from outlast.simulations.saved import committed
from outlast.simulations.sshd import Sshd, make_key
from outlast.wire.digests import CHUNK
from outlast.wire.store import Committed, newest_whole, scan, verify

either_bulk = pytest.mark.parametrize("bulk", ["channels", "openssh", "rsync"])


async def store_with(tmp_path: Path, step: int, **more: Any) -> Committed:
    """A checkpoint committed in the sender's store."""
    return await asyncio.to_thread(committed, tmp_path / "store", step, **more)


async def until_reachable(peer: Peer, *, wanted: bool) -> None:
    """Wait until the peer's state says so, at most 15 s."""
    changed = asyncio.Event()
    peer.on_change = lambda _: changed.set()
    async with asyncio.timeout(15.0):
        while peer.state.reachable is not wanted:
            await changed.wait()
            changed.clear()


@either_bulk
async def test_a_shipped_checkpoint_is_whole_at_the_peer(bulk: str, dial: Any, tmp_path: Path) -> None:
    """Ship, and the peer has it committed under the same manifest; ship again, and no byte travels."""
    item = await store_with(tmp_path, 100, shard_bytes=300_000)
    peer: Peer = await dial(bulk=bulk)
    seen: list[tuple[int, int]] = []
    shipped = await peer.ship(item, lambda there, total: seen.append((there, total)))
    assert shipped.bytes_sent == shipped.bytes_total == item.manifest.total_bytes
    assert seen == sorted(seen)
    assert seen[-1] == (shipped.bytes_total, shipped.bytes_total)
    found = await asyncio.to_thread(newest_whole, tmp_path / "replicas" / "gpt")
    assert found is not None
    assert found.manifest == item.manifest
    assert peer.state.newest == (1, "global_step100", 100)
    again = await peer.ship(item)
    assert (again.bytes_sent, again.bytes_total) == (0, shipped.bytes_total)


@either_bulk
async def test_a_cancelled_ship_leaves_nothing_whole_and_can_go_on(
    bulk: str, dial: Any, tmp_path: Path
) -> None:
    """A sender that changes its mind in mid-file leaves no checkpoint; files that arrived are not resent."""
    item = await store_with(tmp_path, 100, shard_bytes=6_000_000)
    peer: Peer = await dial(bulk=bulk, channels=1)
    halfway = asyncio.Event()

    def note(there: int, total: int) -> None:
        if there > total * 0.6:
            halfway.set()

    task = asyncio.create_task(peer.ship(item, note))
    async with asyncio.timeout(20):
        await halfway.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    replicas = tmp_path / "replicas" / "gpt"
    assert await asyncio.to_thread(scan, replicas) == []
    shipped = await peer.ship(item)
    assert shipped.bytes_sent < item.manifest.total_bytes
    assert await asyncio.to_thread(verify, replicas / "epoch-1" / item.tag) == []


@either_bulk
async def test_a_damaged_file_is_not_shipped_as_whole(bulk: str, dial: Any, tmp_path: Path) -> None:
    """A byte that changed on the sender's disk is found by the peer, and the sender is named as the place."""
    item = await store_with(tmp_path, 100)
    victim = item.path / item.manifest.files[1].path
    data = bytearray(await asyncio.to_thread(victim.read_bytes))
    data[-1] ^= 1
    await asyncio.to_thread(victim.write_bytes, data)
    peer: Peer = await dial(bulk=bulk)
    with pytest.raises(Refused, match=f"damaged here: {victim.name}") as caught:
        await peer.ship(item)
    assert caught.value.code == "damaged"
    assert await asyncio.to_thread(scan, tmp_path / "replicas" / "gpt") == []


async def test_a_torn_checkpoint_is_not_even_offered(dial: Any, tmp_path: Path) -> None:
    """T7: a file that is gone or short is seen before anything is sent."""
    item = await store_with(tmp_path, 200)
    await asyncio.to_thread(os.truncate, item.path / item.manifest.files[0].path, 5)
    peer: Peer = await dial()
    with pytest.raises(Refused, match="5 bytes, not"):
        await peer.ship(item)
    assert not (tmp_path / "replicas" / "gpt" / "epoch-1").exists()


@either_bulk
async def test_a_fenced_epoch_is_refused(bulk: str, dial: Any, tmp_path: Path) -> None:
    """T13: after the handover the peer takes nothing more of the old epoch."""
    item = await store_with(tmp_path, 100, epoch=3)
    peer: Peer = await dial(bulk=bulk)
    await peer.ship(item)
    await peer.warn("notice", 30.0, 100, 3)
    assert await peer.hand_over(3, item.tag, 100) == 4
    assert peer.state.fence == 4
    assert await peer.hand_over(3, item.tag, 100) == 4
    later = await store_with(tmp_path, 110, epoch=3)
    with pytest.raises(Refused, match="epoch 3 is over") as caught:
        await peer.ship(later)
    assert caught.value.code == "fenced"


async def test_another_job_is_refused_by_the_peer(dial: Any, tmp_path: Path) -> None:
    """The key of one job cannot deliver another's checkpoints."""
    item = await store_with(tmp_path, 100, job="other")
    with pytest.raises(Refused) as caught:
        await (await dial()).ship(item)
    assert caught.value.code == "wrong_job"


async def test_the_wrong_host_key_is_named(dial: Any, tmp_path: Path) -> None:
    """A peer that is not the pinned one gets nothing, and both fingerprints are told."""
    other = await make_key(tmp_path / "other")
    peer: Peer = await dial(host_key=other.public)
    with pytest.raises(Unreachable, match=r"showed the host key SHA256:\S+, but SHA256:\S+ is configured"):
        await peer.ask_state()
    assert peer.state.reachable is False


@pytest.mark.parametrize("what", ["missing", "garbage", "folder"])
async def test_an_unreadable_key_is_named(what: str, dial: Any, tmp_path: Path) -> None:
    """A key file that is not there or no key is told with its path and what to check."""
    key = tmp_path / "key"
    if what == "garbage":
        await asyncio.to_thread(key.write_text, "no key\n")
    elif what == "folder":
        key.mkdir()
    peer: Peer = await dial(key=key)
    with pytest.raises(Unreachable, match=str(key)):
        await peer.ask_state()


async def test_an_unknown_key_is_told_with_its_fingerprint(dial: Any, tmp_path: Path) -> None:
    """A key that the peer does not know: the message says where it belongs."""
    stranger = await make_key(tmp_path / "stranger")
    peer: Peer = await dial(key=stranger.private)
    with pytest.raises(Unreachable, match=r"refused the key SHA256:\S+ put its public half"):
        await peer.ask_state()


async def test_a_host_key_that_is_none_is_told(dial: Any) -> None:
    """A host_key that cannot be read says where the right one lies."""
    peer: Peer = await dial(host_key="ssh-ed25519 nonsense")
    with pytest.raises(Unreachable, match=r"ssh_host_ed25519_key\.pub"):
        await peer.ask_state()


async def test_a_peer_that_is_down_is_found_again_when_it_is_up(
    sshd: Sshd, dial: Any, tmp_path: Path
) -> None:
    """Down is told, requests fail at once with the reason, and a restart is noticed without being asked."""
    peer: Peer = await dial()
    await peer.ask_state()
    await sshd.stop()
    await until_reachable(peer, wanted=False)
    with pytest.raises(Unreachable, match=r"cannot be reached|broke"):
        await peer.ask_state()
    await sshd.start()
    await until_reachable(peer, wanted=True)
    item = await store_with(tmp_path, 100)
    assert (await peer.ship(item)).bytes_total == item.manifest.total_bytes


@either_bulk
async def test_kill_9_of_the_receiver_in_mid_transfer(
    bulk: str, sshd: Sshd, dial: Any, tmp_path: Path
) -> None:
    """A receiver that is killed while bytes flow: the ship fails, and the next one sends what is missing."""
    item = await store_with(tmp_path, 100, shard_bytes=6_000_000)
    peer: Peer = await dial(bulk=bulk, channels=1)
    await peer.ask_state()
    kills: list[asyncio.Task[None]] = []

    async def kill() -> None:
        for pid in await sshd.sessions():
            os.kill(pid, 9)

    def note(there: int, total: int) -> None:
        if there > total * 0.6 and not kills:
            kills.append(asyncio.create_task(kill()))

    with pytest.raises(Unreachable):
        await peer.ship(item, note)
    await kills[0]
    replicas = tmp_path / "replicas" / "gpt"
    assert await asyncio.to_thread(scan, replicas) == []
    shipped = await peer.ship(item)
    assert 0 < shipped.bytes_sent < item.manifest.total_bytes
    assert await asyncio.to_thread(verify, replicas / "epoch-1" / item.tag) == []


async def test_a_session_that_was_idle_while_others_sent_is_not_asked_to_commit(
    dial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that offered carries chunks too; the last ones of another take longer than a receiver waits."""
    item = await asyncio.to_thread(committed, tmp_path / "store", 100, shard_bytes=14 * CHUNK)
    monkeypatch.setattr(transfer, "IDLE_S", 0.2)
    lend, settle = Transfer.lend, Session.settle
    lent: list[Session] = []

    def noted(self: Transfer, session: Session) -> Any:
        lent.append(session)
        return lend(self, session)

    async def slow(self: Session) -> Any:
        found = await settle(self)
        if self not in lent:
            await asyncio.sleep(1.0)
            lent[0].process.close()  # as the receiver does by then
        return found

    monkeypatch.setattr(Transfer, "lend", noted)
    monkeypatch.setattr(Session, "settle", slow)
    peer = await dial(bulk="channels")
    assert (await peer.ship(item)).bytes_total == item.manifest.total_bytes
