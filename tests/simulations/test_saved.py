"""What pretends to be a job's checkpoint is the same each time it is made."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.core.conftest import until

from outlast.simulations.saved import save_tag


async def test_the_same_seed_gives_the_same_bytes_later(tmp_path: Path) -> None:
    """Archives bear no time of their own: their clock counts in steps of two seconds."""
    one = await asyncio.to_thread(made, tmp_path / "one")
    began = time.time() // 2
    await until(lambda: time.time() // 2 > began)
    assert await asyncio.to_thread(made, tmp_path / "other") == one


def made(folder: Path) -> dict[str, bytes]:
    """A checkpoint's files by name."""
    return {path.name: path.read_bytes() for path in save_tag(folder, seed=1).iterdir()}
