"""What a user installs: everything of ours, nothing of others, from Python 3.10 on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("daemon", "providers", "hooks", "simulations")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what goes into the package, as it is now."""
    copy = tmp_path_factory.mktemp("tree") / "outlast"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    copy.mkdir()
    for name in ("src", *FOLDERS):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / file).exists():
            shutil.copy(ROOT / file, copy)
    return copy


@pytest.fixture(scope="session")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from that copy."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("outlast-*.whl")
    return built


def modules(tree: Path) -> set[str]:
    """Every module, by the path it has inside the package."""
    own = tree / "src" / "outlast"
    found = {f"outlast/{path.relative_to(tree)}" for name in FOLDERS for path in (tree / name).rglob("*.py")}
    found |= {f"outlast/{path.relative_to(own)}" for path in (*own.glob("*.py"), *own.glob("wire/**/*.py"))}
    return found


@pytest.mark.timeout(180)
def test_the_wheel_holds_every_module_of_the_tree_and_no_other(tree: Path, wheel: Path) -> None:
    """The linked folders are in the wheel as real files, and tests are not."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read(next(n for n in archive.namelist() if n.endswith("/METADATA"))).decode()
    assert {name for name in names if name.endswith(".py")} == modules(tree)
    assert "outlast/py.typed" in names
    templates = {f"outlast/{path.relative_to(tree)}" for path in tree.glob("daemon/report/templates/*")}
    assert templates
    assert templates <= names
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert all("extra ==" in line for line in required), "the bare install has no dependency"
    assert "License-File: LICENSE" in metadata


def python310() -> str | None:
    """An interpreter that really is 3.10, on PATH or from pyenv."""
    candidates = [
        shutil.which("python3.10"),
        *map(str, Path.home().glob(".pyenv/versions/3.10*/bin/python3.10")),
    ]
    check = "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 10))"
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", check], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


@pytest.mark.timeout(180)
def test_an_empty_python_3_10_gets_only_outlast_and_its_hook_imports(wheel: Path, tmp_path: Path) -> None:
    """pip may look nowhere but at the wheel, so that a dependency would fail; the hook needs none."""
    interpreter = python310()
    if interpreter is None:
        pytest.skip("no Python 3.10 with venv on this machine")
    subprocess.run([interpreter, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    python = str(tmp_path / "venv" / "bin" / "python")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    own |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [python, *words], env=own, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    before = set(run("-m", "pip", "freeze", "--all").splitlines())
    run("-m", "pip", "install", "--no-index", str(wheel))
    added = set(run("-m", "pip", "freeze", "--all").splitlines()) - before
    assert [line.split(" ")[0].split("=")[0] for line in added] == ["outlast"]
    run("-W", "error", "-c", "import outlast.hooks.deepspeed, outlast.wire.messages")
