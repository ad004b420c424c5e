"""A small file that several replace at once: one after another, and a reader never sees a torn one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outlast.daemon.checkpoint import place
from outlast.daemon.checkpoint.place import write_atomically

CONTENTS = [bytes([65 + index]) * (1 + 4000 * index) for index in range(4)]


def test_writers_of_one_file_do_not_get_into_each_others_way(tmp_path: Path) -> None:
    """Every writer succeeds, whoever reads meanwhile finds one of the contents whole, and nothing is left."""
    path = tmp_path / "global_step1.offer"
    write_atomically(path, CONTENTS[0])
    over, strange = threading.Event(), []

    def read() -> None:
        while not over.is_set():
            if (found := path.read_bytes()) not in CONTENTS:
                strange.append(found)

    def write(data: bytes) -> None:
        for _ in range(25):
            write_atomically(path, data)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with ThreadPoolExecutor(len(CONTENTS)) as pool:
            list(pool.map(write, CONTENTS))
    finally:
        over.set()
        reader.join(10)
    assert strange == []
    assert path.read_bytes() in CONTENTS
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_who_waits_for_a_writer_that_was_stopped_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that stands still in the middle holds nobody up for ever: the file stays, others hear why."""
    path = tmp_path / "handover.json"
    write_atomically(path, b"old")
    monkeypatch.setattr(place, "_WRITER_S", 0.1)

    def stopped(_step: str) -> None:
        with pytest.raises(OSError, match="another process is writing it"):
            write_atomically(path, b"other")
        assert path.read_bytes() == b"old"

    write_atomically(path, b"new", stopped)
    assert path.read_bytes() == b"new"
