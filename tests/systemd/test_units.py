"""The units as systemd's own tools judge them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "systemd"
DROP_INS = sorted(path.name for path in (SYSTEMD / "drop-ins").glob("*.conf"))


def staged(folder: Path, name: str, as_name: str | None = None) -> Path:
    """A copy of a unit whose program exists here."""
    text = (SYSTEMD / name).read_text()
    copy = folder / (as_name or name)
    copy.write_text(re.sub(r"^ExecStart=/\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    return copy


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze and wait for its verdict."""
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, timeout=30, check=False
    )


def verify(unit: Path) -> None:
    """The unit loads without a single word of complaint."""
    done = analyze("verify", "--man=no", "--recursive-errors=yes", str(unit))
    assert (done.returncode, done.stderr) == (0, "")


def test_daemon_unit(tmp_path: Path) -> None:
    """The daemon's unit is accepted as it is."""
    verify(staged(tmp_path, "outlast.service"))


def test_trainer_unit(tmp_path: Path) -> None:
    """The trainer's template is accepted as an instance, next to the daemon's unit."""
    staged(tmp_path, "outlast.service")
    verify(staged(tmp_path, "outlast-trainer@.service", "outlast-trainer@tune.service"))


@pytest.mark.parametrize("drop_in", [None, *DROP_INS])
def test_exposure(tmp_path: Path, drop_in: str | None) -> None:
    """The unit, alone and with each drop-in, is accepted and exposes at most 2.5."""
    unit = staged(tmp_path, "outlast.service")
    if drop_in is not None:
        (tmp_path / "outlast.service.d").mkdir()
        shutil.copy(SYSTEMD / "drop-ins" / drop_in, tmp_path / "outlast.service.d" / drop_in)
    verify(unit)
    done = analyze("security", "--offline=yes", "--threshold=25", str(unit))
    assert done.returncode == 0, done.stdout[-200:]


def test_a_wrong_unit_would_be_noticed(tmp_path: Path) -> None:
    """The checks above can fail: an unknown key and a bare unit are refused."""
    unit = staged(tmp_path, "outlast.service")
    unit.write_text(unit.read_text().replace("[Service]", "[Service]\nWatchdogSecs=3"))
    done = analyze("verify", "--man=no", "--recursive-errors=yes", str(unit))
    assert done.returncode == 1
    assert "WatchdogSecs" in done.stderr
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert analyze("security", "--offline=yes", "--threshold=25", str(unit)).returncode == 1


def test_users_and_folders(tmp_path: Path) -> None:
    """Users and folders are made; the trainers' user is in the daemon's group."""
    for folder in ("etc", "usr/lib"):
        (tmp_path / folder).mkdir(parents=True)
    for tool, name in (("systemd-sysusers", "sysusers"), ("systemd-tmpfiles", "tmpfiles")):
        options = ["--create"] if tool == "systemd-tmpfiles" else []
        command = [tool, f"--root={tmp_path}", *options, str(SYSTEMD / f"outlast.{name}.conf")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
    assert "Outlast daemon:/var/lib/outlast:/bin/sh\n" in (tmp_path / "etc/passwd").read_text()
    assert re.search(r"^outlast:x:\d+:outlast-trainer$", (tmp_path / "etc/group").read_text(), re.MULTILINE)
    assert (tmp_path / "var/lib/outlast/replicas").stat().st_mode & 0o7777 == 0o2750
    assert (tmp_path / "etc/outlast").stat().st_mode & 0o007 == 0


def test_everything_shipped_is_checked() -> None:
    """A new file in systemd/ needs a place in these tests."""
    found = {str(path.relative_to(SYSTEMD)) for path in SYSTEMD.rglob("*") if path.is_file()}
    known = {
        *("outlast.service", "outlast-trainer@.service", "outlast.sysusers.conf", "outlast.tmpfiles.conf"),
        *("logind.conf.d/outlast.conf", "polkit/50-outlast.rules"),
        *(f"drop-ins/{name}" for name in DROP_INS),
    }
    assert found == known
