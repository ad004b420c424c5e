"""`outlast simulate` as a user runs it."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession

from outlast.simulations import simulate

PROGRAM = """
import argparse, sys
from outlast.simulations import simulate
parser = argparse.ArgumentParser(prog="outlast")
simulate.add_parser(parser.add_subparsers())
args = parser.parse_args()
sys.exit(args.run(args))
"""


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[Process]:
    """The command in a process of its own, killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, "simulate", *arguments, stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: Process) -> str:
    """The next line of stdout."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 20.0)).decode().strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_simulate_serves_until_interrupted(number: signal.Signals) -> None:
    """The address comes first, the notice in time, requests are shown; an interrupt ends it with 0."""
    async with running("aws", "--json", "--notice-in", "10ms", "--region", "eu-west-1") as process:
        url = json.loads(await line(process))["url"]
        async with ClientSession() as http, asyncio.timeout(10.0):
            changes: list[dict[str, object]] = []
            while not changes:
                async with http.get(f"{url}/_standin/log") as answer:
                    changes = (await answer.json())["changes"]
            async with http.get(f"{url}/latest/meta-data/instance-id") as answer:
                assert answer.status == 401
        process.send_signal(number)
        _, errors = await asyncio.wait_for(process.communicate(), 10.0)
        assert process.returncode == 0
        assert [json.loads(text)["path"] for text in errors.splitlines()] == ["/latest/meta-data/instance-id"]


async def test_simulate_says_that_a_port_is_taken() -> None:
    """A port in use ends the command with 1 and says what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with running("gcp", "--port", str(taken.getsockname()[1])) as process:
            _, errors = await asyncio.wait_for(process.communicate(), 20.0)
    assert process.returncode == 1
    assert b"in use" in errors
    assert b"--port" in errors


@pytest.mark.parametrize(
    ("text", "wanted"), [("20", 20.0), ("20s", 20.0), ("1.5m", 90.0), ("500ms", 0.5), ("2h", 7200.0)]
)
def test_simulate_reads_durations(text: str, wanted: float) -> None:
    """Times are written with a unit, seconds without one."""
    assert simulate.seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "-1s", "soon", "1d", "1 s", "inf", "nan"])
def test_simulate_refuses_what_is_no_duration(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(argparse.ArgumentTypeError, match="20s"):
        simulate.seconds(text)


@pytest.mark.parametrize("text", ["-1", "65536", "x", ""])
def test_simulate_refuses_what_is_no_port(text: str) -> None:
    """A port is a number from 0 to 65535."""
    with pytest.raises(argparse.ArgumentTypeError, match="65535"):
        simulate.port(text)
