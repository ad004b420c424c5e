"""Trainer and daemon are two users of one group: what one lands, the other saves beside and deletes."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outlast.daemon.checkpoint.arriving import from_folder, land
from outlast.daemon.checkpoint.destinations import Unreachable
from outlast.daemon.checkpoint.place import below, share
from outlast.simulations.saved import committed
from outlast.wire.manifest import FileEntry


@pytest.fixture(autouse=True)
def units_umask() -> Iterator[None]:
    """As the daemon's unit has it."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    """What the group may do, in all folders there are and in the locks."""
    found = (path for path in (folder, *folder.rglob("*")) if path.is_dir() or path.suffix == ".lock")
    return {path.stat().st_mode & (stat.S_IRGRP | stat.S_IWGRP) for path in found}


def _begin(folder: Path) -> None:
    folder.mkdir()
    (folder / "file.outlast-part").write_bytes(b"1")


@pytest.mark.parametrize(("mode", "group"), [(0o770, stat.S_IRGRP | stat.S_IWGRP), (0o750, stat.S_IRGRP)])
def test_the_trainer_can_save_in_an_epoch_that_was_fetched(tmp_path: Path, mode: int, group: int) -> None:
    """Where the store is open to the group, so is what landed in it; else nothing is opened."""
    store, item = tmp_path / "ckpt", committed(tmp_path / "src", 30, epoch=3)
    store.mkdir()
    store.chmod(mode)
    asyncio.run(land(item.manifest, store, from_folder(item.path)))
    assert modes(store / "epoch-3") == {group}


def test_another_user_can_go_on_with_a_fetch_that_broke_off(tmp_path: Path) -> None:
    """A person began it as root, say, and the daemon goes on."""
    store, item = tmp_path / "ckpt", committed(tmp_path / "src", 30, epoch=3)
    store.mkdir()
    store.chmod(0o770)

    async def cut(staging: Path, _missing: list[FileEntry], _count: Callable[[int], None]) -> int:
        await asyncio.to_thread(_begin, staging / "sub")
        raise Unreachable("cut")

    with pytest.raises(Unreachable):
        asyncio.run(land(item.manifest, store, cut))
    left = store / "epoch-3" / ".staging" / item.tag / "sub"
    assert left.stat().st_mode & 0o070 == 0o070
    assert (left / "file.outlast-part").stat().st_mode & 0o060 == 0o060


def test_nothing_outside_is_opened_through_a_link(tmp_path: Path) -> None:
    """The group may write in the store, so it may put a link there: what that names stays as it is."""
    outside = tmp_path / "outside"
    outside.touch(mode=0o600)
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(0o770)
    (store / "own").touch(mode=0o600)
    (store / "link").symlink_to(outside)
    share(store, *below(store))
    assert [stat.S_IMODE(path.stat().st_mode) for path in (outside, store / "own")] == [0o600, 0o660]
