"""A folder that is held: many may write in it, one alone may rename it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from outlast.daemon.checkpoint import arriving, locks
from outlast.daemon.checkpoint.locks import hold_folder, try_lock


def test_many_write_or_one_renames(tmp_path: Path) -> None:
    """Those who write share a folder; who is to have it alone gets it once they are gone."""
    folder = tmp_path / "tag"
    with hold_folder(folder) as held:
        assert not held
    folder.mkdir()
    with hold_folder(folder, shared=True) as one, hold_folder(folder, shared=True) as other:
        assert (one, other) == (True, True)
        with hold_folder(folder) as alone:
            assert not alone
    with hold_folder(folder) as alone:
        assert alone
        with hold_folder(folder, shared=True) as late:
            assert not late


def test_who_waited_while_the_folder_was_renamed_does_not_hold_the_renamed_one(tmp_path: Path) -> None:
    """What has got its final name is never written to by somebody who still knows the old one."""
    folder, final = tmp_path / "tag", tmp_path / "final"
    folder.mkdir()
    waiting, found = threading.Event(), []

    def write() -> None:
        waiting.set()
        with hold_folder(folder, shared=True, wait_s=10.0) as held:
            found.append((held, folder.exists()))

    writer = threading.Thread(target=write)
    with hold_folder(folder) as alone:
        assert alone
        writer.start()
        assert waiting.wait(10)
        folder.rename(final)
    writer.join(10)
    assert found == [(False, False)]


def test_of_a_lock_that_its_holder_deletes_there_is_one_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opened it before it was deleted has nothing by it: a third who makes it anew would hold it too."""
    lock, acquire = tmp_path / "tag.lock", locks._acquire

    def deleted_meanwhile(fd: int, kind: int, until: float) -> bool:
        monkeypatch.setattr(locks, "_acquire", acquire)
        lock.unlink()
        return acquire(fd, kind, until)

    monkeypatch.setattr(locks, "_acquire", deleted_meanwhile)
    with try_lock(lock) as second, try_lock(lock) as third:
        assert (second, third) == (True, False)


async def test_a_fetch_deletes_its_lock_while_it_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two nobody may get in: it would hold a lock that is not there."""
    lock, unlink, seen = tmp_path / "tag.lock", Path.unlink, []

    def looked_at(path: Path, *, missing_ok: bool = False) -> None:
        with try_lock(path) as other:
            seen.append(other)
        unlink(path, missing_ok=missing_ok)

    async with arriving._held(lock, "tag"):
        monkeypatch.setattr(Path, "unlink", looked_at)
    assert seen == [False]
