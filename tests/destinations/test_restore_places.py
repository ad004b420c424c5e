"""One suite for every place that a job is restored from: this node, the peer, a folder, an object store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from tests.destinations.conftest import MIB, Place, saved

from outlast.daemon.checkpoint.arriving import CannotLand
from outlast.daemon.checkpoint.choosing import Go, Nothing, Refuse
from outlast.daemon.checkpoint.commit import CommitOrder, commit
from outlast.daemon.checkpoint.recovery import recover
from outlast.daemon.core.search import Search, Settled, Stuck
from outlast.daemon.core.sources import PeerSource, Source, StoreSource
from outlast.daemon.ship.link import Peer
from outlast.daemon.store.target import open_target
from outlast.simulations.saved import FOUR_RANKS, TWO_RANKS, committed, save_tag
from outlast.wire.fit import World, world_of
from outlast.wire.messages import Layout
from outlast.wire.store import Committed, epoch_folder, newest_whole, scan, verify

ELSEWHERE = ("peer", "folder", "s3")
Make = Callable[..., Any]


def source_of(place: Place) -> Source:
    """The place as the search asks it."""
    given = place.destination
    return PeerSource(given) if isinstance(given, Peer) else StoreSource(given)


async def settle(search: Search, world: World | None = None, **how: Any) -> Settled:
    """Search to the end; nothing stops it."""
    found = await search.settle(world or World(), **how)
    assert found is not None
    return found


def files_of(place: Place, item: Committed) -> Path:
    """Where a place that is a folder somewhere has a checkpoint."""
    root = place.folder / "gpt" if place.folder else item.path.parents[2] / "replicas" / "gpt"
    return root / f"epoch-{item.epoch}" / item.tag


async def damage(place: Place, item: Committed) -> str:
    """Change a byte of the first file at the place; its size stays. Returns the file's name."""
    entry = item.manifest.files[0]
    if place.kind != "s3":
        path = files_of(place, item) / entry.path
        await asyncio.to_thread(path.write_bytes, b"\1" * entry.size)
        return entry.path
    target = await asyncio.to_thread(open_target, place.destination.settings, "gpt")
    key = target.keys.file(item.epoch, item.tag, entry.path)
    await obstore.put_async(target.store, key, b"\1" * entry.size)
    return entry.path


@pytest.fixture
async def place(request: pytest.FixtureRequest, make_place: Make) -> Place:
    """A place elsewhere, with nothing in it."""
    made: Place = await make_place(request.param)
    return made


everywhere = pytest.mark.parametrize("place", ELSEWHERE, indirect=True)


@everywhere
async def test_the_newest_wins_and_is_whole_here(place: Place, tmp_path: Path) -> None:
    """A newer one elsewhere is fetched, byte for byte; then it is here, and nothing comes any more."""
    own = tmp_path / "own"
    await asyncio.to_thread(committed, own, 100)
    await place.destination.ship(await saved(tmp_path, 150))
    item = await saved(tmp_path, 200, shard_bytes=3 * MIB)
    await place.destination.ship(item)
    search = Search((own,), (source_of(place),))
    found = await settle(search, world_of(TWO_RANKS))
    assert found.committed is not None
    assert (found.committed.manifest, found.came) == (item.manifest, item.manifest.total_bytes)
    assert await asyncio.to_thread(verify, own / "epoch-1" / item.tag) == []
    assert list((own / "epoch-1" / ".staging").iterdir()) == []
    again = await settle(search)
    assert isinstance(again.decision, Go)
    assert (again.decision.candidate.place, again.came) == (str(own), 0)


@everywhere
async def test_what_is_here_and_newer_is_taken_without_a_fetch(place: Place, tmp_path: Path) -> None:
    """The place has an older one: what is here counts, and of equals as well."""
    own = tmp_path / "own"
    await place.destination.ship(await saved(tmp_path, 100))
    for step in (100, 200):
        await asyncio.to_thread(committed, own, step)
        found = await settle(Search((own,), (source_of(place),)))
        assert found.committed is not None
        assert found.committed.path == own / "epoch-1" / f"global_step{step}"
        assert found.came == 0


@everywhere
async def test_a_higher_epoch_is_newer_than_any_step(place: Place, tmp_path: Path) -> None:
    """Order is epoch, then step; above the limit it is refused, and the older one is not taken for it."""
    own = tmp_path / "own"
    await asyncio.to_thread(committed, own, 900)
    await place.destination.ship(await saved(tmp_path, 10, epoch=2))
    search = Search((own,), (source_of(place),))
    refused = await settle(search, limit=1)
    assert isinstance(refused.decision, Refuse)
    assert not (own / "epoch-2").exists()
    found = await settle(search, limit=2)
    assert found.committed is not None
    assert (found.committed.epoch, found.committed.step) == (2, 10)


