"""A real sshd for each test that ships, and peers that are connected and cleaned up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.providers.base import SystemClock
from outlast.simulations.sshd import Sshd, receive_command

Dial = Callable[..., Any]


@pytest.fixture
async def sshd(tmp_path: Path) -> AsyncIterator[Sshd]:
    """An SSH server whose one key can only deliver job `gpt` into `tmp_path/replicas`."""
    folder = tmp_path / "ssh"
    folder.mkdir()
    async with Sshd(folder, receive_command(tmp_path / "replicas", "gpt")) as server:
        yield server


@asynccontextmanager
async def _running(settings: PeerSettings) -> AsyncIterator[Peer]:
    peer = Peer(settings, "gpt", SystemClock())
    task = asyncio.create_task(peer.run())
    try:
        yield peer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def dial(sshd: Sshd) -> AsyncIterator[Dial]:
    """Gives a running Peer of the server; keyword arguments change its settings."""
    async with AsyncExitStack() as stack:

        async def connect(**changes: Any) -> Peer:
            settings = PeerSettings(sshd.host, sshd.port, sshd.user, sshd.host_key, sshd.client.private)
            return await stack.enter_async_context(_running(replace(settings, **changes)))

        yield connect


@pytest.fixture
def replicas(tmp_path: Path) -> Path:
    """The receiver's folder of job `gpt`."""
    return tmp_path / "replicas" / "gpt"


@pytest.fixture
def landing(replicas: Path) -> Landing:
    """A receiver's session."""
    return Landing(replicas, "gpt", SystemClock())
