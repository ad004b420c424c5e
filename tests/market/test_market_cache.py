"""Answers kept on disk: how long they count, what replaces them, and that no file there is trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.conftest import ManualClock

from outlast.providers.market import cache
from outlast.providers.market.base import Answer, Quote, Want
from outlast.providers.market.cache import OWN_TTL_S, PARTIAL_TTL_S, STALE_S, TTL_S, Cached, Store
from outlast.providers.market.offline import dump_answers
from outlast.providers.market.registry import NAMES

WANT = Want(("p4d.24xlarge", "g5.xlarge"), ("us-east-1",))
SOURCE = "azure-prices"


def answer(at: float, micro: int = 5, source: str = SOURCE, lacks: tuple[str, ...] = ()) -> Answer:
    """One price; with ``lacks``, an answer that is not complete."""
    quote = Quote("azure", "eastus", "", "Standard_ND96asr_v4", "spot", micro, at, source)
    return Answer(source, at, (quote,), lacks=lacks, complete=not lacks)


@dataclass
class Told:
    """A source that answers what it is told to, and counts."""

    clock: ManualClock
    name: str = SOURCE
    micro: int = 5
    lacks: tuple[str, ...] = ()
    down: bool = False
    asked: list[Want] = field(default_factory=list)

    async def ask(self, want: Want, _deadline: float) -> Answer:
        """The price it is told, at the time of asking."""
        self.asked.append(want)
        if self.down:
            return Answer(self.name, self.clock.wall(), lacks=("azure-prices: it is down",), complete=False)
        return answer(self.clock.wall(), self.micro, self.name, self.lacks)

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where answers are kept; not there yet."""
    return tmp_path / "cache" / "market"


@pytest.fixture
def told(manual_clock: ManualClock) -> Told:
    """The source behind the cache."""
    return Told(manual_clock)


@pytest.fixture
def kept(told: Told, folder: Path) -> Cached:
    """The cache before the source."""
    return Cached(told, Store(folder), told.clock)


def files(folder: Path) -> list[Path]:
    """All that is in the folder."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


async def test_a_fresh_answer_is_served_without_asking(kept: Cached, told: Told, folder: Path) -> None:
    """Within an hour the same question is answered from disk, by another process too, and is marked."""
    first = await kept.ask(WANT, 0.0)
    told.micro = 6
    told.clock.advance(TTL_S - 1)
    again = await Cached(told, Store(folder), told.clock).ask(WANT, 0.0)
    assert not first.cached
    assert again == replace(first, cached=True)
    assert len(told.asked) == 1


async def test_an_old_answer_is_asked_for_again(kept: Cached, told: Told) -> None:
    """After an hour the source is asked, and its answer is kept in place of the old one."""
    await kept.ask(WANT, 0.0)
    told.micro = 6
    told.clock.advance(TTL_S)
    assert (await kept.ask(WANT, 0.0)).quotes[0].micro_usd == 6
    assert (await kept.ask(WANT, 0.0)).quotes[0].micro_usd == 6
    assert len(told.asked) == 2


@pytest.mark.parametrize("name", NAMES)
async def test_sources_that_refuse_frequent_questions_are_asked_less(
    name: str, manual_clock: ManualClock, folder: Path
) -> None:
    """Scores and the advisor's file are kept six hours, all else one."""
    told = Told(manual_clock, name)
    kept = Cached(told, Store(folder), manual_clock)
    ttl = OWN_TTL_S.get(name, TTL_S)
    assert ttl in {3600.0, 21600.0}
    await kept.ask(WANT, 0.0)
    manual_clock.advance(ttl - 1)
    await kept.ask(WANT, 0.0)
    assert len(told.asked) == 1
    manual_clock.advance(1)
    await kept.ask(WANT, 0.0)
    assert len(told.asked) == 2


