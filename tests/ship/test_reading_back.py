"""Reading a committed checkpoint back from the peer: what it gives, what it never gives, after kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ship.conftest import _running
from tests.ship.deliver import deliver

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.checkpoint.recovery import recover
from outlast.daemon.ship import fetching
from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.daemon.ship.protocol import (
    MOST_FETCH,
    MOST_PLACES,
    Fetch,
    List,
    ProtocolError,
    Show,
    encode,
    parse_listed,
    parse_request,
    parse_shown,
    request_body,
)
from outlast.daemon.ship.serving import Serving
from outlast.daemon.ship.words import RefusedError
from outlast.providers.base import SystemClock
from outlast.simulations.saved import committed
from outlast.simulations.sshd import Sshd, receive_command
from outlast.simulations.wan import Relay
from outlast.wire.manifest import MANIFEST_NAME
from outlast.wire.store import Committed, newest_whole, scan, verify

MIB = 1024 * 1024
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
names = st.sampled_from(["epoch", "tag", "step", "whole", "manifest", "places", "offset", "size", "path"])
Dial = Callable[..., Any]


@pytest.fixture
def item(replicas: Path, tmp_path: Path) -> Committed:
    """A checkpoint that the receiver has."""
    made = committed(tmp_path / "store", 100)
    deliver(Landing(replicas, "gpt", SystemClock()), made)
    return made


@pytest.fixture
def shelf(replicas: Path) -> Serving:
    """The reading side of a session."""
    return Serving(replicas)


@pytest.mark.parametrize("request_", [List(), Show(2, "t1"), Fetch(2, "t1", "a/b.pt", 5, MOST_FETCH)])
def test_a_request_to_read_reads_back_as_it_was_written(request_: Any) -> None:
    """Each kind survives the way to the receiver."""
    assert parse_request(encode(request_body(request_))) == request_


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../x"},
        {"path": "/etc/passwd"},
        {"path": MANIFEST_NAME},
        {"tag": ".."},
        {"epoch": -1},
        {"offset": -1},
        {"size": 0},
        {"size": MOST_FETCH + 1},
        {"size": True},
    ],
    ids=str,
)
def test_a_fetch_outside_its_bounds_is_not_understood(change: dict[str, Any]) -> None:
    """No path leads out, no size makes the receiver hold more than a few chunks."""
    body = {**request_body(Fetch(1, "t1", "a.pt", 0, 5)), **change}
    with pytest.raises(ProtocolError):
        parse_request(encode(body))


@given(st.dictionaries(names, JSON))
def test_answers_of_anybody_are_parsed_or_refused(body: dict[str, Any]) -> None:
    """Whatever the peer answers, the asker gets values or ProtocolError."""
    for parse in (parse_listed, lambda answer: parse_shown(answer, Show(1, "t1"))):
        try:
            parse(body)
        except ProtocolError:
            continue


def test_a_manifest_of_another_tag_is_not_taken(item: Committed) -> None:
    """The peer may not answer with something else than was asked for."""
    body = {"manifest": json.loads(item.manifest.to_bytes())}
    assert parse_shown(body, Show(1, item.tag)) == item.manifest
    with pytest.raises(ProtocolError, match="not of global_step900"):
        parse_shown(body, Show(1, "global_step900"))


def test_pieces_put_together_are_the_file(shelf: Serving, item: Committed) -> None:
    """Any cut of a file gives its bytes; asked for once more, the same."""
    for entry in item.manifest.files:
        pieces = b""
        while len(pieces) < entry.size:
            size = min(1000, entry.size - len(pieces))
            body, data = shelf.answer(Fetch(1, item.tag, entry.path, len(pieces), size))
            assert body == {"ok": True, "size": len(data)}
            pieces += data
        assert pieces == (item.path / entry.path).read_bytes()


def test_only_what_a_manifest_names_is_given(
    shelf: Serving, item: Committed, replicas: Path, tmp_path: Path
) -> None:
    """Not what lies beside it, not through a link, not beyond the end, not what is not committed."""
    place, entry = replicas / "epoch-1" / item.tag, item.manifest.files[0]
    (tmp_path / "secret").write_bytes(b"x" * entry.size)
    (place / "beside").write_bytes(b"x" * 10)
    for wrong in (
        Fetch(1, item.tag, "beside", 0, 5),
        Fetch(1, item.tag, entry.path, entry.size - 4, 5),
        Fetch(1, "global_step900", entry.path, 0, 5),
        Fetch(2, item.tag, entry.path, 0, 5),
        Show(1, "global_step900"),
    ):
        with pytest.raises(RefusedError):
            shelf.answer(wrong)
    (place / entry.path).unlink()
    (place / entry.path).symlink_to(tmp_path / "secret")
    with pytest.raises(RefusedError, match="not a regular file"):
        shelf.answer(Fetch(1, item.tag, entry.path, 0, 5))


def test_the_list_says_what_is_whole(shelf: Serving, item: Committed, replicas: Path, tmp_path: Path) -> None:
    """A file of another size shows; what is still arriving or set aside is no checkpoint; it is bounded."""
    newer = committed(tmp_path / "store", 200)
    deliver(Landing(replicas, "gpt", SystemClock()), newer)
    (replicas / "epoch-1" / newer.tag / newer.manifest.files[0].path).write_bytes(b"short")
    (replicas / "epoch-1" / "global_step300.partial").mkdir()
    body, _ = shelf.answer(List())
    found = parse_listed(body)
    assert [(one.tag, one.whole) for one in found] == [(newer.tag, False), (item.tag, True)]
    with pytest.raises(ProtocolError, match=f"at most {MOST_PLACES}"):
        parse_listed({"places": body["places"] * MOST_PLACES})


async def test_a_receiver_that_only_takes_gives_nothing(item: Committed, tmp_path: Path) -> None:
    """With --write-only the key can deliver, and read nothing back."""
    folder = tmp_path / "ssh2"
    folder.mkdir()
    command = [*receive_command(tmp_path / "replicas", "gpt"), "--write-only"]
    async with Sshd(folder, command) as server:
        settings = PeerSettings(server.host, server.port, server.user, server.host_key, server.client.private)
        async with _running(settings) as peer:
            await peer.ship(await asyncio.to_thread(committed, tmp_path / "store", 200))
            with pytest.raises(Refused, match="--write-only"):
                await peer.held()


@pytest.mark.parametrize("bulk", ["channels", "openssh"])
async def test_a_large_one_comes_back_over_several_sessions(
    bulk: str, dial: Dial, item: Committed, tmp_path: Path
) -> None:
    """Files of many pieces and of less than one, by either way, byte for byte."""
    peer: Peer = await dial(bulk=bulk, channels=4)
    big = await asyncio.to_thread(committed, tmp_path / "store", 200, shard_bytes=13 * MIB + 7)
    await peer.ship(big)
    (manifest, trouble), *_ = await peer.held()
    assert (manifest, trouble) == (big.manifest, "")
    told: list[int] = []
    found, came = await peer.fetch(manifest, tmp_path / "back", lambda there, _: told.append(there))
    assert came == big.manifest.total_bytes == told[-1]
    assert told == sorted(told)
    assert await asyncio.to_thread(verify, found.path) == []


async def test_a_piece_may_take_long_while_something_comes(
    dial: Dial, sshd: Sshd, replicas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a way that brings 3 MB/s a piece of 4 MiB takes longer than the peer may be silent: it arrives."""
    monkeypatch.setattr(fetching, "ANSWER_S", 0.8)
    big = await asyncio.to_thread(committed, tmp_path / "store", 200, shard_bytes=4 * MIB)
    await asyncio.to_thread(deliver, Landing(replicas, "gpt", SystemClock()), big)
    async with Relay(sshd.host, sshd.port, bytes_s=3e6) as way:
        peer: Peer = await dial(port=way.port, bulk="channels", channels=1)
        (manifest, _), *_ = await peer.held()
        assert max(entry.size for entry in manifest.files) >= 4 * MIB
        found, _ = await peer.fetch(manifest, tmp_path / "back")
        assert await asyncio.to_thread(verify, found.path) == []


