"""The configuration on the README's first screen is one the daemon runs with."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from outlast.daemon.config import Settings

README = Path(__file__).resolve().parents[2] / "README.md"
PLACES = {"/data/checkpoints": "CKPT", "/etc/outlast/peer.pub": "PUB", "/etc/outlast/ssh_key": "KEY"}


def test_the_readmes_six_lines(load_text: Callable[[str], Settings]) -> None:
    """Six lines, and they load as they stand once the paths exist."""
    found = re.search(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    text = found[1]
    assert len(text.splitlines()) == 6
    for path, stand_in in PLACES.items():
        assert path in text
        text = text.replace(path, stand_in)
    settings = load_text(text)
    (job,) = settings.jobs
    assert (job.name, job.role, job.every_s, settings.provider.name) == ("tune", "primary", 600.0, "auto")
    assert job.peer is not None
    assert (job.peer.user, job.peer.host, job.peer.port) == ("outlast", "10.8.0.2", 22)