async def test_a_partial_answer_is_asked_for_again_sooner(kept: Cached, told: Told) -> None:
    """What lacks something counts for two minutes, and says so while it is served."""
    told.lacks = ("azure-prices: one page is missing",)
    await kept.ask(WANT, 0.0)
    told.clock.advance(PARTIAL_TTL_S - 1)
    served = await kept.ask(WANT, 0.0)
    assert (served.cached, served.complete, served.lacks) == (True, False, told.lacks)
    told.clock.advance(1)
    await kept.ask(WANT, 0.0)
    assert len(told.asked) == 2


async def test_a_partial_answer_does_not_replace_a_whole_one_of_today(kept: Cached, told: Told) -> None:
    """The whole one is there when the source goes down afterwards."""
    await kept.ask(WANT, 0.0)
    told.clock.advance(2 * TTL_S)
    told.micro, told.lacks = 6, ("azure-prices: one page is missing",)
    assert (await kept.ask(WANT, 0.0)).quotes[0].micro_usd == 6
    told.down = True
    served = await kept.ask(WANT, 0.0)
    assert served.quotes[0].micro_usd == 5
    told.down = False
    told.clock.advance(86400.0)
    await kept.ask(WANT, 0.0)
    told.down = True
    told.clock.advance(TTL_S)
    assert (await kept.ask(WANT, 0.0)).quotes[0].micro_usd == 6


@pytest.mark.parametrize(
    ("age", "said"),
    [(TTL_S + 60, "61 min ago"), (7 * 3600.0, "7 h ago"), (29.9 * 86400, "30 days ago")],
)
async def test_an_old_answer_is_served_while_the_source_is_down(
    kept: Cached, told: Told, age: float, said: str
) -> None:
    """It is marked as kept and not complete; the source's trouble and the answer's age are said."""
    first = await kept.ask(WANT, 0.0)
    told.down = True
    told.clock.advance(age)
    served = await kept.ask(WANT, 0.0)
    assert (served.quotes, served.at) == (first.quotes, first.at)
    assert (served.cached, served.complete) == (True, False)
    assert served.lacks[0] == "azure-prices: it is down"
    assert said in served.lacks[1]


async def test_what_is_older_than_30_days_is_not_served(kept: Cached, told: Told) -> None:
    """Such prices mislead: the source's own empty answer is given."""
    await kept.ask(WANT, 0.0)
    told.down = True
    told.clock.advance(STALE_S)
    served = await kept.ask(WANT, 0.0)
    assert (served.quotes, served.cached, len(served.lacks)) == ((), False, 1)


async def test_an_answer_from_the_future_is_not_served(kept: Cached, told: Told) -> None:
    """The clock stepped back: the source is asked, and its answer counts from now on."""
    await kept.ask(WANT, 0.0)
    told.clock.step_wall(-7200.0)
    told.micro = 6
    assert (await kept.ask(WANT, 0.0)).quotes[0].micro_usd == 6
    served = await kept.ask(WANT, 0.0)
    assert (served.quotes[0].micro_usd, served.cached) == (6, True)
    assert len(told.asked) == 2


async def test_an_empty_answer_is_not_kept(kept: Cached, told: Told, folder: Path) -> None:
    """A source that is down leaves nothing behind, and is asked again at once."""
    told.down = True
    await kept.ask(WANT, 0.0)
    assert files(folder) == []
    told.down = False
    assert (await kept.ask(WANT, 0.0)).quotes


async def test_a_question_is_the_same_in_any_order(kept: Cached, told: Told) -> None:
    """Types and regions are sets; days and count are part of the question."""
    await kept.ask(WANT, 0.0)
    await kept.ask(replace(WANT, instance_types=WANT.instance_types[::-1]), 0.0)
    assert len(told.asked) == 1
    others = (
        replace(WANT, instance_types=("g5.xlarge",)),
        replace(WANT, regions=()),
        replace(WANT, days=7.0),
        replace(WANT, count=2),
    )
    for other in others:
        await kept.ask(other, 0.0)
    assert len(told.asked) == 1 + len(others)


