"""Segments of history at the receiver: kept whole, bounded, whoever has the job, out of everybody's way."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.checkpoint.locks import try_lock
from outlast.daemon.checkpoint.recovery import COMMIT_LOCK, recover
from outlast.daemon.ship import segment
from outlast.daemon.ship.arrival import SenderGoneError
from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.link import Peer
from outlast.daemon.ship.protocol import ProtocolError, Stats, encode, parse_request, request_body
from outlast.daemon.ship.words import Handover, RefusedError, fence, record
from outlast.providers.base import SystemClock
from outlast.simulations.sshd import receive_command
from outlast.wire.store import scan

NODE = "node-1.5f3a0c1d2e3f"


@pytest.fixture
def replicas(tmp_path: Path) -> Path:
    """The receiver's folder of job `gpt`."""
    return tmp_path / "replicas" / "gpt"


@pytest.fixture
def landing(replicas: Path) -> Landing:
    """A receiver's session."""
    return Landing(replicas, "gpt", SystemClock())


def request(data: bytes, seq: int = 1, node: str = NODE) -> Stats:
    return Stats(node, seq, len(data), hashlib.sha256(data).hexdigest())


def send(landing: Landing, data: bytes, seq: int = 1, node: str = NODE) -> dict[str, Any]:
    return landing.answer(request(data, seq, node), io.BytesIO(data))


def kept(replicas: Path) -> dict[str, bytes]:
    """What lies in the folder of history, by name."""
    found = (replicas / "stats").rglob("*.jsonl.gz")
    return {path.relative_to(replicas / "stats").as_posix(): path.read_bytes() for path in found}


def test_a_segment_is_kept_once_and_never_altered(landing: Landing, replicas: Path) -> None:
    """Sent again it changes nothing; other bytes under its number are kept beside it."""
    for _ in range(2):
        assert send(landing, b"first") == {"ok": True}
    assert kept(replicas) == {f"{NODE}/00000001.jsonl.gz": b"first"}
    for _ in range(2):
        send(landing, b"other")
    digest = hashlib.sha256(b"other").hexdigest()[:12]
    assert kept(replicas) == {
        f"{NODE}/00000001.jsonl.gz": b"first",
        f"{NODE}/00000001-{digest}.jsonl.gz": b"other",
    }


def test_history_passes_the_fence_and_waits_for_no_commit(landing: Landing, replicas: Path) -> None:
    """A node that has lost its job may still tell what it saw, also while a commit holds the store."""
    replicas.mkdir(parents=True)
    record(replicas, Handover(9, "t", 1, 8, 0.0))
    with try_lock(replicas / COMMIT_LOCK) as held:
        assert held
        assert send(landing, b"first") == {"ok": True}
    assert fence(replicas) == 9
    assert scan(replicas) == []
    assert recover(replicas) == []
    assert list(kept(replicas).values()) == [b"first"]


def test_altered_or_torn_bytes_leave_nothing(landing: Landing, replicas: Path) -> None:
    """Only what has its digest gets a name, and the session goes on."""
    with pytest.raises(RefusedError, match="digest") as caught:
        landing.answer(request(b"first"), io.BytesIO(b"fIrst"))
    assert caught.value.in_step
    with pytest.raises(SenderGoneError):
        landing.answer(request(b"first"), io.BytesIO(b"fir"))
    assert kept(replicas) == {}


