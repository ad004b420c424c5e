"""The house rules that no linter knows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("daemon", "providers", "hooks", "simulations", "src/outlast/wire", "tests", "benchmarks")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def test_no_module_is_over_500_lines() -> None:
    """A module has one subject; a long one has two."""
    long = {str(p.relative_to(ROOT)): n for p in MODULES if (n := len(p.read_text().splitlines())) > 500}
    assert long == {}


def test_test_files_have_names_of_their_own() -> None:
    """A failing test is found by its file's name alone."""
    names = [path.name for path in MODULES if path.name.startswith("test_")]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("name", ["daemon", "providers", "hooks", "simulations"])
def test_the_linked_folders_cannot_be_imported_bare(name: str) -> None:
    """`import daemon` is another project's name; from the root of the tree it says which import is meant."""
    command = [sys.executable, "-c", f"import {name}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert f"import outlast.{name}, not {name}" in done.stderr


def test_the_code_folders_are_linked_into_the_package() -> None:
    """Relative links, so that a checkout works wherever it lies."""
    for name in ("daemon", "providers", "hooks", "simulations"):
        link = ROOT / "src" / "outlast" / name
        assert str(link.readlink()) == f"../../{name}"
