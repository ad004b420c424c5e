"""Why a stay ends when the daemon is told to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.daemon.core import farewell
from outlast.daemon.core.farewell import machine_goes_down


@pytest.mark.parametrize(
    ("script", "down"),
    [
        ("echo stopping; exit 1", True),
        ("echo running", False),
        ("echo degraded; exit 1", False),
        ("echo unstopping", False),
        ("exec sleep 30", False),
    ],
)
async def test_only_systemds_own_word_counts(
    script: str, down: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is going down says `stopping`; one that does not answer is not waited for."""
    monkeypatch.setattr(farewell, "ASK_S", 0.5)
    assert await machine_goes_down(("sh", "-c", script)) is down


async def test_without_systemd_nobody_can_say(tmp_path: Path) -> None:
    """In a container the end of the daemon says nothing about the node."""
    assert not await machine_goes_down((str(tmp_path / "systemctl"),))