@everywhere
async def test_a_damaged_one_is_passed_over_with_its_reason(place: Place, tmp_path: Path) -> None:
    """A byte differs there: the fetch finds it, and the next older one is had, wherever it is."""
    own = tmp_path / "own"
    good, bad = await saved(tmp_path, 100), await saved(tmp_path, 200)
    for item in (good, bad):
        await place.destination.ship(item)
    name = await damage(place, bad)
    found = await settle(Search((own,), (source_of(place),)))
    assert found.committed is not None
    assert found.committed.manifest == good.manifest
    assert await asyncio.to_thread(scan, own) == [found.committed]
    (sentence,) = found.decision.passed
    assert "global_step200 of epoch 1" in sentence
    assert f"damaged {name}" in sentence


async def test_a_damaged_one_here_is_passed_over_and_mended_from_elsewhere(
    make_place: Make, tmp_path: Path
) -> None:
    """A byte changed on this disk: the same checkpoint comes from the place, the damaged one is set aside."""
    place, own = await make_place("folder"), tmp_path / "own"
    await place.destination.ship(await saved(tmp_path, 200))
    item = await asyncio.to_thread(committed, own, 200)
    torn = item.path / item.manifest.files[0].path
    await asyncio.to_thread(torn.write_bytes, b"\1" * item.manifest.files[0].size)
    found = await settle(Search((own,), (source_of(place),)))
    assert found.committed is not None
    assert await asyncio.to_thread(verify, found.committed.path) == []
    assert (own / "epoch-1" / "global_step200.damaged-1").is_dir()
    (sentence,) = found.decision.passed
    assert "contents differ" in sentence


@everywhere
async def test_only_missing_bytes_come(place: Place, tmp_path: Path) -> None:
    """Files that did not change since a checkpoint that is here are linked, not fetched."""
    own = tmp_path / "own"
    await asyncio.to_thread(committed, own, 100, shard_bytes=MIB)
    item, changed = await asyncio.to_thread(_all_but_one_as_before, tmp_path / "store", 101)
    await place.destination.ship(item)
    found = await settle(Search((own,), (source_of(place),)))
    assert found.committed is not None
    assert found.committed.manifest == item.manifest
    assert found.came == changed
    assert await asyncio.to_thread(verify, found.committed.path) == []


def _all_but_one_as_before(store: Path, step: int) -> tuple[Committed, int]:
    """A checkpoint with the bytes of step 100 but for one file, and that file's size."""
    partial = epoch_folder(store, 1) / f"global_step{step}.partial"
    save_tag(partial, seed=100, shard_bytes=MIB)
    other = partial / "mp_rank_00_model_states.pt"
    other.write_bytes(other.read_bytes()[:-1] + b"\7")
    size = other.stat().st_size
    order = CommitOrder("gpt", f"global_step{step}", step, 1, "f", "test", TWO_RANKS)
    return commit(store, order, 0.0), size


@everywhere
async def test_a_fetch_that_broke_off_goes_on_where_it_stopped(place: Place, tmp_path: Path) -> None:
    """Cut in the middle, nothing is committed here; the next try brings the rest alone."""
    own, source = tmp_path / "own", source_of(place)
    item = await saved(tmp_path, 100, shard_bytes=9 * MIB)
    await place.destination.ship(item)
    half = asyncio.Event()

    def progress(there: int, total: int) -> None:
        if there * 3 >= total:
            half.set()

    first = asyncio.create_task(source.fetch(item.manifest, own, progress, ()))
    async with asyncio.timeout(30):
        await half.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    if await asyncio.to_thread(newest_whole, own) is not None:
        pytest.skip("it was too quick to be cut")
    done, came = await source.fetch(item.manifest, own, None, ())
    assert 0 < came <= item.manifest.total_bytes * 0.75
    assert await asyncio.to_thread(verify, done.path) == []


@everywhere
async def test_a_run_of_another_size_is_refused_before_a_byte_comes(place: Place, tmp_path: Path) -> None:
    """Two ranks saved it, four are to load it: refused with advice, though an older one would fit."""
    own = tmp_path / "own"
    await asyncio.to_thread(committed, own, 50, layout=FOUR_RANKS)
    await place.destination.ship(await saved(tmp_path, 100))
    found = await settle(Search((own,), (source_of(place),)), world_of(FOUR_RANKS))
    assert isinstance(found.decision, Refuse)
    assert "saved with 2 ranks" in found.decision.because
    assert "load_universal" in found.decision.advice
    assert [one.step for one in await asyncio.to_thread(scan, own)] == [50]


