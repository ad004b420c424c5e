"""The relay is as narrow and as far away as said, and what passes it is what was sent."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from outlast.simulations.wan import Line, Relay

MB = 1_000_000
NOISE = random.Random(7).randbytes(MB)


@asynccontextmanager
async def far_end(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """The port of a server behind the relay."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send everything back."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Give a megabyte of noise to whoever connects."""
    writer.write(NOISE)
    await writer.drain()
    await reader.read()
    writer.close()


async def digest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take 2 MB, then say what they were."""
    data = await reader.readexactly(2 * MB)
    writer.write(hashlib.sha256(data).digest())
    await writer.drain()
    await reader.read()
    writer.close()


async def handed_in(port: int, data: bytes) -> bytes:
    """The far end's digest of what was sent through the relay."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    await writer.drain()
    said = await reader.readexactly(32)
    writer.close()
    return said


async def test_connections_share_the_rate() -> None:
    """Four connections' 8 MB at 8 MB/s take a second; not a bit is changed or out of order."""
    parts = [random.Random(seed).randbytes(2 * MB) for seed in range(4)]
    loop = asyncio.get_running_loop()
    async with far_end(digest) as port, Relay("127.0.0.1", port, bytes_s=8 * MB) as relay:
        began = loop.time()
        said = await asyncio.gather(*(handed_in(relay.port, part) for part in parts))
        took = loop.time() - began
    assert said == [hashlib.sha256(part).digest() for part in parts]
    assert 0.98 <= took < 2.0  # no faster than the line; how much slower is the machine's affair


async def test_the_way_back_is_as_narrow() -> None:
    """A megabyte from the far end takes half a second at 2 MB/s."""
    loop = asyncio.get_running_loop()
    async with far_end(pour) as port, Relay("127.0.0.1", port, bytes_s=2 * MB) as relay:
        began = loop.time()
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        data = await reader.readexactly(MB)
        took = loop.time() - began
        writer.close()
    assert data == NOISE
    assert 0.49 <= took < 1.5


async def test_distance_does_not_take_from_the_rate() -> None:
    """With 400 ms there and back, 4 MB at 8 MB/s come 0.4 s later and no more: the line is kept full."""
    data = random.Random(1).randbytes(2 * MB)
    loop = asyncio.get_running_loop()
    async with far_end(digest) as port, Relay("127.0.0.1", port, delay_s=0.2, bytes_s=8 * MB) as relay:
        began = loop.time()
        await asyncio.gather(handed_in(relay.port, data), handed_in(relay.port, data))
        took = loop.time() - began
    assert 0.88 <= took < 1.9  # waiting for each piece's way back would take many seconds


async def test_round_trip_of_a_small_message() -> None:
    """A few bytes take the round trip, whatever the rate."""
    loop = asyncio.get_running_loop()
    async with far_end(echo) as port, Relay("127.0.0.1", port, delay_s=0.05, bytes_s=8 * MB) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        began = loop.time()
        writer.write(b"there?")
        assert await reader.readexactly(6) == b"there?"
        took = loop.time() - began
        writer.close()
    assert 0.099 <= took < 1.0


async def test_a_sender_is_held_up() -> None:
    """What a sender gets rid of is at most what the line sends in that time, and the buffers of the way."""
    async with far_end(digest) as port, Relay("127.0.0.1", port, bytes_s=0.2 * MB) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(NOISE * 2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await reader.readexactly(32)
        assert relay.forwarded <= 0.5 * MB
        writer.transport.abort()


async def test_line_is_exact() -> None:
    """What enters together leaves one after another, each so much later as it takes to send."""
    line = Line(0.1, 1000.0)
    now = asyncio.get_running_loop().time()
    due = [line.enter(100) - now for _ in range(5)]
    assert due == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6], abs=0.05)
    assert [b - a for a, b in itertools.pairwise(due)] == pytest.approx([0.1] * 4)


async def test_relay_as_a_process() -> None:
    """It says when it listens, at the port it was given, and forwards."""
    async with far_end(echo) as port:
        words = (
            "-m",
            "outlast.simulations.wan",
            "--to",
            f"127.0.0.1:{port}",
            "--rtt",
            "10ms",
            "--bandwidth",
            "80M",
        )
        process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE)
        try:
            assert process.stdout is not None
            said = re.fullmatch(r"ready ([0-9]+)\n", (await process.stdout.readline()).decode())
            assert said is not None
            reader, writer = await asyncio.open_connection("127.0.0.1", int(said[1]))
            writer.write(b"there?")
            assert await reader.readexactly(6) == b"there?"
            writer.close()
        finally:
            process.kill()
            await process.wait()
