"""Exit codes are a promise to scripts and to systemd."""

from __future__ import annotations

import re
from pathlib import Path

from outlast.daemon.ops.exit import ExitCode

ROOT = Path(__file__).parents[2]


def test_codes_are_the_documented_ones() -> None:
    """The codes are those of the architecture page, all of them."""
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.split("## Exit codes")[1]
    documented = {int(code) for code in re.findall(r"(?:^|· ?\n?)\s*(\d+) ", section)}
    assert documented == {int(code) for code in ExitCode}


def test_unit_does_not_restart_on_them() -> None:
    """systemd does not restart a daemon that was called wrongly or has a bad configuration."""
    unit = (ROOT / "systemd/outlast.service").read_text()
    (line,) = re.findall(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert {int(ExitCode.USAGE), int(ExitCode.BAD_CONFIG)} <= {int(code) for code in line.split()}
