"""However a drill ends, none of its processes and none of its files is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast.providers.base import SystemClock
from outlast.simulations.drill import reap
from outlast.simulations.drill.sandbox import DrillError, Sandbox

BOUND_S = 20.0

# A launcher that dies at once and leaves an orphan in a session of its own, as torchrun's ranks are.
ORPHAN = "import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)"
MAPPER = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
print(flush=True)
sys.stdin.read()
"""
OWNER = """
import asyncio, sys
from outlast.providers.base import SystemClock
from outlast.simulations.drill.sandbox import Sandbox

async def main():
    async with Sandbox(SystemClock()) as box:
        await box.spawn("sleeper", "sleep", "300")
        print(box.id, box.folder, flush=True)
        await asyncio.sleep(300)

asyncio.run(main())
"""


def wait_until(holds: Callable[[], bool]) -> None:
    """Poll, bounded."""
    deadline = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


async def traces(box: Sandbox, *pids: int) -> list[str]:
    """What is left of a drill that is over: processes, zombies of ``pids``, its folder."""

    def find() -> list[str]:
        living = [f"process {pid}" for pid in reap.belonging(box.id, box.folder)]
        zombies = [f"zombie {pid}" for pid in pids if Path(f"/proc/{pid}").exists()]
        return living + zombies + [str(path) for path in [box.folder] if path.exists()]

    return await asyncio.to_thread(find)


async def test_nothing_is_left_after_a_good_end() -> None:
    """A child, and the orphan of a child that is gone already, end with the sandbox; so does the folder."""
    async with Sandbox(SystemClock()) as box:
        launcher = await box.spawn("launcher", sys.executable, "-c", ORPHAN)
        assert await launcher.wait() == 0
        await box.spawn("sleeper", "sleep", "300")
        alive = await asyncio.to_thread(box.belonging)
        assert len(alive) == 2
    assert await traces(box, *alive) == []


async def test_failure_inside_is_cleaned_up_and_told() -> None:
    """An error in the middle of a drill comes through once everything is gone."""
    box = Sandbox(SystemClock())

    async def fail() -> None:
        async with box:
            await box.spawn("sleeper", "sleep", "300")
            raise DrillError("in the middle")

    with pytest.raises(DrillError, match="in the middle"):
        await fail()
    assert await traces(box) == []


async def test_clean_up_is_not_cut_short() -> None:
    """A cancellation that arrives while the sandbox closes is obeyed after it has closed."""
    box = Sandbox(SystemClock())
    await box.__aenter__()
    await box.spawn("sleeper", "sleep", "300")
    closing = asyncio.create_task(box.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert await traces(box) == []


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8, 20])
async def test_start_that_is_cancelled_leaves_nothing(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation at any moment of the opening leaves no folder and no guardian."""
    base = await asyncio.to_thread(tempfile.mkdtemp, prefix="d-", dir="/tmp")
    monkeypatch.setattr(tempfile, "tempdir", base)
    box = Sandbox(SystemClock())
    opening = asyncio.create_task(box.__aenter__())
    for _ in range(turns):
        await asyncio.sleep(0.001)
    opening.cancel()
    try:
        await opening
    except asyncio.CancelledError:
        pass
    else:
        await box.close()
    assert await asyncio.to_thread(os.listdir, base) == []
    assert await asyncio.to_thread(reap.belonging, box.id, Path(base)) == set()
    await asyncio.to_thread(os.rmdir, base)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_guardian_cleans_up_after_a_killed_drill(number: signal.Signals) -> None:
    """kill -9 of the drill itself leaves neither its processes nor its folder."""
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        drill_id, folder = owner.stdout.readline().split()
        assert len(reap.belonging(drill_id, Path(folder))) == 1
        os.kill(owner.pid, number)
    wait_until(lambda: not reap.belonging(drill_id, Path(folder)))
    wait_until(lambda: not Path(folder).exists())


async def test_program_that_is_not_there_is_named() -> None:
    """A process that cannot be started is an error with its name."""
    async with Sandbox(SystemClock()) as box:
        with pytest.raises(DrillError, match=r"cannot start /no/such/program: No such file"):
            await box.spawn("nobody", "/no/such/program")


async def test_kept_files_hold_logs_and_no_key(tmp_path: Path) -> None:
    """Logs and histories are kept as asked, keys and checkpoints never."""
    async with Sandbox(SystemClock(), keep=tmp_path / "kept") as box:
        child = await box.spawn("speaker", "echo", "hello")
        assert await child.wait() == 0
        await asyncio.to_thread(_write, box.folder)
    assert await asyncio.to_thread(_names, tmp_path / "kept") == [
        "logs/speaker.log",
        "us-east-1/state/history.sqlite3",
        "us-east-1/steps.jsonl",
    ]


async def test_what_cannot_be_kept_leaves_nothing_behind(tmp_path: Path) -> None:
    """The folder of the drill goes all the same, and the reason is told."""
    target = tmp_path / "kept"
    await asyncio.to_thread(target.touch)
    with pytest.raises(DrillError, match=f"cannot be kept in {target}"):
        async with Sandbox(SystemClock(), keep=target) as box:
            await asyncio.to_thread(_write, box.folder)
    assert not await asyncio.to_thread(box.folder.exists)


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _write(folder: Path) -> None:
    for name in (
        "us-east-1/state/history.sqlite3",
        "us-east-1/steps.jsonl",
        "us-east-1/checkpoints/epoch-1/tag/x",
        "sshd/client",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


async def test_node_without_power_has_no_process() -> None:
    """Cutting a node's power ends what runs there, and leaves the other node alone."""
    async with Sandbox(SystemClock()) as box:
        east = await box.spawn("east", "sleep", "300", env={reap.NODE: "us-east-1"})
        west = await box.spawn("west", "sleep", "300", env={reap.NODE: "us-west-2"})
        assert await box.kill_node("us-east-1") == {east.pid}
        assert await east.wait() == -signal.SIGKILL
        assert west.status is None


def test_buffers_of_living_processes_are_spared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of DeepSpeed's buffers in shared memory only new ones that nobody has mapped are removed."""
    monkeypatch.setattr(reap, "_SHARED", tmp_path)
    old, live, dead = (tmp_path / f"deepspeed_allreduce_buffer_{name}" for name in ("old", "live", "dead"))
    other = tmp_path / "somebody_elses"
    for path in (old, live, dead, other):
        path.write_bytes(bytes(4096))
    with subprocess.Popen(
        [sys.executable, "-c", MAPPER, str(live)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert reap.sweep_buffers({old}) == {dead}
        process.communicate()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(p.name for p in (old, live, other))


def test_other_processes_never_belong(tmp_path: Path) -> None:
    """A shell that looks at a drill's log is not taken for a part of the drill."""
    with subprocess.Popen(
        ["tail", "-f", "/dev/null", str(tmp_path / "x")], stderr=subprocess.DEVNULL
    ) as viewer:
        try:
            assert reap.belonging("0123456789abcdef", tmp_path) == set()
        finally:
            viewer.kill()
