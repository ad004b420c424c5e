"""The standby's trainer in these tests: two scripted ranks, started as one command."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from outlast.simulations.rank import Script, ScriptedRank


async def main(folder: Path) -> None:
    """Train until sent home."""
    socket = Path(os.environ["OUTLAST_SOCKET"])
    scripts = [Script(socket, folder / "ckpt", rank=rank, world=2) for rank in (0, 1)]
    await asyncio.gather(*(ScriptedRank(s, folder / f"rank{s.rank}.jsonl").run() for s in scripts))


asyncio.run(main(Path(sys.argv[1])))
