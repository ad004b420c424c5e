"""Shipping while the ranks still save: what goes early, what changes later, what never comes to be."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from outlast.daemon.checkpoint.commit import commit
from outlast.daemon.ship import carrier, early
from outlast.daemon.ship.link import Peer
from outlast.daemon.ship.openssh import OpenSsh
from outlast.simulations.saved import order, save_tag
from outlast.wire.digests import CHUNK
from outlast.wire.manifest import MANIFEST_NAME
from outlast.wire.store import Committed, newest_whole, scan, verify

SHARD = 12 * CHUNK
STEP = 100


def partial(tmp_path: Path) -> Path:
    """The folder that the ranks save into."""
    return tmp_path / "store" / "epoch-1" / f"global_step{STEP}.partial"


def place() -> tuple[int, str]:
    """What it is going to be."""
    return (1, f"global_step{STEP}")


def finish(tmp_path: Path) -> Committed:
    """The ranks are done: commit."""
    return commit(tmp_path / "store", order(STEP), 1.0)


async def until_there(tmp_path: Path, count: int) -> None:
    """Wait until the peer has noted so many bytes of digests, at most 20 s."""
    staging = tmp_path / "replicas" / "gpt" / "epoch-1" / ".staging"

    def noted() -> int:
        return sum(
            path.stat().st_size for path in staging.rglob("*") if ".chunks" in str(path) and path.is_file()
        )

    async with asyncio.timeout(20.0):
        while await asyncio.to_thread(noted) < count:  # noqa: ASYNC110 - the peer's folder has no event
            await asyncio.sleep(0.02)


async def started(peer: Peer, tmp_path: Path) -> tuple[asyncio.Future[Committed], asyncio.Task[Any]]:
    """A stream of the folder, and what ends it."""
    await peer.ask_state()
    done: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
    return done, asyncio.create_task(peer.stream(place(), partial(tmp_path), done))


@pytest.mark.parametrize("bulk", ["channels", "openssh"])
async def test_most_bytes_go_before_the_commit(bulk: str, dial: Any, tmp_path: Path) -> None:
    """The peer has nearly all chunks when the checkpoint is committed here; nothing counts before."""
    peer: Peer = await dial(bulk=bulk)
    await asyncio.to_thread(save_tag, partial(tmp_path), shard_bytes=SHARD)
    done, stream = await started(peer, tmp_path)
    await until_there(tmp_path, 3 * (64 + 32 * 10))
    assert await asyncio.to_thread(scan, tmp_path / "replicas" / "gpt") == []
    done.set_result(await asyncio.to_thread(finish, tmp_path))
    shipped = await stream
    assert shipped.early >= 0.75 * shipped.bytes_total
    assert shipped.bytes_sent == shipped.bytes_total
    found = await asyncio.to_thread(newest_whole, tmp_path / "replicas" / "gpt")
    assert found is not None
    assert found.manifest == done.result().manifest
    assert peer.state.newest == (1, f"global_step{STEP}", STEP)


async def test_a_bug_of_the_early_start_is_reported_and_costs_nothing_else(
    dial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who follows the growing files dies: once in the log, and the whole checkpoint goes after its commit."""

    def broken(_folder: Path) -> dict[str, int]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(early, "_sizes", broken)
    peer: Peer = await dial()
    await asyncio.to_thread(save_tag, partial(tmp_path), shard_bytes=SHARD)
    with capture_logs() as logs:
        done, stream = await started(peer, tmp_path)
        async with asyncio.timeout(10.0):
            while all(line["log_level"] != "error" for line in logs):  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.02)
        done.set_result(await asyncio.to_thread(finish, tmp_path))
        shipped = await stream
    (line,) = (line for line in logs if line["log_level"] == "error")
    assert (line["event"], line["part"]) == ("unexpected_error", "early")
    assert (shipped.early, shipped.bytes_sent) == (0, shipped.bytes_total)
    found = await asyncio.to_thread(newest_whole, tmp_path / "replicas" / "gpt")
    assert found is not None
    assert found.step == STEP


async def test_what_is_rewritten_after_it_left_goes_again_alone(dial: Any, tmp_path: Path) -> None:
    """A writer that comes back to a file's beginning is found by the digest: the one chunk goes again."""
    peer: Peer = await dial()
    folder = await asyncio.to_thread(save_tag, partial(tmp_path), shard_bytes=SHARD)
    done, stream = await started(peer, tmp_path)
    await until_there(tmp_path, 3 * (64 + 32 * 10))
    victim = folder / "mp_rank_00_model_states.pt"

    def rewrite() -> None:
        with victim.open("r+b") as file:
            file.seek(3 * CHUNK + 17)
            file.write(random.Random(1).randbytes(1000))

    await asyncio.to_thread(rewrite)
    done.set_result(await asyncio.to_thread(finish, tmp_path))
    shipped = await stream
    assert shipped.bytes_sent == shipped.bytes_total + CHUNK
    replica = tmp_path / "replicas" / "gpt" / "epoch-1" / f"global_step{STEP}"
    assert await asyncio.to_thread(verify, replica) == []


