"""A folder that is held: many may write in it, one alone may rename it."""

from __future__ import annotations

import threading
from pathlib import Path

from outlast.daemon.checkpoint.locks import hold_folder


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
