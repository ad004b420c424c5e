"""OpenSSH's client, played by a script: what it may say, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from outlast.daemon.checkpoint.destinations import Unreachable
from outlast.daemon.ship.dial import PeerSettings
from outlast.daemon.ship.openssh import OpenSsh
from outlast.daemon.ship.session import Session


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[OpenSsh, Path]:
    """OpenSSH's client, which is what the script does."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    settings = PeerSettings("h", 1, "u", "ssh-ed25519 AAAA", tmp_path / "key")
    return OpenSsh(settings), tmp_path / "ssh"


def _does(script: Path, what: str) -> None:
    script.write_text(f"#!/bin/sh\n{what}\n")
    script.chmod(0o755)


async def test_a_first_line_without_an_end_is_a_peer_that_cannot_be_reached(
    client: tuple[OpenSsh, Path],
) -> None:
    """Whatever answers there, it is no bug of ours, and channels may be tried instead."""
    openssh, script = client
    await asyncio.to_thread(_does, script, "head -c 3000000 /dev/zero; exec sleep 60")
    with pytest.raises(Unreachable, match="without an end"):
        async with Session(openssh):
            pass


async def test_no_client_is_left_by_an_end_that_is_cut_short(client: tuple[OpenSsh, Path]) -> None:
    """An idle session is being ended, and its receiver is stuck, when the whole transfer is cancelled."""
    openssh, script = client
    await asyncio.to_thread(_does, script, "read line; echo '{\"ok\":true}'; exec sleep 60")
    process = await openssh.open("outlast-receive")
    ending = asyncio.create_task(openssh.end(process, hurry=False))
    await asyncio.sleep(0.2)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    assert process.returncode is not None
