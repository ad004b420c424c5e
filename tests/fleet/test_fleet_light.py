"""What needs the extra ``fleet``, and what must not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEADER = "provider,region,zone,instance_type,node,began,ended,cause\n"
LINE = "aws,us-east-1,use1-az4,g5.xlarge,n-{n},2026-01-0{n}T00:00:00Z,2026-01-0{n}T09:00:00Z,interruption\n"
# An import of these fails as it does where they are not installed.
_BLOCKED = """
import sys
for name in ("duckdb", "obstore", "fsspec"):
    sys.modules[name] = None
from outlast.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def without_fleet(*words: str) -> subprocess.CompletedProcess[str]:
    """``outlast WORDS`` in a process that has daemon and report installed, and nothing of fleet."""
    command = [sys.executable, "-c", _BLOCKED, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Four stays."""
    path = tmp_path / "spells.csv"
    path.write_text(HEADER + "".join(LINE.format(n=n) for n in range(1, 5)))
    return path


def test_a_report_on_files_needs_no_duckdb(file: Path, tmp_path: Path) -> None:
    """The page is made of a CSV file and of the history that it was imported into."""
    imported = without_fleet("history", "import", "spells", str(file), "--into", str(tmp_path / "h.sqlite3"))
    assert imported.returncode == 0, imported.stderr
    done = without_fleet("report", str(tmp_path / "h.sqlite3"), "--html", str(tmp_path / "page.html"))
    assert done.returncode == 0, done.stderr
    assert "g5.xlarge" in (tmp_path / "page.html").read_text()


def test_parquet_without_duckdb_is_told_with_its_extra(tmp_path: Path) -> None:
    """Whoever names a folder of Parquet learns what to install."""
    folder = tmp_path / "spells" / "provider=aws" / "month=2026-01"
    folder.mkdir(parents=True)
    (folder / "a.parquet").write_bytes(b"PAR1")
    done = without_fleet("report", str(tmp_path))
    assert done.returncode == 1
    assert "pip install 'outlast[daemon,fleet]'" in done.stderr