async def test_a_receiver_killed_in_the_middle_costs_the_chunks_under_way(
    dial: Dial, sshd: Sshd, item: Committed, tmp_path: Path
) -> None:
    """kill -9 of the peer's receivers: the fetch fails at once, and the next one brings the rest alone."""
    peer: Peer = await dial(bulk="channels")
    big = await asyncio.to_thread(committed, tmp_path / "store", 200, shard_bytes=24 * MIB)
    await peer.ship(big)
    half = asyncio.Event()

    def progress(there: int, total: int) -> None:
        if there * 3 > total:
            half.set()

    fetching = asyncio.create_task(peer.fetch(big.manifest, tmp_path / "back", progress))
    async with asyncio.timeout(30):
        await half.wait()
        for pid in await sshd.sessions():
            os.kill(pid, signal.SIGKILL)
    with pytest.raises(Unreachable):
        await fetching
    assert await asyncio.to_thread(scan, tmp_path / "back") == []
    found, came = await peer.fetch(big.manifest, tmp_path / "back")
    assert 0 < came < big.manifest.total_bytes * 0.7
    assert await asyncio.to_thread(verify, found.path) == []


_DYING = """
import asyncio, json, os, signal, sys
from pathlib import Path
from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.providers.base import SystemClock
from outlast.wire.manifest import parse

told, store, at, left = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])

def step(name):
    global left
    left -= name == at
    if name == at and left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    peer = Peer(PeerSettings(**{**told, "key": Path(told["key"])}), "gpt", SystemClock())
    running = asyncio.create_task(peer.run())
    (manifest, _), *_ = await peer.held()
    print((await peer.fetch(manifest, store, step=step))[1])
    running.cancel()

asyncio.run(main())
"""


