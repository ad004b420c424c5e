"""The courier: when a segment is written, when it goes, and that it is in nobody's way."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.core.conftest import until

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.core import courier as courier_module
from outlast.daemon.core import mailbag
from outlast.daemon.core.courier import Courier
from outlast.daemon.core.mailbag import Sent
from outlast.daemon.history.db import History
from outlast.daemon.history.ledger import Changed
from outlast.daemon.history.reading import read_rows
from outlast.daemon.history.rows import LaunchRow, Pool
from outlast.daemon.history.segments import listed, look, read_folder
from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.providers.base import Action, Clock, Identity, Notice, SystemClock
from outlast.simulations.sshd import Sshd, receive_command

POOL = Pool("aws", "us-east-1", "use1-az4", "p4d.24xlarge")
IDENTITY = Identity("aws", "us-east-1", "", "use1-az4", "p4d.24xlarge", "i-1")


class Source:
    """A history in a thread, as the diary gives it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.history = History(path, clock)

    async def writer(self) -> str | None:
        return await asyncio.to_thread(self.history.writer)

    async def changed(self, writer: str, since: int, *, last_words: bool) -> Changed | None:
        return await asyncio.to_thread(
            lambda: self.history.changed(writer, since, last_words=last_words),
        )

    async def do(self, work: Callable[[History], Any]) -> Any:
        return await asyncio.to_thread(work, self.history)


class Node:
    """A node with a history, a courier, and a peer at an SSH server."""

    def __init__(self, folder: Path, peer: Peer | None) -> None:
        self.folder = folder
        self.clock = SystemClock()
        self.peer = peer
        self.urgent = False
        self.source: Source

    @asynccontextmanager
    async def courier(self) -> AsyncIterator[Courier]:
        """A life of the courier; it is cut off at the end as a kill would."""
        self.source = await asyncio.to_thread(Source, self.folder / "history.sqlite3", self.clock)
        peers = {"gpt": self.peer} if self.peer is not None else {}
        made = Courier(self.folder / "stats", "here", self.source, peers, lambda: self.urgent, self.clock)
        task = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.to_thread(self.source.history.close)

    @property
    def written(self) -> list[Path]:
        """Segments in the node's own folder, oldest first."""
        homes = [path for path in (self.folder / "stats").glob("*") if path.is_dir()]
        return [path for home in homes for _, path in listed(home)]


@pytest.fixture
async def sshd(tmp_path: Path) -> AsyncIterator[Sshd]:
    """The peer's SSH server."""
    folder = tmp_path / "ssh"
    folder.mkdir()
    async with Sshd(folder, receive_command(tmp_path / "replicas", "gpt")) as server:
        yield server


@asynccontextmanager
async def connected(sshd: Sshd) -> AsyncIterator[Peer]:
    settings = PeerSettings(sshd.host, sshd.port, sshd.user, sshd.host_key, sshd.client.private)
    peer = Peer(settings, "gpt", SystemClock())
    task = asyncio.create_task(peer.run())
    try:
        await until(lambda: peer.state.reachable)
        yield peer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def launch(number: int) -> Callable[[History], None]:
    return lambda history: history.launch(LaunchRow(f"l-{number}", POOL, 1.0, 1, 1))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries come within the patience of a test."""
    monkeypatch.setattr(courier_module, "RETRY_S", 0.05)
    monkeypatch.setattr(courier_module, "URGENT_RETRY_S", 0.05)


async def test_the_peer_can_read_what_the_node_saw(sshd: Sshd, tmp_path: Path) -> None:
    """News is written, brought to the peer and known as sent; the peer's copy says what the file says."""
    stats = tmp_path / "replicas/gpt/stats"
    async with connected(sshd) as peer:
        node = Node(tmp_path / "node", peer)
        async with node.courier() as courier:
            await node.source.do(lambda h: h.begin_spell(IDENTITY, "here", "boot-1"))
            await node.source.do(launch(1))
            courier.tell()
            await until(lambda: courier.state["peers"][0]["sent_s_ago"] is not None)
            await node.source.do(launch(2))
            courier.tell()
            # How many segments the news make is the courier's affair.
            theirs = await asyncio.to_thread(read_folder, stats)
            async with asyncio.timeout(20.0):
                while len(theirs.rows.launches) < 2:
                    await asyncio.sleep(0.02)
                    theirs = await asyncio.to_thread(read_folder, stats)
            ours = await asyncio.to_thread(read_rows, tmp_path / "node/history.sqlite3")
        assert theirs.notes == ()
        assert theirs.rows == ours
        before = courier.state["written"]
        async with node.courier() as courier:
            await node.source.do(launch(3))
            courier.tell()
            await until(lambda: len(list(stats.rglob(f"0*{before + 1}.jsonl.gz"))) == 1)
        names = [path.name for path in stats.rglob("*.jsonl.gz")]
        assert sorted(names) == [f"0000000{n}.jsonl.gz" for n in range(1, before + 2)]


