"""What stores do beyond a peer: two writers, altered bytes, retention, fetching; each kind in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from tests.destinations.conftest import MIB, Place, saved

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.daemon.store import prune as pruning
from outlast.daemon.store.claim import STALE_S
from outlast.daemon.store.listing import everything
from outlast.daemon.store.target import Target, open_target
from outlast.simulations.standins.stores import Fault
from outlast.wire.manifest import MANIFEST_NAME
from outlast.wire.store import newest_whole, verify

STORES = ["folder", "s3", "gs", "az"]
REMOTE = ["s3", "gs", "az"]


@pytest.fixture(params=STORES)
async def place(request: pytest.FixtureRequest, make_place: Callable[..., Any]) -> Place:
    """Each kind of store in turn."""
    made: Place = await make_place(request.param)
    return made


async def target_of(place: Place) -> Target:
    """A client of its own, to do what no destination would."""
    return await asyncio.to_thread(open_target, place.destination.settings, "gpt")


async def keys_of(place: Place) -> list[str]:
    """Every object's name, without the job's prefix."""
    target = await target_of(place)
    found = [meta["path"] async for chunk in obstore.list(target.store, target.keys.root) for meta in chunk]
    return sorted(key.removeprefix(f"{target.keys.root}/") for key in found)


async def test_of_two_writers_one_wins(place: Place, tmp_path: Path) -> None:
    """Two checkpoints of one name at once: one is there, whole to the last byte; the other is refused."""
    one = await saved(tmp_path / "one", 100, shard_bytes=MIB)
    two = await saved(tmp_path / "two", 100, shard_bytes=MIB + 1)
    outcomes = await asyncio.gather(
        place.destination.ship(one), place.another().ship(two), return_exceptions=True
    )
    lost = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    assert len(lost) == 1, outcomes
    assert lost[0].code == "taken"
    winner = two if isinstance(outcomes[0], Refused) else one
    fetched = await place.destination.fetch(tmp_path / "back")
    assert fetched is not None
    assert fetched[0].manifest == winner.manifest
    assert await asyncio.to_thread(verify, fetched[0].path) == []


async def test_a_committed_name_is_never_overwritten(place: Place, tmp_path: Path) -> None:
    """Another checkpoint under the name of one that is committed: refused, and the first stays whole."""
    one = await saved(tmp_path / "one", 100)
    await place.destination.ship(one)
    with pytest.raises(Refused, match="with other contents: it stays"):
        await place.another().ship(await saved(tmp_path / "two", 100, shard_bytes=5000))
    fetched = await place.destination.fetch(tmp_path / "back")
    assert fetched is not None
    assert fetched[0].manifest == one.manifest


async def test_a_dead_writer_is_succeeded_once_it_is_silent(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim of another checkpoint holds the name for an hour, not for ever."""
    one = await saved(tmp_path / "one", 100, shard_bytes=7 * MIB)
    await cut(place, one)
    two = await saved(tmp_path / "two", 100)
    with pytest.raises(Refused, match="another writer is sending"):
        await place.another().ship(two)
    late = place.another()
    later = time.time() + STALE_S + 60
    monkeypatch.setattr(late._clock, "wall", lambda: later, raising=False)
    await late.ship(two)
    fetched = await place.destination.fetch(tmp_path / "back")
    assert fetched is not None
    assert fetched[0].manifest == two.manifest


async def cut(place: Place, item: Any) -> None:
    """A ship that ends in mid-file."""

    def stop(there: int, _total: int) -> None:
        if there > 0:
            shipping.cancel()

    shipping = asyncio.create_task(place.destination.ship(item, stop))
    with pytest.raises(asyncio.CancelledError):
        await shipping


async def test_after_a_ship_only_the_checkpoint_is_there(place: Place, tmp_path: Path) -> None:
    """The layout is that of a local store, and the claim is gone."""
    item = await saved(tmp_path, 100)
    await place.destination.ship(item)
    names = [entry.path for entry in item.manifest.files] + [MANIFEST_NAME]
    assert await keys_of(place) == sorted(f"epoch-1/{item.tag}/{name}" for name in names)


