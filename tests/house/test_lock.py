"""The lock file for CI: fresh, complete, with digests and without addresses."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "requirements" / "ci.txt").read_text()
TRAINING = (ROOT / "requirements" / "training.txt").read_text()
LOCKED_EXTRAS = ("daemon", "aws", "gcp", "stores", "report", "fleet", "dev")

_PIN = re.compile(
    r"^(?P<name>[a-z0-9.-]+)==(?P<version>[^ ;\\]+)[^\\\n]*\\\n(?P<rest>(?:    --hash=.*\n)+)", re.MULTILINE
)
PINS = {match["name"]: match for match in _PIN.finditer(LOCK)}


def wanted() -> list[Requirement]:
    """What pyproject.toml asks for in the locked extras."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [Requirement(line) for extra in LOCKED_EXTRAS for line in extras[extra]]


@pytest.mark.parametrize("requirement", wanted(), ids=str)
def test_every_dependency_is_locked_at_a_version_that_pyproject_allows(requirement: Requirement) -> None:
    """Otherwise pyproject.toml changed and './dev lock' was not run."""
    name = re.sub(r"[-_.]+", "-", requirement.name).lower()
    assert name in PINS, "run ./dev lock"
    assert PINS[name]["version"] in requirement.specifier, "run ./dev lock"


def test_every_line_is_a_pin_with_digests() -> None:
    """Nothing in the file escapes pip's check of what it downloads."""
    said = [line.strip() for line in LOCK.splitlines()]
    lines = [line for line in said if line and not line.startswith(("#", "--hash=sha256:"))]
    assert len(lines) == len(PINS)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", pin["rest"]) for pin in PINS.values())


def test_the_locks_name_no_host_and_no_folder() -> None:
    """Whoever installs says where from; a developer's machine is nobody else's."""
    for text in (LOCK, TRAINING):
        assert not re.search(r"://|--(index|extra-index|find-links|trusted)|\s@\s|(^|[\s=])[/~]|\.whl", text)