def test_history_never_takes_the_room_of_checkpoints(replicas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is nearly full, too many segments and too many bytes are each refused with a reason."""
    full = Landing(replicas, "gpt", SystemClock(), free=lambda _: segment.RESERVE_BYTES)
    with pytest.raises(RefusedError, match="for checkpoints") as caught:
        send(full, b"first")
    assert (caught.value.code, caught.value.in_step) == ("no_space", True)
    landing = Landing(replicas, "gpt", SystemClock())
    monkeypatch.setattr(segment, "MOST_KEPT_BYTES", 10)
    send(landing, b"first")
    with pytest.raises(RefusedError, match="merge them"):
        send(landing, b"second", 2)
    monkeypatch.setattr(segment, "MOST_KEPT_BYTES", 1000)
    monkeypatch.setattr(segment, "MOST_KEPT_FILES", 3)
    with pytest.raises(RefusedError, match="merge them"):
        send(landing, b"second", 2, "other.1")
    assert send(landing, b"first") == {"ok": True}, "what is here already needs no room"


@pytest.mark.parametrize("node", ["../x", "a/b", ".hidden", "", "x" * 129, "a\n", "n.partial", None, 7])
def test_a_name_that_leads_elsewhere_is_no_request(node: object) -> None:
    """A node's folder is one plain name."""
    line = json.dumps({"op": "stats", "node": node, "seq": 1, "size": 1, "sha256": "0" * 64}).encode()
    with pytest.raises(ProtocolError):
        parse_request(line)


@pytest.mark.parametrize("change", [{"size": 5_000_000}, {"seq": 100_000_000}, {"seq": -1}, {"sha256": "x"}])
def test_a_segment_out_of_bounds_is_no_request(change: dict[str, Any]) -> None:
    """Size and number have an end."""
    body = {**request_body(request(b"first")), **change}
    with pytest.raises(ProtocolError):
        parse_request(encode(body))


DYING = """
import os, sys
from pathlib import Path
from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.receive import Wire, serve
from outlast.providers.base import SystemClock

left = int(sys.argv[2])

def step(name):
    global left
    if left == 0:
        os._exit(99)
    left -= 1

sys.exit(serve(Landing(Path(sys.argv[1]), "gpt", SystemClock(), step=step), Wire(0), 1))
"""


def test_kill_9_of_the_receiver_leaves_a_whole_segment_or_none(tmp_path: Path) -> None:
    """Wherever the receiver dies, sending again completes it."""
    said = encode(request_body(request(b"first"))) + b"first"
    codes = []
    for left in range(3):
        replicas = tmp_path / f"replicas-{left}"
        command = [sys.executable, "-c", DYING, str(replicas), str(left)]
        codes.append(subprocess.run(command, input=said, capture_output=True, check=False).returncode)
        assert set(kept(replicas).values()) <= {b"first"}
        send(Landing(replicas, "gpt", SystemClock()), b"first")
        assert kept(replicas) == {f"{NODE}/00000001.jsonl.gz": b"first"}
        assert not list(replicas.rglob("*.outlast-part"))
    assert codes == [99, 99, 0]


def test_a_refused_segment_does_not_end_the_session(tmp_path: Path) -> None:
    """The bytes are read before the answer, so the next request is understood."""
    wrong = encode({**request_body(request(b"first")), "sha256": "0" * 64}) + b"first"
    said = wrong + encode(request_body(request(b"first"))) + b"first" + b'{"op":"state"}\n'
    command = receive_command(tmp_path / "r", "gpt")
    done = subprocess.run(command, input=said, capture_output=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["ok"] for answer in answers] == [False, True, True]
    assert answers[0]["code"] == "damaged"
    assert done.returncode == 0


async def test_segments_reach_a_real_peer_in_order(dial: Any, tmp_path: Path) -> None:
    """Each is confirmed once it is on the peer's disk; a refusal names its reason."""
    peer: Peer = await dial()
    await peer.warn("hint", None, 0, 1)  # it is connected
    async with aclosing(peer.stats(NODE, [(1, b"first"), (2, b"second" * 50_000)])) as sent:
        assert [seq async for seq in sent] == [1, 2]
    found = await asyncio.to_thread(kept, tmp_path / "replicas" / "gpt")
    assert found[f"{NODE}/00000002.jsonl.gz"] == b"second" * 50_000
    with pytest.raises(Refused, match="node"):
        async with aclosing(peer.stats("../x", [(1, b"first")])) as sent:
            await anext(sent)


async def test_without_a_connection_nobody_waits(tmp_path: Path) -> None:
    """History asks for no connection of its own: it goes when there is one."""
    from outlast.daemon.ship.link import PeerSettings

    peer = Peer(PeerSettings("127.0.0.1", 1, "x", "ssh-ed25519 AAAA", tmp_path / "k"), "gpt", SystemClock())
    with pytest.raises(Unreachable, match="not tried yet"):
        await anext(peer.stats(NODE, [(1, b"first")]))
