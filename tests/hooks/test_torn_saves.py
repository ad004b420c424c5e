"""Ranks of several nodes that save one step twice: what is torn is not taken for saved."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from outlast.hooks.ballot import LocalBallot
from outlast.hooks.saving import FolderSaver


def test_a_step_that_one_rank_could_not_save_is_saved_anew(tmp_path: Path) -> None:
    """Two flushes at one step: the first left a torn file, and the rank that makes the folder a whole one."""
    shared: dict[str, str] = {}
    broken = [True]

    def write(rank: int) -> Callable[[Path, int, int], None]:
        def save(folder: Path, _step: int, _epoch: int) -> None:
            (folder / f"rank{rank}").write_text("torn" if rank == 1 and broken[0] else "whole")
            if rank == 1 and broken[0]:
                raise OSError("no space")

        return save

    savers = [
        FolderSaver(LocalBallot(rank, 4, shared), tmp_path / f"node{rank // 2}", write(rank), here=2)
        for rank in range(4)
    ]

    def saved(saver: FolderSaver, key: str) -> None:
        try:
            saver.save(key, 5, 1)
        except OSError:
            return

    for key in ("f/5", "g/5"):
        threads = [threading.Thread(target=saved, args=(saver, key)) for saver in savers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        broken[0] = False
    texts = {path.name: path.read_text() for path in tmp_path.glob("*/epoch-1/global_step5.partial/rank*")}
    assert texts == {f"rank{rank}": "whole" for rank in range(4)}
