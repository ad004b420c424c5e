"""The trainer socket against whatever may connect: strangers, liars, the silent, and another daemon."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.core import trainers
from outlast.daemon.core.node import Switchboard
from outlast.daemon.core.trainers import TrainerSocket, bind_unix
from outlast.simulations.rank import ScriptedRank
from outlast.wire.messages import MAX_LINE, Ask, Done, Flush, Park, Progress, Resume, StandDown

if TYPE_CHECKING:
    from tests.core.conftest import Ground, Life, Line

    Dial = Callable[[], Awaitable[Line]]

BOUND_S = 15.0
TWO = {"world": 2, "data": 2, "zero_stage": 2}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 - the other side has no event to wait for
            await asyncio.sleep(0.01)


async def welcomed(line: Line) -> Resume:
    """Told to wait while the newest checkpoint is looked for, then where to resume."""
    assert isinstance(await line.hear(), Park)
    answer = await line.hear()
    assert isinstance(answer, Resume)
    return answer


async def serves(ground: Ground, dial: Dial, life: Life) -> None:
    """The daemon goes on: a well-behaved rank of another job is welcome."""
    line = await dial()
    line.hello(ground.folder / "other", job="other")
    await welcomed(line)


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n",
        b"\xff\xfe\x00\n",
        b"[]\n",
        b'{"type":"hello"}\n',
        b'{"type":"flush","id":"f","reason":"r"}\n',
        b'{"type":"progress","step":1}\n',
        b"[" * 60_000 + b"\n",
        b"x" * (MAX_LINE + 10) + b"\n",
        b"x" * (4 * MAX_LINE),
        b'{"type":"hello","job":"tune","rank":0,"pid":1,"checkpoints":"/","layout":{"world":1'
        + b"0" * 5000
        + b"}}\n",
    ],
    ids=lambda data: repr(data[:24]) + f"x{len(data)}",
)
async def test_a_bad_first_line_ends_the_connection(ground: Ground, dial: Dial, data: bytes) -> None:
    """Not JSON, not a hello, too long: closed without an answer, and the server serves on."""
    async with ground.life() as life:
        line = await dial()
        line.say(data)
        assert await line.hear() is None
        await serves(ground, dial, life)


async def test_a_bad_later_line_ends_only_its_connection(ground: Ground, dial: Dial) -> None:
    """A rank that breaks the protocol is out; the other rank of its job stays."""
    async with ground.life() as life:
        good, bad = await dial(), await dial()
        good.hello(life.checkpoints, layout=TWO)
        await welcomed(good)
        bad.hello(life.checkpoints, rank=1, layout=TWO)
        await until(lambda: len(life.job.ranks) == 2)
        bad.say(b'{"type":"saved","id":"x"}\n')
        await until(lambda: len(life.job.ranks) == 1)
        good.say(Progress(5))
        await until(lambda: life.job.ranks.step == 5)


async def test_another_protocol_is_refused_with_words(ground: Ground, dial: Dial) -> None:
    """The hook's and the daemon's versions are named; the trainer trains on unprotected."""
    async with ground.life() as life:
        line = await dial()
        line.hello(life.checkpoints, protocol=99)
        refusal = await line.hear()
        assert isinstance(refusal, StandDown)
        assert "protocol 99, this daemon 1" in refusal.reason
        assert refusal.then == "train"
        assert await line.hear() is None


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"job": "tone"}, "job tone is not configured on this node (there are: other, tune)"),
        ({"job": ""}, "not configured"),
        ({"checkpoints": "/somewhere/else"}, "the trainer saves to /somewhere/else, the configuration says"),
        ({"checkpoints": ""}, "make them agree"),
        ({"rank": 1}, "rank 1 is not in a world of 1"),
        ({"rank": -1}, "rank -1 is not in a world of 1"),
        ({"layout": {"world": 0}}, "rank 0 is not in a world of 0"),
    ],
    ids=str,
)
async def test_a_stranger_is_refused_with_words(
    ground: Ground, dial: Dial, fields: dict[str, object], why: str
) -> None:
    """What does not fit the configuration is told so, trains on, and leaves no trace in the job."""
    async with ground.life() as life:
        line = await dial()
        line.hello(life.checkpoints, **fields)  # type: ignore[arg-type]  # wrong types are the test
        refusal = await line.hear()
        assert isinstance(refusal, StandDown)
        assert why in refusal.reason
        assert refusal.then == "train"
        assert await line.hear() is None
        assert len(life.job.ranks) == 0
        await serves(ground, dial, life)


async def test_ranks_of_one_job_have_one_layout(ground: Ground, dial: Dial) -> None:
    """A rank with another world size or ZeRO stage is not of this trainer."""
    async with ground.life() as life:
        first, second = await dial(), await dial()
        first.hello(life.checkpoints, layout=TWO)
        await welcomed(first)
        second.hello(life.checkpoints, rank=1, layout=TWO | {"zero_stage": 3})
        refusal = await second.hear()
        assert isinstance(refusal, StandDown)
        assert "another layout" in refusal.reason


async def test_two_trainers_may_not_share_a_name(ground: Ground) -> None:
    """A second trainer process under the job's name is refused; the first one is left alone."""
    async with ground.life() as life, ground.trainer(ground.script()) as (first,):
        await until(lambda: first.step > 1)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _LATECOMER,
            str(life.socket),
            str(life.checkpoints),
            stdout=subprocess.PIPE,
        )
        said, _ = await asyncio.wait_for(process.communicate(), BOUND_S)
        pid = os.getpid()
        assert f"rank 0 of job tune is already here as pid {pid}" in said.decode()
        assert "two trainers may not share one job name" in said.decode()
        step = first.step
        await until(lambda: first.step > step)
        assert [c.pid for c in life.job.ranks] == [pid]