async def test_under_a_notice_the_last_words_go_first_and_alone(sshd: Sshd, tmp_path: Path) -> None:
    """A backlog waits; the stay and its notice are at the peer at once, in less than a kilobyte."""
    async with connected(sshd) as peer:
        node = Node(tmp_path / "node", None)
        async with node.courier() as courier:
            for number in range(5):
                await node.source.do(launch(number))
                courier.tell()
                await until(lambda n=number: courier.state["written"] == n + 1)  # type: ignore[misc]
        node.peer, node.urgent = peer, True
        async with node.courier() as courier:
            spell = await node.source.do(lambda h: h.begin_spell(IDENTITY, "here", "boot-1"))
            notice = Notice("n", Action.TERMINATE, node.clock.monotonic() + 120, "imds")
            await node.source.do(lambda h: h.notice_seen(spell, notice, node.clock.wall() + 120, "boot-1"))
            courier.tell(last_words=True)
            await until(lambda: courier.state["peers"][0]["sent_s_ago"] is not None)
            (arrived,) = await asyncio.to_thread(
                lambda: list((tmp_path / "replicas/gpt/stats").rglob("*.jsonl.gz"))
            )
            assert arrived.stat().st_size < 1000
            rows = (await asyncio.to_thread(look, arrived)).rows
            assert (len(rows.notices), len(rows.launches)) == (1, 0)
            await asyncio.sleep(0.3)
            assert len(list((tmp_path / "replicas/gpt/stats").rglob("*.jsonl.gz"))) == 1
            node.urgent = False
            courier.tell()
            await until(lambda: courier.state["peers"][0]["waiting"] == 0 and courier.state["written"] == 7)
        theirs = await asyncio.to_thread(read_folder, tmp_path / "replicas/gpt/stats")
        assert len(theirs.rows.launches) == 5


class Refusing:
    """A peer that is there and says no, as an older release does, or that cannot be reached."""

    name = "p:22"

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.asked = 0
        self.state = type("S", (), {"reachable": True})()

    async def stats(self, *_: Any) -> AsyncIterator[int]:
        self.asked += 1
        if self.asked:
            raise self.failure
        yield 0


@pytest.mark.parametrize(
    ("failure", "again"),
    [(Refused("bad_request", "unknown request 'stats'"), False), (Unreachable("it broke"), True)],
)
async def test_a_peer_that_says_no_is_left_alone_and_weather_is_tried_again(
    failure: Exception, again: bool, tmp_path: Path
) -> None:
    """A refusal is not repeated at once; a broken session is; either is a sentence in the status."""
    peer = Refusing(failure)
    node = Node(tmp_path, peer)  # type: ignore[arg-type]  # a peer's face
    async with node.courier() as courier:
        await node.source.do(launch(1))
        courier.tell()
        await until(lambda: courier.state["peers"][0]["because"])
        await asyncio.sleep(0.4)
        assert (peer.asked > 1) is again
        assert str(failure) in courier.state["peers"][0]["because"]
        assert courier.state["peers"][0]["waiting"] == 1