DAMAGE: dict[str, bytes] = {
    "nothing": b"",
    "garbage": b"\x00\xff" * 50,
    "cut": dump_answers([answer(1_799_999_999.0)]).encode()[:-9],
    "another source's": dump_answers([answer(1_799_999_999.0, source="vast")]).encode(),
    "two answers": dump_answers([answer(1_799_999_999.0)] * 2).encode(),
    "none": dump_answers([]).encode(),
    "another version's": b'{"format": 2, "answers": []}',
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "a wrong price": dump_answers([answer(1_799_999_999.0, micro=-5)]).encode(),
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_damaged_file_is_as_good_as_none(
    kept: Cached, told: Told, folder: Path, content: bytes
) -> None:
    """The source is asked, and the file is whole again."""
    await kept.ask(WANT, 0.0)
    (path,) = files(folder)
    path.write_bytes(content)
    assert not (await kept.ask(WANT, 0.0)).cached
    assert (await kept.ask(WANT, 0.0)).cached
    assert len(told.asked) == 2


async def test_a_folder_in_the_files_place_is_said(kept: Cached, told: Told, folder: Path) -> None:
    """The answer is given all the same, and no half-made file stays behind."""
    await kept.ask(WANT, 0.0)
    (path,) = files(folder)
    path.unlink()
    path.mkdir()
    given = await kept.ask(WANT, 0.0)
    assert given.quotes
    assert "not kept for the next time" in given.lacks[-1]
    assert given.complete
    assert files(folder) == [path]


async def test_a_folder_that_cannot_be_made_is_said(kept: Cached, told: Told, folder: Path) -> None:
    """Without a place to keep answers, each is asked for and given, with why it is not kept."""
    folder.parent.write_bytes(b"a file")
    for _ in range(2):
        given = await kept.ask(WANT, 0.0)
        assert given.quotes
        assert given.lacks == ("azure-prices: not kept for the next time: Not a directory",)
    assert len(told.asked) == 2


@pytest.fixture
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_open_umask")
def test_only_the_owner_can_read_what_is_kept(folder: Path) -> None:
    """Folder 0700 and files 0600, whatever the umask: what somebody asks about is nobody else's business."""
    Store(folder).write(answer(1.0), WANT)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (path,) = files(folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_folder_stays_within_its_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest files go first, and what a crash left half-made goes with them."""
    store = Store(folder)
    wants = [replace(WANT, count=n) for n in range(1, 6)]
    size = len(dump_answers([answer(1.0)]))
    monkeypatch.setattr(cache, "MOST_BYTES", 3 * size + size // 2)
    for n, want in enumerate(wants):
        before = set(files(folder))
        store.write(answer(1.0), want)
        for path in set(files(folder)) - before:
            os.utime(path, (n + 10, n + 10))
        if n == 0:
            (folder / ".new-left").write_bytes(b"x" * size)
            os.utime(folder / ".new-left", (1, 1))
    there = [n for n, want in enumerate(wants) if store.read(SOURCE, want)]
    assert there == [2, 3, 4]
    assert len(files(folder)) == 3


def test_an_answer_above_the_bound_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would push out all others; nor is such a file read."""
    store = Store(folder)
    store.write(answer(1.0), WANT)
    monkeypatch.setattr(cache, "MOST_BYTES", 20)
    assert store.read(SOURCE, WANT) is None
    store.write(answer(2.0), WANT)
    monkeypatch.undo()
    found = store.read(SOURCE, WANT)
    assert found is not None
    assert found.at == 1.0


def test_readers_see_whole_answers_while_others_write(folder: Path) -> None:
    """A file is there whole or not at all, whoever writes it at the same time."""
    store = Store(folder)
    made = [answer(float(n), micro=n, lacks=("azure-prices: " + "x" * 300 * n,)) for n in range(1, 9)]
    store.write(made[0], WANT)

    def write(one: Answer) -> None:
        for _ in range(10):
            store.write(one, WANT)

    known = {(a.at, a.quotes) for a in made}
    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, one) for one in made]
        while not all(task.done() for task in writing):
            found = store.read(SOURCE, WANT)
            assert found is not None
            assert (found.at, found.quotes) in known
        for task in writing:
            task.result()
    assert len(files(folder)) == 1
