"""A store that throttles, breaks off, hangs or loses its credentials: survived, told, and tried again."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.destinations.conftest import MIB, Place, running, saved

from outlast.daemon.checkpoint.destinations import Refused, Unreachable
from outlast.simulations.standins.stores import Fault

REMOTE = ["s3", "gs", "az"]


@pytest.fixture(params=REMOTE)
async def place(request: pytest.FixtureRequest, make_place: Callable[..., Any]) -> Place:
    """Each cloud in turn."""
    made: Place = await make_place(request.param)
    return made


def writes(method: str, _path: str) -> bool:
    """What an upload is made of."""
    return method in {"PUT", "POST"}


def writes_a_shard(method: str, path: str) -> bool:
    """Bytes of a large file, and the beginning and end of its upload."""
    return method in {"PUT", "POST"} and "optim" in path


async def until_state(place: Place, *, reachable: bool) -> None:
    """Wait until the destination says so, at most 20 s."""
    changed = asyncio.Event()
    place.destination.on_change = lambda _: changed.set()
    async with asyncio.timeout(20):
        while place.destination.state.reachable is not reachable:
            await changed.wait()
            changed.clear()


@pytest.mark.parametrize("status", [500, 503])
async def test_a_few_refusals_are_waited_out(status: int, place: Place, tmp_path: Path) -> None:
    """Some requests of an upload are answered with 503: it takes longer, and arrives."""
    assert place.way is not None
    fault = Fault(4, status=status, fits=writes)
    place.way.faults.append(fault)
    item = await saved(tmp_path, 100, shard_bytes=6 * MIB)
    await place.destination.ship(item, deadline=time.monotonic() + 40)
    assert fault.times == 0
    assert await place.committed() == [(1, item.tag, True)]
    assert place.destination.state.reachable is True


async def test_throttling_without_end_is_told_and_overcome_later(place: Place, tmp_path: Path) -> None:
    """503 to everything: out of reach with that reason; nothing is committed; later it goes on."""
    assert place.way is not None
    item = await saved(tmp_path, 100)
    fault = Fault(100_000, status=503)
    place.way.faults.append(fault)
    with pytest.raises(Unreachable, match="throttles"):
        await place.destination.ship(item)
    state = place.destination.state
    assert state.reachable is False
    assert "throttles (503" in state.because
    fault.times = 0
    await place.destination.ship(item)
    assert place.destination.state.reachable is True
    assert await place.committed() == [(1, item.tag, True)]


async def test_a_connection_cut_in_mid_upload_is_tried_again(place: Place, tmp_path: Path) -> None:
    """The connection breaks while parts of a file travel: the file arrives all the same, whole."""
    assert place.way is not None
    fault = Fault(2, fits=writes_a_shard)
    place.way.faults.append(fault)
    item = await saved(tmp_path, 100, shard_bytes=11 * MIB)
    await place.destination.ship(item, deadline=time.monotonic() + 40)
    assert fault.times == 0
    assert await place.committed() == [(1, item.tag, True)]


async def test_an_upload_that_fails_in_the_middle_goes_on_where_it_was(place: Place, tmp_path: Path) -> None:
    """The store fails for one file for good: what had arrived is not sent again once it is well."""
    assert place.way is not None
    item = await saved(tmp_path, 100, shard_bytes=2 * MIB)
    fault = Fault(100_000, status=500, fits=lambda m, path: m in {"PUT", "POST"} and "00001" in path)
    place.way.faults.append(fault)
    with pytest.raises(Unreachable):
        await place.destination.ship(item)
    assert await place.committed() == []
    fault.times = 0
    shipped = await place.another().ship(item)
    assert shipped.bytes_sent < item.manifest.total_bytes
    assert await place.committed() == [(1, item.tag, True)]


async def test_lost_credentials_are_told_with_what_to_do(place: Place, tmp_path: Path) -> None:
    """403 in mid-upload: the sentence names the store and the remedy, and holds no secret."""
    assert place.way is not None
    item = await saved(tmp_path, 100, shard_bytes=6 * MIB)
    fault = Fault(100_000, status=403, fits=writes_a_shard)
    place.way.faults.append(fault)
    with pytest.raises(Refused) as caught:
        await place.destination.ship(item)
    assert caught.value.code == "credentials"
    said = place.destination.state.because
    assert place.destination.name in said
    assert "does not take the credentials (403" in said
    assert "give the node's" in said
    assert "secret" not in said
    assert "Eby8" not in said
    assert await place.committed() == []
    fault.times = 0
    await place.destination.ship(item)
    assert place.destination.state.reachable is True


async def test_the_watch_of_a_store_outlives_its_troubles(place: Place) -> None:
    """`run` says out of reach while everything is refused, never ends, and says when it is well again."""
    assert place.way is not None
    fault = Fault(100_000, status=403)
    place.way.faults.append(fault)
    async with running(place.destination.run()):
        await until_state(place, reachable=False)
        fault.times = 0
        await until_state(place, reachable=True)


async def test_a_store_that_never_answers_costs_no_more_than_the_deadline(
    place: Place, tmp_path: Path
) -> None:
    """Silence: at the deadline the ship is over, and says so."""
    assert place.way is not None
    place.way.faults.append(Fault(100_000, hang=True))
    item = await saved(tmp_path, 100)
    began = time.monotonic()
    with pytest.raises(Unreachable, match="did not have it in time"):
        await place.destination.ship(item, deadline=began + 1.0)
    assert time.monotonic() - began < 10.0
    assert place.destination.state.reachable is False


async def test_a_store_that_is_not_there(make_place: Callable[..., Any], tmp_path: Path) -> None:
    """A bucket that nobody made, a server that nobody runs, a folder that is not mounted."""
    item = await saved(tmp_path, 100)
    place: Place = await make_place("s3")
    lost = place.another()
    object.__setattr__(lost.settings.address, "bucket", "nobody-made-this")
    with pytest.raises(Refused, match="is not there: make the bucket"):
        await lost.ship(item)
    assert lost.state.reachable is False


async def test_a_folder_that_is_not_mounted_is_not_made(
    make_place: Callable[..., Any], tmp_path: Path
) -> None:
    """A missing mount point is told; nothing is written to the disk below."""
    place: Place = await make_place("folder")
    (tmp_path / "nfs").rmdir()
    with pytest.raises(Refused, match="mount it"):
        await place.destination.ship(await saved(tmp_path, 100))
    assert place.destination.state.reachable is False
    assert not (tmp_path / "nfs").exists()


@pytest.mark.parametrize("kind", ["s3", "gs"])
async def test_no_parts_are_left_behind(kind: str, make_place: Callable[..., Any], tmp_path: Path) -> None:
    """Parts of an upload that was cut or found damaged cost money for ever, unless they are thrown away."""
    place: Place = await make_place(kind)
    item = await saved(tmp_path, 100, shard_bytes=23 * MIB)

    def stop(there: int, _total: int) -> None:
        if there > 6 * MIB:
            shipping.cancel()

    shipping = asyncio.create_task(place.destination.ship(item, stop))
    with pytest.raises(asyncio.CancelledError):
        await shipping
    assert place.way is not None
    assert any("uploads" in path for _, path, _ in place.way.requests), "nothing was sent in parts"
    assert await asyncio.to_thread(_open_uploads, place) == 0
    victim = item.path / item.manifest.files[0].path
    data = bytearray(await asyncio.to_thread(victim.read_bytes))
    data[-1] ^= 1
    await asyncio.to_thread(victim.write_bytes, data)
    with pytest.raises(Refused, match="damaged here"):
        await place.destination.ship(item)
    assert await asyncio.to_thread(_open_uploads, place) == 0


def _open_uploads(place: Place) -> int:
    assert place.way is not None
    bucket = place.destination.settings.address.bucket
    with urllib.request.urlopen(f"{place.way.upstream}/{bucket}?uploads", timeout=10) as answer:
        return int(answer.read().count(b"<Upload>"))


async def test_s3_is_told_each_parts_digest(make_place: Callable[..., Any], tmp_path: Path) -> None:
    """With a checksum beside each part, S3 itself refuses what changed on the way."""
    place: Place = await make_place("s3")
    assert place.way is not None
    await place.destination.ship(await saved(tmp_path, 100))
    assert "x-amz-checksum-sha256" in place.way.headers


async def test_a_profile_of_the_aws_tools_is_used(
    make_place: Callable[..., Any],
    tmp_path: Path,
    environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AWS_PROFILE and its file, as the AWS tools read them."""
    place: Place = await make_place("s3")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    file = tmp_path / "credentials"
    file.write_text("[mine]\naws_access_key_id = AKIAOFTHEPROFILE\naws_secret_access_key = s\n")
    environment(AWS_PROFILE="mine", AWS_SHARED_CREDENTIALS_FILE=str(file), AWS_CONFIG_FILE="/dev/null")
    assert place.way is not None
    await place.destination.ship(await saved(tmp_path, 100))
    assert any("AKIAOFTHEPROFILE" in key for key in place.way.keys)
