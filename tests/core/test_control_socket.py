"""The control socket: one line, one answer, whatever is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.core.control import MAX_REQUEST, ControlSocket, RequestError


async def echo(request: Mapping[str, Any]) -> dict[str, Any]:
    return {"said": request.get("word")}


async def refuse(_: Mapping[str, Any]) -> dict[str, Any]:
    raise RequestError("not today")


@pytest.fixture
async def path(tmp_path: Path) -> AsyncIterator[Path]:
    """A control socket that knows two requests."""
    control = ControlSocket(tmp_path / "run/control.sock", {"echo": echo, "refuse": refuse})
    await control.start()
    serving = asyncio.create_task(control.run())
    await asyncio.sleep(0)
    yield tmp_path / "run/control.sock"
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def ask(path: Path, *lines: bytes) -> list[Any]:
    """The answer to each line, over one connection; None where it was closed instead."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    answers = []
    for line in lines:
        writer.write(line)
        async with asyncio.timeout(10):
            try:
                data = await reader.readline()
            except ConnectionResetError:  # closed with words of ours unread
                data = b""
        answers.append(json.loads(data) if data else None)
    writer.close()
    return answers


async def test_requests_are_answered_in_order(path: Path) -> None:
    """One connection may ask as often as it likes; a refusal is an answer too."""
    first, second, third = await ask(
        path, b'{"op":"echo","word":1}\n', b'{"op":"refuse"}\n', b'{"op":"echo","word":[2]}\n'
    )
    assert first == {"ok": True, "said": 1}
    assert second == {"ok": False, "because": "not today"}
    assert third == {"ok": True, "said": [2]}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\n", "not JSON"),
        (b"GET / HTTP/1.1\r\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 50_000 + b"\n", "not JSON"),
        (b"[]\n", "there are: echo, refuse"),
        (b"{}\n", "there are: echo, refuse"),
        (b'{"op":["echo"]}\n', "there are: echo, refuse"),
        (b'{"op":"__class__"}\n', "there are: echo, refuse"),
    ],
    ids=lambda value: repr(value[:20]),
)
async def test_what_is_no_request_is_answered_with_why(path: Path, line: bytes, why: str) -> None:
    """A wrong line costs its sender an answer, and nobody anything else."""
    wrong, right = await ask(path, line, b'{"op":"echo"}\n')
    assert wrong["ok"] is False
    assert why in wrong["because"]
    assert right["ok"] is True


async def test_a_line_without_end_is_cut(path: Path) -> None:
    """Beyond the bound the connection is closed; others are served."""
    assert await ask(path, b"x" * (MAX_REQUEST * 4)) == [None]
    assert (await ask(path, b'{"op":"echo"}\n'))[0]["ok"]