@pytest.mark.parametrize("at", ["chunk noted", "file synced", "brought"])
async def test_the_asker_killed_at_any_step_has_lost_a_chunk_at_most(
    at: str, sshd: Sshd, dial: Dial, tmp_path: Path
) -> None:
    """kill -9 of who fetches: nothing is committed, what was noted does not come again, and it ends well."""
    big = await asyncio.to_thread(committed, tmp_path / "store", 200, shard_bytes=5 * MIB)
    await (await dial()).ship(big)
    told = {
        "host": sshd.host,
        "port": sshd.port,
        "user": sshd.user,
        "host_key": sshd.host_key,
        "key": str(sshd.client.private),
        "bulk": "channels",
    }
    back = tmp_path / "back"
    words = [sys.executable, "-c", _DYING, json.dumps(told), str(back), at]
    count = 9 if at == "chunk noted" else 1

    def run(left: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, str(left)], capture_output=True, text=True, timeout=30, check=False)

    assert (await asyncio.to_thread(run, count)).returncode == -signal.SIGKILL
    assert await asyncio.to_thread(scan, back) == []
    assert await asyncio.to_thread(recover, back) == []
    done = await asyncio.to_thread(run, -1)
    assert done.returncode == 0, done.stderr
    total = big.manifest.total_bytes
    assert int(done.stdout) <= (0 if at == "brought" else total - 4 * MIB)
    found = await asyncio.to_thread(newest_whole, back)
    assert found is not None
    assert found.manifest == big.manifest


async def test_a_peer_that_gives_other_bytes_is_found_out(
    dial: Dial, item: Committed, replicas: Path, tmp_path: Path
) -> None:
    """A byte differs on the peer's disk: the file is asked for twice, named, and nothing is committed."""
    peer: Peer = await dial()
    entry = item.manifest.files[0]
    (replicas / "epoch-1" / item.tag / entry.path).write_bytes(b"\2" * entry.size)
    with pytest.raises(Refused, match=f"damaged {entry.path}") as caught:
        await peer.fetch(item.manifest, tmp_path / "back")
    assert caught.value.code == "damaged"
    assert await asyncio.to_thread(scan, tmp_path / "back") == []
