"""One behaviour for every destination: a peer, a folder, S3, Google Cloud Storage, Azure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.destinations.conftest import MIB, Place, saved

from outlast.daemon.checkpoint.commit import commit
from outlast.daemon.checkpoint.destinations import Refused
from outlast.simulations.saved import order, save_tag
from outlast.wire.store import Committed, epoch_folder

KINDS = ["peer", "folder", "s3", "gs", "az"]


@pytest.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, make_place: Callable[..., Any]) -> Place:
    """Each destination in turn."""
    made: Place = await make_place(request.param)
    return made


def saved_with(store: Path, step: int, files: dict[str, bytes]) -> Committed:
    """A checkpoint with files of the test's own beside those that every rank leaves. Blocking."""
    wanted = order(step)
    folder = save_tag(epoch_folder(store, 1) / f"{wanted.tag}.partial", seed=step)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return commit(store, wanted, 1_800_000_000.0)


async def test_what_is_shipped_is_the_newest_there(place: Place, tmp_path: Path) -> None:
    """Nothing, then one, then a newer one: each is whole, and the destination names the newest."""
    assert await place.newest() is None
    first = await saved(tmp_path, 100)
    shipped = await place.destination.ship(first)
    assert shipped.bytes_sent == shipped.bytes_total == first.manifest.total_bytes
    assert await place.newest() == (1, "global_step100", 100)
    await place.destination.ship(await saved(tmp_path, 200))
    assert await place.newest() == (1, "global_step200", 200)
    assert await place.committed() == [(1, "global_step100", True), (1, "global_step200", True)]


async def test_a_second_ship_sends_nothing(place: Place, tmp_path: Path) -> None:
    """The same checkpoint again costs no byte, and progress ends at all of them."""
    item = await saved(tmp_path, 100)
    await place.destination.ship(item)
    seen: list[tuple[int, int]] = []
    again = await place.another().ship(item, lambda there, total: seen.append((there, total)))
    assert (again.bytes_sent, again.bytes_total) == (0, item.manifest.total_bytes)
    assert seen[-1] == (item.manifest.total_bytes, item.manifest.total_bytes)


async def test_a_higher_epoch_is_newer_than_a_higher_step(place: Place, tmp_path: Path) -> None:
    """After a takeover the job's newest may have a lower step than what the old epoch left."""
    await place.destination.ship(await saved(tmp_path, 900, epoch=1))
    await place.destination.ship(await saved(tmp_path, 20, epoch=12))
    assert await place.newest() == (12, "global_step20", 20)


async def test_a_cut_ship_leaves_nothing_that_counts_and_ends_well_later(
    place: Place, tmp_path: Path
) -> None:
    """Cancelled in mid-file: no checkpoint is there. The next try makes it whole."""
    item = await saved(tmp_path, 100, shard_bytes=13 * MIB)

    def cut(there: int, _total: int) -> None:
        if there > 0:
            shipping.cancel()

    shipping = asyncio.create_task(place.destination.ship(item, cut))
    with pytest.raises(asyncio.CancelledError):
        await shipping
    assert await place.committed() == []
    assert await place.newest() is None
    await place.destination.ship(item)
    assert await place.committed() == [(1, item.tag, True)]


async def test_a_damaged_file_is_refused_and_what_had_arrived_is_not_sent_again(
    place: Place, tmp_path: Path
) -> None:
    """A byte that changed on the sender's disk: nothing is committed. Mended, only the rest travels."""
    item = await saved(tmp_path, 100, shard_bytes=MIB)
    victim = item.path / min(item.manifest.files, key=lambda entry: entry.size).path
    good = await asyncio.to_thread(victim.read_bytes)
    await asyncio.to_thread(victim.write_bytes, good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(Refused, match=f"damaged here: {victim.name}") as caught:
        await place.destination.ship(item)
    assert caught.value.code == "damaged"
    assert await place.committed() == []
    await asyncio.to_thread(victim.write_bytes, good)
    shipped = await place.destination.ship(item)
    assert shipped.bytes_sent < item.manifest.total_bytes
    assert await place.committed() == [(1, item.tag, True)]


async def test_a_torn_checkpoint_is_not_even_begun(place: Place, tmp_path: Path) -> None:
    """A file that is short is seen before anything is sent."""
    item = await saved(tmp_path, 100)
    victim = item.path / item.manifest.files[0].path
    await asyncio.to_thread(victim.write_bytes, b"short")
    with pytest.raises(Refused, match="5 bytes, not"):
        await place.destination.ship(item)
    assert await place.committed() == []
    assert place.way is None or not any(method in {"PUT", "POST"} for method, _, _ in place.way.requests)


async def test_two_writers_of_one_checkpoint_agree(place: Place, tmp_path: Path) -> None:
    """A daemon and its successor may send the same thing at once: it is whole, and neither fails."""
    item = await saved(tmp_path, 100, shard_bytes=MIB)
    async with asyncio.TaskGroup() as both:
        for writer in (place.destination, place.another()):
            both.create_task(writer.ship(item))
    assert await place.committed() == [(1, item.tag, True)]


async def test_names_that_need_care_arrive_as_they_are(place: Place, tmp_path: Path) -> None:
    """Blanks, signs that mean something in a URL, other scripts: each file is there under its own name."""
    names = ["a b/c+d&e=f.pt", "100%25?x.pt", "größe/权重~[0].bin", "it's;a,b:c@d$.bin", "a#b.bin"]
    item = await asyncio.to_thread(
        saved_with, tmp_path / "store", 100, {name: name.encode() for name in names}
    )
    await place.destination.ship(item)
    assert await place.committed() == [(1, item.tag, True)]
    again = await place.destination.ship(item)
    assert again.bytes_sent == 0


async def test_what_did_not_change_does_not_travel_again(place: Place, tmp_path: Path) -> None:
    """A frozen file of an older checkpoint is taken from that one."""
    frozen = {"frozen/base.safetensors": b"\7" * (6 * MIB)}
    first = await asyncio.to_thread(saved_with, tmp_path / "store", 100, frozen)
    second = await asyncio.to_thread(saved_with, tmp_path / "store", 200, frozen)
    await place.destination.ship(first)
    shipped = await place.destination.ship(second)
    assert shipped.bytes_sent == second.manifest.total_bytes - 6 * MIB
    assert (1, second.tag, True) in await place.committed()
