"""A scripted rank: speaks the trainer protocol and writes checkpoint-shaped files, without any training.

For tests and benchmarks of the daemon, where a step and a save must take exactly as long as said. Drills
use the real hook in real training.

    python -m outlast.simulations.rank --socket S --checkpoints DIR --rank 0 --world 2 --log rank0.jsonl

With ``--rank 0 1`` one process is several ranks, and the first of them keeps the log. With ``--alone`` it
trains without a daemon. What it notes as a step's loss follows from all steps before it and is carried on by
its checkpoints alone, so that a run can be held against another one.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from outlast.wire.messages import (
    Agree,
    At,
    Done,
    Flush,
    Hello,
    Layout,
    Message,
    Park,
    Progress,
    Resume,
    Saved,
    StandDown,
    ToHook,
    decode_to_hook,
    encode,
)
from outlast.wire.shards import state_name
from outlast.wire.store import epoch_folder

RECONNECT_S = 0.1
_BLOCK = 1024 * 1024
_FIRST = hashlib.sha256(b"nothing is trained").digest()
_ELSE = hashlib.sha256(b"no checkpoint of this program").digest()


@dataclass(frozen=True)
class Script:
    """How the rank behaves. ``size`` bytes a shard; ``frozen_after`` steps it answers nothing more.

    ``steps``: ends there; ``more``: ends so many steps after those of the checkpoint it resumed from.
    """

    socket: Path
    checkpoints: Path
    job: str = "tune"
    rank: int = 0
    world: int = 1
    step_s: float = 0.05
    save_s: float = 0.0
    size: int = 10_000
    steps: int | None = None
    more: int | None = None
    frozen_after: int | None = None
    alone: bool = False


class ScriptedRank:
    """One rank. ``run`` returns how it ended: ``exit`` (sent home) or ``done`` (all steps trained)."""

    def __init__(self, script: Script, log: Path | None = None) -> None:
        self.script = script
        self.step = 0
        self.epoch = 0
        self.resumed: Resume | None = None
        self.told: list[tuple[float, ToHook]] = []
        self._trained = _FIRST
        self._log = log
        self._writer: asyncio.StreamWriter | None = None
        self._flush: Flush | None = None
        self._agreed: int | None = None
        self._saved: Saved | None = None
        self._held = False
        self._leave = False
        self._changed = asyncio.Event()

    async def run(self) -> str:
        """Connect, train and obey until sent home or done; reconnects for as long as it takes."""
        if self.script.alone:
            return await self._train()
        link = asyncio.create_task(self._link(), name=f"rank {self.script.rank} link")
        try:
            await self._until(lambda: self.resumed is not None or self._leave)
            if self.resumed is not None:
                self._trained = await asyncio.to_thread(self._load, self.resumed)
            return await self._train()
        finally:
            link.cancel()
            with suppress(asyncio.CancelledError):
                await link

    # ---- the training thread's part

    async def _train(self) -> str:
        script, last = self.script, self._last()
        while not self._leave and (last is None or self.step < last):
            await asyncio.sleep(script.step_s)
            self.step += 1
            self._trained = hashlib.sha256(self._trained).digest()
            self._note("step", step=self.step, loss=_loss(self._trained), wall=time.time())
            self._send(Progress(self.step, script.step_s))
            if script.frozen_after is not None and self.step >= script.frozen_after:
                await asyncio.Event().wait()
            await self._boundary()
        if not self._leave:
            self._send(Done(self.step))
        return "exit" if self._leave else "done"

    def _last(self) -> int | None:
        """The step it ends with; None for none."""
        if self.script.more is not None and self.resumed is not None and self.resumed.tag:
            return self.resumed.step + self.script.more
        return self.script.steps

    async def _boundary(self) -> None:
        flush = self._flush
        if flush is None:
            return
        await self._until(lambda: self._agreed is not None or self._flush is not flush or self._leave)
        if self._flush is not flush or self._leave or self._agreed is None or self.step < self._agreed:
            return
        await self._save(flush)
        if flush.hold:
            self._held = True
            await self._until(lambda: not self._held or self._leave)

    async def _save(self, flush: Flush) -> None:
        began = time.monotonic()
        tag = f"global_step{self.step}"
        folder = epoch_folder(self.script.checkpoints, self.epoch)
        if not await asyncio.to_thread((folder / tag).exists):
            await asyncio.sleep(self.script.save_s)
            self._note("saving", step=self.step, flush=flush.id)
            await asyncio.to_thread(self._write, folder / f"{tag}.partial")
        self._saved = Saved(flush.id, self.step, tag, time.monotonic() - began)
        self._flush, self._agreed = None, None
        self._note("saved", step=self.step, flush=flush.id)
        self._send(self._saved)

    def _write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in self._files():
            with (folder / name).open("wb") as file:
                for piece in content(f"{name} {self.step}", self._trained, self.script.size):
                    file.write(piece)

    def _files(self) -> Sequence[str]:
        rank = self.script.rank
        own = [state_name(rank), f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"]
        return [*own, "mp_rank_00_model_states.pt"] if rank == 0 else own

    # ---- the link's part

    async def _link(self) -> None:
        while True:
            with suppress(OSError):
                reader, self._writer = await asyncio.open_unix_connection(str(self.script.socket))
                try:
                    self._greet()
                    while line := await reader.readline():
                        self._hear(decode_to_hook(line))
                finally:
                    self._writer.close()
            self._writer = None
            await asyncio.sleep(RECONNECT_S)

    def _greet(self) -> None:
        script = self.script
        layout = Layout(script.world, data=script.world, zero_stage=2)
        folder = str(script.checkpoints)
        self._send(Hello(script.job, script.rank, os.getpid(), folder, layout, self.step, self.epoch))
        if self._saved is not None:
            self._send(self._saved)
        elif self._flush is not None:
            self._send(At(self._flush.id, self._promise()))

    def _promise(self) -> int:
        return self.step + 1

    def _hear(self, message: ToHook) -> None:
        self.told.append((time.monotonic(), message))
        self._note("told", **{"message": message.type, **vars(message)})
        match message:
            case Resume():
                if self.epoch == 0:
                    self.epoch, self.step, self.resumed = message.epoch, message.step, message
            case Flush():
                self._asked(message)
            case Agree():
                if self._flush is not None and self._flush.id == message.id:
                    self._agreed = message.step
            case StandDown():
                self._stand_down(message)
            case Park():
                pass
        self._changed.set()

    def _load(self, resume: Resume) -> bytes:
        """What the checkpoint holds of the steps before it."""
        if resume.folder is None or resume.tag is None:
            return _FIRST
        try:
            with (Path(resume.folder) / resume.tag / state_name(self.script.rank)).open("rb") as file:
                return file.read(len(_FIRST))
        except OSError:
            return _ELSE

    def _asked(self, flush: Flush) -> None:
        if self._saved is not None and self._saved.id == flush.id:
            self._send(self._saved)
            return
        self._flush, self._agreed = flush, None
        self._send(At(flush.id, self._promise()))

    def _stand_down(self, message: StandDown) -> None:
        self._leave = self._leave or message.then == "exit"
        self._held = False
        if self._saved is not None and message.id in ("", self._saved.id):
            self._saved = None
        if self._flush is not None and message.id in ("", self._flush.id):
            self._flush, self._agreed = None, None

    def _send(self, message: Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(message))

    async def _until(self, condition: object) -> None:
        assert callable(condition)
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def _note(self, event: str, **fields: object) -> None:
        if self._log is None:
            return
        line = json.dumps({"event": event, "at": time.monotonic(), **fields})
        with self._log.open("a") as out:
            out.write(line + "\n")


def content(name: str, head: bytes, size: int) -> Iterator[bytes]:
    """``size`` bytes that begin with ``head``: the same name gives the same ones, no two mebibytes of all
    names are alike, nothing compresses them, and they are made as fast as a disk takes them."""
    noise = memoryview(random.Random(_BLOCK).randbytes(min(size, _BLOCK)))
    for start in range(0, size, _BLOCK):
        stamp = (b"" if start else head) + hashlib.sha256(f"{name} {start}".encode()).digest()
        length = min(_BLOCK, size - start)
        yield stamp[:length]
        yield bytes(noise[len(stamp) : length])


def _loss(trained: bytes) -> str:
    return (int.from_bytes(trained[:6]) / 2**48).hex()


def main() -> int:
    """Run scripted ranks as a process; prints how each of them ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--socket", type=Path, default=os.environ.get("OUTLAST_SOCKET"), required=False)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--job", default="tune")
    parser.add_argument("--rank", type=int, nargs="+", default=[0])
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--save-s", type=float, default=0.0)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--more", type=int, help="steps after those of the checkpoint resumed from")
    parser.add_argument("--alone", action="store_true", help="train without a daemon")
    parser.add_argument("--frozen-after", type=int)
    parser.add_argument("--log", type=Path)
    args = vars(parser.parse_args())
    log, numbers = args.pop("log"), args.pop("rank")
    print(*asyncio.run(_all([Script(**args, rank=number) for number in numbers], log)))
    return 0


async def _all(scripts: Sequence[Script], log: Path | None) -> list[str]:
    """Run ranks side by side until each has ended."""
    ranks = [ScriptedRank(script, None if n else log) for n, script in enumerate(scripts)]
    return await asyncio.gather(*(rank.run() for rank in ranks))


if __name__ == "__main__":
    sys.exit(main())
