"""Starting the standby's trainer: once at a time, whoever asks, and beyond the daemon's own life."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from outlast.daemon.core.launch import Launcher, LaunchError, Start

# Notes its pid, then lives until it is killed; what it starts inherits nothing from it.
TRAINER = 'echo "$$" >> pids; echo "hello from $OUTLAST_JOB in $MOOD"; echo trouble >&2; exec sleep 600'
BOUND_S = 10.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The trainers' working folder; whoever noted a pid there is killed at the end."""
    yield tmp_path
    for pid in pids(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pids(folder: Path) -> list[int]:
    """Every trainer that has started, in order."""
    path = folder / "pids"
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def launcher(folder: Path, *command: str) -> Launcher:
    start = Start(command or ("sh", "-c", TRAINER), folder=folder, env={"MOOD": "joy", "OUTLAST_JOB": "no"})
    return Launcher(start, folder / "jobs/tune.lock", folder / "jobs/tune.log", {"OUTLAST_JOB": "tune"})


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await condition():  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.02)


async def started(folder: Path, count: int = 1) -> list[int]:
    """Wait until so many trainers have noted their pids."""

    async def all_here() -> bool:
        return len(await asyncio.to_thread(pids, folder)) >= count

    await until(all_here)
    return await asyncio.to_thread(pids, folder)


async def stopped(trainer: Launcher) -> None:
    async def gone() -> bool:
        return not await trainer.running()

    await until(gone)


async def test_the_trainer_runs_in_a_session_of_its_own(folder: Path) -> None:
    """It starts once, in its folder, away from the daemon's signals; its end and status are seen."""
    trainer = launcher(folder)
    assert not await trainer.running()
    assert trainer.ended() is None
    await trainer.start()
    (pid,) = await started(folder)
    assert await trainer.running()
    assert os.getsid(pid) == pid != os.getsid(0)
    os.kill(pid, signal.SIGKILL)
    await stopped(trainer)

    async def seen() -> bool:
        return trainer.ended() == -signal.SIGKILL

    await until(seen)


async def test_output_goes_to_the_file(folder: Path) -> None:
    """Both streams are kept, over several starts; the daemon's variables outrank the configured ones."""
    for count in (1, 2):
        trainer = launcher(folder)
        await trainer.start()
        pid = (await started(folder, count))[-1]
        log = folder / "jobs/tune.log"

        async def said(log: Path = log, count: int = count) -> bool:
            return (await asyncio.to_thread(log.read_text)).count("trouble\n") == count

        await until(said)
        os.kill(pid, signal.SIGKILL)
        await stopped(trainer)
        await until(lambda trainer=trainer: _ended(trainer))  # type: ignore[misc]  # the default binds the loop variable
    assert (await asyncio.to_thread(log.read_text)).count("hello from tune in joy\n") == 2


async def _ended(trainer: Launcher) -> bool:
    return trainer.ended() is not None


async def test_a_second_start_is_nothing(folder: Path) -> None:
    """While a trainer runs, neither this launcher nor a new one starts another."""
    first, second = launcher(folder), launcher(folder)
    await first.start()
    await started(folder)
    await first.start()
    assert await second.running()
    await second.start()
    assert second.ended() is None
    # What a second trainer would have noted by now, a third one after the first has ended notes for sure.
    os.kill(pids(folder)[0], signal.SIGKILL)
    await stopped(second)
    await second.start()
    both = await started(folder, 2)
    assert len(both) == 2
    os.kill(both[1], signal.SIGKILL)
    await until(lambda: _ended(first))
    await until(lambda: _ended(second))


ANOTHER_LIFE = """
import asyncio, sys
from pathlib import Path
from outlast.daemon.core.launch import Launcher, Start
folder = Path(sys.argv[1])
start = Start(("sh", "-c", sys.argv[2]), folder=folder, env={"MOOD": "joy"})
trainer = Launcher(start, folder / "jobs/tune.lock", folder / "jobs/tune.log", {"OUTLAST_JOB": "tune"})
before = asyncio.run(trainer.running())
asyncio.run(trainer.start())
print(before, asyncio.run(trainer.running()), flush=True)
"""


async def test_the_trainer_outlives_the_daemon(folder: Path) -> None:
    """A daemon that ended leaves its trainer; the next one, in another process, sees it and starts none."""
    for expected in ("False True", "True True"):
        life = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "ignore", "-c", ANOTHER_LIFE, str(folder), TRAINER, stdout=subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(life.communicate(), 30.0)
        assert said.decode().strip() == expected
    (pid,) = await started(folder)
    here = launcher(folder)
    assert await here.running()
    os.kill(pid, signal.SIGKILL)
    await stopped(here)


async def test_a_command_that_is_not_there(folder: Path) -> None:
    """The error names the command and the setting; the lock is free again."""
    trainer = launcher(folder, "/no/such/trainer", "--fast")
    with pytest.raises(LaunchError, match=r"cannot start /no/such/trainer: .*No such file.*start\.command"):
        await trainer.start()
    assert not await trainer.running()
    working = launcher(folder)
    await working.start()
    os.kill((await started(folder))[0], signal.SIGKILL)
    await until(lambda: _ended(working))


async def test_a_folder_that_is_not_there(folder: Path) -> None:
    """A missing working folder is not blamed on the command."""
    start = Start(("true",), folder=folder / "gone")
    trainer = Launcher(start, folder / "lock", folder / "log", {})
    with pytest.raises(LaunchError) as refused:
        await trainer.start()
    assert str(folder / "gone") in str(refused.value)
