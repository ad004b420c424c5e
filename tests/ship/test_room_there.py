"""The receiver's room and retention: N replicas stay, and a full disk is told before and while bytes come."""

from __future__ import annotations

import asyncio
import errno
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ship.conftest import Dial
from tests.ship.deliver import NOTHING, chunk_of, deliver, offer, put
from tests.ship.small_disk import small_disk

from outlast.daemon.ship import landing as landing_module
from outlast.daemon.ship import space
from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.protocol import Commit, HandOver, ProtocolError, encode, parse_request, request_body
from outlast.daemon.ship.words import RefusedError
from outlast.providers.base import SystemClock
from outlast.simulations.saved import committed
from outlast.wire.digests import CHUNK
from outlast.wire.store import newest_whole, scan, verify


def steps(replicas: Path) -> list[int]:
    """The steps of the replicas that are here, newest first."""
    return [item.step for item in scan(replicas)]


@pytest.mark.parametrize(("keep", "stay"), [(1, [40]), (2, [40, 30]), (3, [40, 30, 20])])
def test_as_many_replicas_stay_as_the_sender_asks_for(
    keep: int, stay: list[int], landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """After each commit the newest N are here, and they verify."""
    for step in (10, 20, 30, 40):
        item = committed(tmp_path / "store", step)
        deliver(landing, item)
        landing.tidy(keep, (item.epoch, item.tag))
    assert steps(replicas) == stay
    assert not [each for item in scan(replicas) for each in verify(item.path)]


def test_nothing_goes_that_is_not_older_than_what_was_just_verified(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """A newer replica that has rotted on the disk does not cost the one that has just been verified."""
    older, newer = (committed(tmp_path / "store", step) for step in (10, 20))
    deliver(landing, newer)
    victim = replicas / "epoch-1" / newer.tag / newer.manifest.files[0].path
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    deliver(landing, older)
    landing.tidy(1, (older.epoch, older.tag))
    found = newest_whole(replicas)
    assert found is not None
    assert found.tag == older.tag


def test_what_was_handed_over_stays_until_the_job_has_moved_on(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """A trainer may be resuming from it; a commit of a later epoch says that the job lives elsewhere."""
    given_over = committed(tmp_path / "store", 10)
    deliver(landing, given_over)
    landing.answer(HandOver(1, given_over.tag, 10), NOTHING)
    for step, epoch, stay in ((20, 2, [20, 10]), (30, 3, [30])):
        item = committed(tmp_path / "store", step, epoch=epoch)
        deliver(landing, item)
        landing.tidy(1, (epoch, item.tag))
        assert steps(replicas) == stay


async def test_the_configured_number_reaches_the_receiver(dial: Dial, replicas: Path, tmp_path: Path) -> None:
    """Over real SSH: of three checkpoints one stays where one was asked for, then three."""
    for keep, first, stay in ((1, 10, [30]), (3, 40, [60, 50, 40])):
        peer = await dial(keep=keep)
        for step in range(first, first + 30, 10):
            item = await asyncio.to_thread(committed, tmp_path / "store", step)
            await peer.ship(item)
        async with asyncio.timeout(10.0):  # it deletes after it has answered
            while await asyncio.to_thread(steps, replicas) != stay:  # noqa: ASYNC110 - another process deletes
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("keep", [0, -1, 1001, "2", None, True])
def test_a_senders_wish_has_bounds(keep: object) -> None:
    """Between 1 and 1000; a sender of an earlier release says nothing and gets two."""
    body = {**request_body(Commit(1, "t")), "keep": keep}
    with pytest.raises(ProtocolError):
        parse_request(encode(body))
    del body["keep"]
    assert parse_request(encode(body)) == Commit(1, "t", 2)


def test_files_that_do_not_fit_are_told_before_a_byte_is_sent(replicas: Path, tmp_path: Path) -> None:
    """Inodes run out as bytes do; a file system that counts none never refuses for them."""
    item = committed(tmp_path / "store", 100)
    full = Landing(replicas, "gpt", SystemClock(), files=lambda _: 17)
    with pytest.raises(RefusedError, match=r"needs \d+ files more, 17 \(inodes\) are free") as caught:
        offer(full, item)
    assert caught.value.code == "no_space"
    full.close()
    deliver(Landing(replicas, "gpt", SystemClock(), files=lambda _: None), item)
    assert steps(replicas) == [100]


def test_used_up_inodes_are_told_and_the_older_replica_stays(tmp_path: Path) -> None:
    """A real file system with few inodes: one replica fits, the next is refused, the first verifies."""
    with small_disk(tmp_path / "disk", "size=256m,nr_inodes=40") as disk:
        replicas = disk / "gpt"
        landing = Landing(replicas, "gpt", SystemClock())
        deliver(landing, committed(tmp_path / "store", 10))
        for number in range(space.free_files(disk) or 0):
            (disk / f"used-{number}").touch()
        item = committed(tmp_path / "store", 20)
        with pytest.raises(RefusedError, match=r"no space: ") as caught:
            offer(landing, item)
        assert caught.value.code == "no_space"
        entry = item.manifest.files[0]
        with pytest.raises(RefusedError, match=r"No space left on device.* and 0 files are free") as caught:
            put(landing, item, entry)
        assert caught.value.code == "no_space"
        assert newest_whole(replicas) is not None
        for path in disk.glob("used-*"):
            path.unlink()
        deliver(landing, item)
        landing.tidy()
        landing.close()
        assert steps(replicas) == [20, 10]


def test_a_full_disk_in_mid_transfer_is_told_and_freed_room_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal says so in figures, the older replica stays whole, and a later attempt goes through."""
    monkeypatch.setattr(space, "RESERVE_BYTES", 0)
    monkeypatch.setattr(landing_module, "RESERVE_BYTES", -(16 * CHUNK))
    with small_disk(tmp_path / "disk", "size=12m") as disk:
        replicas, ballast = disk / "gpt", disk / "ballast"
        landing = Landing(replicas, "gpt", SystemClock())
        before = committed(tmp_path / "store", 10)
        deliver(landing, before)
        item = committed(tmp_path / "store", 20, shard_bytes=2 * CHUNK)
        wanted = offer(landing, item)
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, space.free_bytes(disk))
        with pytest.raises(RefusedError, match=r"No space left on device.* 0 bytes and \d+ files") as caught:
            put(landing, item, max(item.manifest.files, key=lambda entry: entry.size))
        assert caught.value.code == "no_space"
        assert newest_whole(replicas) is not None
        assert steps(replicas) == [10]
        ballast.unlink()
        assert set(offer(landing, item)) == set(wanted)
        deliver(landing, item)
        landing.close()
        assert steps(replicas) == [20, 10]


def test_half_a_transfer_does_not_keep_the_next_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender has gone on to a newer checkpoint: what came of the older one goes where room is short."""
    monkeypatch.setattr(space, "RESERVE_BYTES", 0)
    monkeypatch.setattr(landing_module, "RESERVE_BYTES", 0)
    monkeypatch.setattr(landing_module, "_LOOK_BYTES", 0)
    with small_disk(tmp_path / "disk", "size=10m") as disk:
        replicas = disk / "gpt"
        first = Landing(replicas, "gpt", SystemClock())
        dead, newer = (committed(tmp_path / "store", step, shard_bytes=2 * CHUNK) for step in (10, 20))
        offer(first, dead)
        for entry in dead.manifest.files[:2]:
            put(first, dead, entry)
        first.close()
        landing = Landing(replicas, "gpt", SystemClock())
        deliver(landing, newer)
        landing.close()
        assert steps(replicas) == [20]
        assert not list((replicas / "epoch-1" / ".staging").iterdir())


def test_a_quota_is_told_as_no_space(replicas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's quota is not a generic failure of the disk."""
    item = committed(tmp_path / "store", 10)
    landing = Landing(replicas, "gpt", SystemClock())
    offer(landing, item)
    chunk, data = chunk_of(item, item.manifest.files[0], 0)

    def over(*_: object) -> int:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "pwrite", over)
    with pytest.raises(RefusedError, match=r"Disk quota exceeded.*quota of its user") as caught:
        landing.answer(chunk, io.BytesIO(data))
    assert caught.value.code == "no_space"


@given(
    st.lists(st.from_regex(r"[a-c](/[a-c]){0,3}/[a-z]{1,3}", fullmatch=True), unique=True, max_size=20),
)
def test_the_files_a_transfer_makes_are_counted_whole(paths: list[str]) -> None:
    """Never fewer than each file with its notes and each folder twice; more files never need fewer."""
    folders = {path.rsplit("/", keep)[0] for path in paths for keep in range(1, path.count("/") + 1)}
    assert space.files_for(paths) >= (2 * (len(paths) + len(folders)) if paths else 0)
    assert space.files_for(paths[:-1]) <= space.files_for(paths)