async def test_retention_keeps_the_newest_whole_ones(place: Place, tmp_path: Path) -> None:
    """Of five, the newest two stay, over two epochs."""
    for epoch, step in [(1, 100), (1, 200), (1, 900), (2, 300), (2, 400)]:
        await place.destination.ship(await saved(tmp_path, step, epoch=epoch))
    gone = await place.destination.prune()
    assert [sentence.split(":")[0] for sentence in gone] == [
        "Deleted epoch-1/global_step100",
        "Deleted epoch-1/global_step200",
        "Deleted epoch-1/global_step900",
    ]
    assert await place.committed() == [(2, "global_step300", True), (2, "global_step400", True)]
    assert {key.split("/")[0] for key in await keys_of(place)} == {"epoch-2"}
    assert await place.destination.prune() == []


async def test_retention_never_takes_the_last_good_one(place: Place, tmp_path: Path) -> None:
    """Newer ones that lost a file count for nothing: the old one that is whole stays, whatever is kept."""
    items = [await saved(tmp_path, step) for step in (100, 200, 300, 400)]
    for item in items:
        await place.destination.ship(item)
    target = await target_of(place)
    for item in items[1:]:
        key = target.keys.file(1, item.tag, item.manifest.files[0].path)
        await obstore.delete_async(target.store, key)
    assert await place.destination.newest() == (1, "global_step100", 100)
    assert await place.destination.prune(keep=1) == []
    assert await place.destination.newest() == (1, "global_step100", 100)
    await place.destination.ship(items[3])
    assert await place.destination.newest() == (1, "global_step400", 400)


async def test_leftovers_of_a_dead_upload_are_swept(place: Place, tmp_path: Path) -> None:
    """What a cut upload left stays while it may go on, and goes once it was silent for an hour."""
    done = await saved(tmp_path, 100)
    await place.destination.ship(done)
    await cut(place, await saved(tmp_path, 200, shard_bytes=7 * MIB))
    target, now = await target_of(place), time.time()
    assert await pruning.prune(target, 2, None, now) == []
    assert any("global_step200" in key for key in await keys_of(place))
    assert await pruning.prune(target, 2, "global_step200", now + STALE_S + 60) == []
    said = await pruning.prune(target, 2, None, now + STALE_S + 60)
    assert said == ["Deleted epoch-1/global_step200: it was never sent whole."]
    assert not any("global_step200" in key for key in await keys_of(place))
    assert await place.committed() == [(1, done.tag, True)]


async def test_fetch_brings_equal_bytes_and_only_what_is_missing(place: Place, tmp_path: Path) -> None:
    """Into an empty store everything comes; into one that has a part, the rest; again, nothing."""
    item = await saved(tmp_path, 100, shard_bytes=11 * MIB)
    await place.destination.ship(item)
    fetched, came = await place.destination.fetch(tmp_path / "back")
    assert came == item.manifest.total_bytes
    assert fetched.manifest == item.manifest
    assert await asyncio.to_thread(verify, fetched.path) == []
    assert (await place.destination.fetch(tmp_path / "back"))[1] == 0
    right, wrong = item.manifest.files[0], item.manifest.files[1]
    staging = tmp_path / "other" / "epoch-1" / ".staging" / item.tag
    staging.mkdir(parents=True)
    data = await asyncio.to_thread((item.path / right.path).read_bytes)
    await asyncio.to_thread((staging / right.path).write_bytes, data)
    await asyncio.to_thread((staging / wrong.path).write_bytes, b"\0" * wrong.size)
    fetched, came = await place.destination.fetch(tmp_path / "other")
    assert came == item.manifest.total_bytes - right.size
    assert await asyncio.to_thread(verify, fetched.path) == []