_LATECOMER = """
import socket, sys
from outlast.wire.messages import Hello, Layout, decode_to_hook, encode
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(encode(Hello("tune", 0, 1, sys.argv[2], Layout(1, data=1, zero_stage=2))))
print(decode_to_hook(sock.makefile("rb").readline()).reason)
"""


async def test_a_rank_that_reconnects_replaces_itself(ground: Ground, dial: Dial) -> None:
    """The same process on a new connection: the old one is closed, and the rank is counted once."""
    async with ground.life() as life:
        old, new = await dial(), await dial()
        old.hello(life.checkpoints)
        await welcomed(old)
        new.hello(life.checkpoints, step=7, epoch=1)
        answer = await new.hear()
        assert isinstance(answer, Resume)
        assert answer.tag is None
        assert await old.hear() is None
        old.close()
        assert len(life.job.ranks) == 1
        assert life.job.ranks.step == 7
        new.say(Ask("SIGUSR1"))
        assert isinstance(await new.hear(), Flush)


async def test_the_pid_is_the_kernels_word(ground: Ground, dial: Dial) -> None:
    """A rank that lies about its pid is known by the true one."""
    async with ground.life() as life:
        line = await dial()
        line.hello(life.checkpoints, pid=1)
        await welcomed(line)
        assert [c.pid for c in life.job.ranks] == [os.getpid()]


async def test_the_silent_are_not_waited_for(
    ground: Ground, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever says no hello, or half of one, is put out after the bound."""
    monkeypatch.setattr(trainers, "HELLO_S", 0.2)
    async with ground.life() as life:
        silent, slow = await dial(), await dial()
        slow.say(b'{"type":"hel')
        assert await silent.hear() is None
        assert await slow.hear() is None
        await serves(ground, dial, life)


async def test_other_users_are_put_out(ground: Ground, dial: Dial) -> None:
    """Only the allowed users speak for a job; the kernel says who is who."""
    async with ground.life() as life:
        desks = life.desks
    strict = TrainerSocket(life.socket, Switchboard(desks), allowed_uids=[os.getuid() + 1])
    await strict.start()
    serving = asyncio.create_task(strict.run())
    line = await dial()
    line.hello(life.checkpoints)
    assert await line.hear() is None
    assert len(life.job.ranks) == 0
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_a_done_trainer_leaves_in_peace(ground: Ground, dial: Dial) -> None:
    """All steps trained: the job knows it, and the next trainer is welcome."""
    async with ground.life() as life:
        async with ground.trainer(ground.script(steps=3)) as (rank,):
            await until(lambda: life.job.done_step == 3)
            assert isinstance(rank, ScriptedRank)
        await until(lambda: len(life.job.ranks) == 0)
        line = await dial()
        line.hello(life.checkpoints)
        await welcomed(line)
        line.say(Done(9))
        await until(lambda: life.job.done_step == 9)


# ---- the address


async def test_stopping_does_not_wait_for_ranks(ground: Ground, dial: Dial) -> None:
    """The daemon stops at once though ranks stay connected; they see the end, and the socket is gone."""
    async with asyncio.timeout(BOUND_S):
        async with ground.life() as life:
            line = await dial()
            line.hello(life.checkpoints)
            await welcomed(line)
            assert stat.S_IMODE(life.socket.stat().st_mode) == 0o660
        assert await line.hear() is None
    assert not life.socket.exists()


async def test_a_dead_daemons_socket_is_replaced(ground: Ground, dial: Dial) -> None:
    """A killed daemon leaves its socket file; the next one takes the address over."""
    path = ground.folder / "run/trainer.sock"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
        left.listen()
    assert path.is_socket()
    async with ground.life() as life:
        await serves(ground, dial, life)


async def test_a_live_daemons_socket_is_not_touched(ground: Ground, dial: Dial) -> None:
    """The second daemon on one address says what to do, and the first one serves on."""
    async with ground.life() as life:
        with pytest.raises(OSError, match=r"another daemon listens on .*set another node\.runtime"):
            async with ground.life():
                pytest.fail("two daemons on one socket")
        await serves(ground, dial, life)


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Path]:
    """A socket whose owner accepts nothing any more: its queue is full."""
    path = tmp_path / "hung.sock"
    with socket.socket(socket.AF_UNIX) as owner, socket.socket(socket.AF_UNIX) as waits:
        owner.bind(str(path))
        owner.listen(0)
        waits.connect(str(path))
        yield path


def test_a_hung_daemons_socket_is_not_touched(hung: Path) -> None:
    """A daemon that hangs lives: its address is not taken away from it."""
    with pytest.raises(OSError, match="another daemon listens"):
        bind_unix(hung, 0o660)
    assert hung.is_socket()


def test_a_file_in_the_sockets_place_is_kept(tmp_path: Path) -> None:
    """What is not a socket is somebody's: it is named and left alone."""
    path = tmp_path / "trainer.sock"
    path.write_text("notes")
    with pytest.raises(OSError, match="is not a socket"):
        bind_unix(path, 0o660)
    assert path.read_text() == "notes"


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    """The kernel's bound is explained, with the setting to change."""
    path = tmp_path / ("x" * 120) / "trainer.sock"
    with pytest.raises(OSError, match=r"longer than 107 bytes: set a shorter node\.runtime"):
        bind_unix(path, 0o660)
    assert not path.parent.exists()
