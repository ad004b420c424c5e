"""The hook in a bare Python: nothing of ours may need more than the standard library at import."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import outlast

ROOT = Path(outlast.__file__).parent
ROOMS = [*(ROOT / "hooks").glob("*.py"), *(ROOT / "wire").glob("*.py"), ROOT / "__init__.py"]


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_modules_import_only_the_standard_library(path: Path) -> None:
    """Every import outside of functions is of the standard library, of the hook or of the wire."""
    for node in ast.walk(_without_functions(ast.parse(path.read_text()))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            ours = name.startswith(("outlast.hooks", "outlast.wire"))
            assert ours or name.split(".")[0] in sys.stdlib_module_names, name


def _without_functions(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = [ast.Pass()]
    return tree


def _python_310() -> str | None:
    found = shutil.which("python3.10")
    kept = sorted(Path("~/.pyenv/versions").expanduser().glob("3.10.*/bin/python3.10"))
    return str(kept[-1]) if kept else found


def test_the_hook_runs_in_python_310_with_nothing_installed(tmp_path: Path) -> None:
    """Python 3.10 without site-packages imports the hook, and builds its parts."""
    python = _python_310()
    if python is None:
        pytest.skip("no python3.10 here")
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT.parent)!r})\n"
        "import outlast.hooks.deepspeed, outlast.hooks.guard, outlast.hooks.link\n"
        "from outlast.hooks.agreement import Agreement\n"
        "from outlast.hooks.ballot import LocalBallot\n"
        "from outlast.wire.messages import Flush\n"
        "own = Agreement(LocalBallot()); own.hear(Flush('f', 'test', 5.0)); print(own.outbox.popleft())\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [python, "-I", "-S", "-W", "error", "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "At(id='f', step=1," in done.stdout