async def test_a_heartbeat_alone_makes_a_segment_once_a_tenth_is_untold(
    tmp_path: Path, manual_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quiet stay costs few segments, and its last one tells nine tenths of it, or all but an hour."""
    source = await asyncio.to_thread(Source, tmp_path / "history.sqlite3", manual_clock)
    spell = await source.do(lambda h: h.begin_spell(IDENTITY, "here", "boot-1"))
    made = Courier(tmp_path / "stats", "here", source, {}, lambda: False, manual_clock)
    counts = {}
    for hour in range(1, 24 * 60 + 1):
        manual_clock.advance(3600)
        await source.do(lambda h: h.heartbeat(spell))
        await made._write(last_words=False)
        counts[hour] = made.state["written"]
        if hour in (1, 10, 100, 1000):
            told = (await asyncio.to_thread(read_folder, tmp_path / "stats")).rows.spells[0].alive_s
            assert told >= hour * 3600 * 0.9 - 3600
    assert counts[10] == 10
    assert counts[24 * 60] - counts[24 * 59] == 1, "then one a day"
    assert counts[24 * 60] < 100
    await asyncio.to_thread(source.history.close)


async def test_a_disk_that_refuses_is_weather(tmp_path: Path) -> None:
    """A folder that cannot be written is said in the status; once it can, what waited is written."""
    (tmp_path / "stats").write_text("in the way")
    node = Node(tmp_path, None)
    async with node.courier() as courier:
        await node.source.do(launch(1))
        courier.tell()
        await until(lambda: courier.state["because"])
        await asyncio.to_thread(os.remove, tmp_path / "stats")
        await until(lambda: (courier.state["written"], courier.state["because"]) == (1, ""))


def test_letters_are_the_oldest_the_peer_lacks(tmp_path: Path) -> None:
    """In order and bounded; a damaged list of what was sent costs a repetition only."""
    home = tmp_path / "here.1"
    home.mkdir()
    for number in range(1, 101):
        (home / f"{number:08d}.jsonl.gz").write_bytes(hashlib.sha256(bytes([number])).digest())
    bag = mailbag.pack(tmp_path, Sent("p", {"here.1": 10}), None, True)
    assert [seq for seq, _ in bag.letters] == list(range(11, 11 + mailbag.MOST_LETTERS))
    assert (bag.node, bag.waiting, bag.in_order) == ("here.1", 90, True)
    newest = mailbag.pack(tmp_path, Sent("p"), "here.1", True)
    assert ([seq for seq, _ in newest.letters], newest.in_order) == ([100], False)
    assert mailbag.pack(tmp_path, Sent("p"), None, False).letters == ()
    mailbag.save(tmp_path, {"gpt": Sent("p", {"here.1": 7})})
    assert mailbag.load(tmp_path) == {"gpt": Sent("p", {"here.1": 7})}
    for damage in (b"", b"[]", b'{"gpt": {"peer": 1, "upto": []}}', b"[" * 100_000):
        (tmp_path / "sent.json").write_bytes(damage)
        assert mailbag.load(tmp_path) == {}


def test_old_segments_go_once_every_peer_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one peer still lacks stays."""
    monkeypatch.setattr(mailbag, "KEPT", 3)
    home = tmp_path / "here.1"
    home.mkdir()
    for number in range(1, 11):
        (home / f"{number:08d}.jsonl.gz").write_bytes(b"x")
    mailbag.tidy(tmp_path, [Sent("p", {"here.1": 10}), Sent("q", {"here.1": 4})])
    assert [number for number, _ in listed(home)] == [5, 6, 7, 8, 9, 10]
    mailbag.tidy(tmp_path, [])
    assert [number for number, _ in listed(home)] == [8, 9, 10]