@everywhere
async def test_a_universal_one_passes_whatever_the_run(place: Place, tmp_path: Path) -> None:
    """The converted twin of a checkpoint that does not fit is fetched in its place."""
    own = tmp_path / "own"
    item = await asyncio.to_thread(_universal, tmp_path / "store", 100)
    await place.destination.ship(item)
    await asyncio.to_thread(committed, own, 100)
    found = await settle(Search((own,), (source_of(place),)), world_of(Layout(8, 2, 2, 2, 1)))
    assert found.committed is not None
    assert found.committed.tag == "global_step100_universal"
    assert await asyncio.to_thread(verify, found.committed.path) == []


def _universal(store: Path, step: int) -> Committed:
    """As DeepSpeed's converter leaves it, committed by hand."""
    tag = f"global_step{step}_universal"
    partial = epoch_folder(store, 1) / f"{tag}.partial"
    save_tag(partial)
    for name in ("fp32.pt", "exp_avg.pt"):
        file = partial / "zero" / "lm_head.weight" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(name.encode() * 100)
    return commit(store, CommitOrder("gpt", tag, step, 1, "f", "universal", TWO_RANKS), 0.0)


async def test_a_place_that_keeps_silent_is_passed_over_in_time(make_place: Make, tmp_path: Path) -> None:
    """A server that takes the connection and says nothing costs the bound, and no more than a sentence."""
    own = tmp_path / "own"
    await asyncio.to_thread(committed, own, 100)
    place, mute = await make_place("folder"), Mute()
    found = await settle(Search((own,), (mute, source_of(place)), look_s=0.2))
    assert found.committed is not None
    assert found.committed.step == 100
    assert found.decision.passed == ("mute is passed over: no answer within 0.2 s",)


async def test_nothing_anywhere_is_told_as_such(make_place: Make, tmp_path: Path) -> None:
    """Places that answer and have nothing: there is nothing, and nobody is blamed."""
    found = await settle(Search((tmp_path / "own",), (source_of(await make_place("folder")),)))
    assert found.decision == Nothing(())


async def test_a_disk_that_cannot_take_it_is_no_reason_for_an_older_one(
    make_place: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No room here: the newest is named with what is needed, and the older one is not taken silently."""
    own, place = tmp_path / "own", await make_place("folder")
    await asyncio.to_thread(committed, own, 50)
    await place.destination.ship(await saved(tmp_path, 100))
    monkeypatch.setattr("outlast.daemon.checkpoint.arriving.RESERVE_BYTES", 1 << 60)
    found = await settle(Search((own,), (source_of(place),)))
    assert isinstance(found.decision, Stuck)
    assert "bytes free" in found.decision.because
    assert not found.decision.again


async def test_two_that_fetch_the_same_do_not_meet(make_place: Make, tmp_path: Path) -> None:
    """The second one is told that it is arriving already."""
    place = await make_place("folder")
    source, item = source_of(place), await saved(tmp_path, 100, shard_bytes=9 * MIB)
    await place.destination.ship(item)
    tries = [source.fetch(item.manifest, tmp_path / "own", None, ()) for _ in range(2)]
    done = await asyncio.gather(*tries, return_exceptions=True)
    refused = [one for one in done if isinstance(one, CannotLand)]
    whole = [one for one in done if not isinstance(one, BaseException)]
    assert len(whole) + len(refused) == 2
    assert whole
    assert all("arriving" in one.because for one in refused)


_DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from outlast.daemon.checkpoint.arriving import from_folder, land
from outlast.wire.manifest import read

def step(name):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

source, store, left = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
asyncio.run(land(read(source), store, from_folder(source), step=step))
"""


async def test_killed_between_any_two_actions_it_is_whole_or_not_there(tmp_path: Path) -> None:
    """kill -9 after each action of landing: nothing torn is ever seen, and the next try comes to the end."""
    item = await saved(tmp_path, 100)
    for dies_at in range(1, 20):
        store = tmp_path / f"own-{dies_at}"
        words = [sys.executable, "-c", _DYING, str(item.path), str(store), str(dies_at)]
        died = (await asyncio.to_thread(subprocess.run, words, check=False, timeout=30)).returncode
        for one in await asyncio.to_thread(scan, store):
            assert await asyncio.to_thread(verify, one.path) == []
        if died == 0:
            assert dies_at > 5, "it was never killed"
            return
        await asyncio.to_thread(recover, store)
        await asyncio.to_thread(subprocess.run, [*words[:-1], "0"], check=True, timeout=30)
        found = await asyncio.to_thread(newest_whole, store)
        assert found is not None
        assert found.manifest == item.manifest
        assert (found.folder / "latest").read_text() == item.tag
        left = [path.name for path in (found.folder / ".staging").iterdir()]
        assert [name for name in left if not name.endswith(".lock")] == []
    pytest.fail("it has more actions than were tried")


class Mute:
    """A place that never answers."""

    name, kind = "mute", "s3"

    async def look(self) -> list[Any]:
        """Wait for ever."""
        await asyncio.Event().wait()
        return []

    async def fetch(self, *_: Any) -> Any:
        """Never asked."""
        raise AssertionError