async def test_a_damaged_object_is_not_taken(place: Place, tmp_path: Path) -> None:
    """Bytes that changed in the store: the fetch names the file, and nothing is committed here."""
    item = await saved(tmp_path, 100)
    await place.destination.ship(item)
    target, entry = await target_of(place), item.manifest.files[0]
    await obstore.put_async(target.store, target.keys.file(1, item.tag, entry.path), b"\1" * entry.size)
    with pytest.raises(Refused, match=f"holds a damaged {entry.path}"):
        await place.destination.fetch(tmp_path / "back")
    assert await asyncio.to_thread(newest_whole, tmp_path / "back") is None


@pytest.mark.parametrize(
    "bad",
    [b"", b"{", b"null", b'{"format":99}', b"\xff" * 100, b'{"format":2,"job":"gpt","files":[["..",1]]}'],
)
async def test_a_manifest_that_anybody_wrote_is_no_checkpoint(
    bad: bytes, place: Place, tmp_path: Path
) -> None:
    """Nonsense under the manifest's name hides nothing, is never newest, and is not swept as ours."""
    await place.destination.ship(await saved(tmp_path, 100))
    target = await target_of(place)
    await obstore.put_async(target.store, target.keys.manifest(1, "global_step900"), bad)
    assert await place.destination.newest() == (1, "global_step100", 100)
    assert await pruning.prune(target, 2, None, time.time() + STALE_S + 60) == []


async def test_a_manifest_of_another_place_is_no_checkpoint(place: Place, tmp_path: Path) -> None:
    """A manifest says job, epoch and tag; under another name it commits nothing."""
    item = await saved(tmp_path, 100)
    await place.destination.ship(item)
    target = await target_of(place)
    for epoch, tag in [(1, "global_step900"), (7, item.tag)]:
        await obstore.put_async(target.store, target.keys.manifest(epoch, tag), item.manifest.to_bytes())
    assert [tag.name for tag in await everything(target) if tag.manifest] == [item.tag]
    assert await place.destination.newest() == (1, item.tag, 100)


@pytest.mark.parametrize("kind", REMOTE)
async def test_bytes_that_change_on_the_way_there_are_sent_again(
    kind: str, make_place: Callable[..., Any], tmp_path: Path
) -> None:
    """A changed byte without TLS: found before the manifest is written, and mended by sending it again."""
    place: Place = await make_place(kind)
    assert place.way is not None
    item = await saved(tmp_path, 100)
    fault = Fault(1, alter=True, fits=lambda method, path: method == "PUT" and "model" in path)
    place.way.faults.append(fault)
    await place.destination.ship(item)
    assert fault.times == 0
    fetched = await place.destination.fetch(tmp_path / "back")
    assert fetched is not None
    assert await asyncio.to_thread(verify, fetched[0].path) == []


@pytest.mark.parametrize("kind", REMOTE)
async def test_a_way_that_always_changes_bytes_commits_nothing(
    kind: str, make_place: Callable[..., Any], tmp_path: Path
) -> None:
    """It is told that the store does not hold what was sent."""
    place: Place = await make_place(kind)
    assert place.way is not None

    def fits(method: str, path: str) -> bool:
        return method == "PUT" and "model" in path

    place.way.faults.append(Fault(1000, alter=True, fits=fits))
    with pytest.raises((Unreachable, Refused)):
        await place.destination.ship(await saved(tmp_path, 100))
    assert await place.committed() == []


@pytest.mark.parametrize("kind", REMOTE)
async def test_bytes_that_change_on_the_way_back_are_asked_for_again(
    kind: str, make_place: Callable[..., Any], tmp_path: Path
) -> None:
    """The digest tells, once is forgiven."""
    place: Place = await make_place(kind)
    assert place.way is not None
    item = await saved(tmp_path, 100)
    await place.destination.ship(item)
    place.way.faults.append(
        Fault(1, alter=True, fits=lambda method, path: method == "GET" and "model" in path)
    )
    fetched = await place.destination.fetch(tmp_path / "back")
    assert fetched is not None
    assert await asyncio.to_thread(verify, fetched[0].path) == []