async def test_a_stream_that_is_given_up_leaves_nothing_whole(dial: Any, tmp_path: Path) -> None:
    """No commit comes: the peer has no checkpoint, and a later one under that tag is not mixed with it."""
    peer: Peer = await dial()
    await asyncio.to_thread(save_tag, partial(tmp_path), seed=1, shard_bytes=SHARD)
    _, stream = await started(peer, tmp_path)
    await until_there(tmp_path, 64 + 32 * 5)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert await asyncio.to_thread(scan, tmp_path / "replicas" / "gpt") == []
    await asyncio.to_thread(_save_anew, partial(tmp_path))
    item = await asyncio.to_thread(finish, tmp_path)
    shipped = await peer.ship(item)
    assert shipped.bytes_total == item.manifest.total_bytes
    replica = tmp_path / "replicas" / "gpt" / "epoch-1" / item.tag
    assert await asyncio.to_thread(verify, replica) == []


async def test_a_file_that_did_not_change_does_not_travel(dial: Any, tmp_path: Path) -> None:
    """Frozen weights: a file as in the checkpoint before is not sent early, and is linked at the peer."""
    peer: Peer = await dial()
    await asyncio.to_thread(save_tag, partial(tmp_path), seed=1, shard_bytes=SHARD)
    first = await asyncio.to_thread(finish, tmp_path)
    await peer.ship(first)
    later = tmp_path / "store" / "epoch-1" / "global_step101.partial"
    manifest = shutil.ignore_patterns(MANIFEST_NAME)
    await asyncio.to_thread(shutil.copytree, first.path, later, ignore=manifest)
    done: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
    stream = asyncio.create_task(peer.stream((1, "global_step101"), later, done))
    done.set_result(await asyncio.to_thread(commit, tmp_path / "store", order(101), 2.0))
    shipped = await stream
    assert shipped.bytes_sent == 0
    assert peer.state.newest == (1, "global_step101", 101)


async def test_a_restarted_daemon_knows_the_next_checkpoint_by_the_one_before(
    dial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the way for large ones at once, and sends early only what has changed."""
    monkeypatch.setattr(carrier, "OPENSSH_BYTES", CHUNK)
    await asyncio.to_thread(save_tag, partial(tmp_path), seed=1, shard_bytes=SHARD)
    first = await asyncio.to_thread(finish, tmp_path)
    before: Peer = await dial()
    await before.ship(first)
    peer: Peer = await dial(bulk="auto")
    opened: list[str] = []
    start = OpenSsh.open

    async def noted(self: OpenSsh, command: str) -> Any:
        opened.append(command)
        return await start(self, command)

    monkeypatch.setattr(OpenSsh, "open", noted)
    await peer.ask_state()
    later = tmp_path / "store" / "epoch-1" / "global_step101.partial"
    await asyncio.to_thread(_copy_but_one, first, later)
    done: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
    stream = asyncio.create_task(peer.stream((1, "global_step101"), later, done))
    async with asyncio.timeout(20.0):
        while not opened:  # noqa: ASYNC110 - a client's start has no event
            await asyncio.sleep(0.02)
    done.set_result(await asyncio.to_thread(commit, tmp_path / "store", order(101), 2.0))
    shipped = await stream
    assert shipped.bytes_sent == max(entry.size for entry in first.manifest.files)


def _copy_but_one(first: Committed, later: Path) -> None:
    """The same files, except that every chunk of the largest is another."""
    shutil.copytree(first.path, later, ignore=shutil.ignore_patterns(MANIFEST_NAME))
    largest = max(first.manifest.files, key=lambda entry: entry.size)
    (later / largest.path).write_bytes(random.Random(7).randbytes(largest.size))


def _save_anew(folder: Path) -> None:
    shutil.rmtree(folder)
    save_tag(folder, seed=2, shard_bytes=SHARD)


@pytest.mark.parametrize("bulk", ["channels", "openssh"])
async def test_the_commit_renames_the_folder_while_much_waits_to_be_sent(
    bulk: str, dial: Any, tmp_path: Path
) -> None:
    """On a narrow way most chunks are opened between the rename and the word of it: none is missed."""
    peer: Peer = await dial(bulk=bulk, limit_bytes_s=16 * CHUNK)
    await asyncio.to_thread(save_tag, partial(tmp_path), shard_bytes=SHARD)
    done, stream = await started(peer, tmp_path)
    await until_there(tmp_path, 64 + 32 * 4)
    committed = await asyncio.to_thread(finish, tmp_path)
    await until_there(tmp_path, 3 * 64 + 32 * 16)  # as many as the limit lets pass after the rename
    assert not stream.done()
    done.set_result(committed)
    shipped = await stream
    assert shipped.bytes_sent == shipped.bytes_total == committed.manifest.total_bytes
    # The limit lets 16 chunks a second through, of which the first left before the commit.
    assert shipped.sending_s > shipped.seconds
    assert shipped.sending_s > shipped.bytes_sent / (16 * CHUNK) - 2
