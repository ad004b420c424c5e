"""The command itself: it passes with every provider, refuses wrong usage, and is gone without a trace."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.__main__ import main
from outlast.simulations.drill import cli
from outlast.simulations.drill.patience import patience

DRILL = (sys.executable, "-m", "outlast", "drill")
# A minute's way for a checkpoint, and little to wait for before it goes.
FAR = ("--size", "60MB", "--rtt", "20ms", "--bandwidth", "8M", "--notice-at", "1")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for temporary files with a short path, as sockets go into it."""
    path = Path(tempfile.mkdtemp(prefix="d-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def of_the_drill(folder: Path) -> list[str]:
    """The command lines of live processes that have the folder in their environment or their words."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            with suppress(OSError):
                words = (path / "cmdline").read_bytes()
                if os.fsencode(folder) in words + (path / "environ").read_bytes():
                    found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def drilled(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a drill to its end, its temporary files in ``folder``."""
    env = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_drill_passes_with_every_provider(provider: str, folder: Path) -> None:
    """Real training, a real handoff: no step lost, every loss equal to the last bit, nothing left."""
    words = [*DRILL, "--provider", provider, "--json", "--timeout", "240s", "--steps", "30"]
    done = drilled(words, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is True
    assert told["steps_lost"] == 0
    assert all(promise["held"] for promise in told["promises"])
    assert [line["kind"] for line in told["timeline"]].index("verified") > 0
    assert of_the_drill(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(200)
def test_a_large_checkpoint_takes_as_long_as_reckoned(folder: Path) -> None:
    """250 MB over 200 Mbit/s and 20 ms: the daemon knew before the notice how long that would take."""
    words = ["--size", "250MB", "--rtt", "20ms", "--bandwidth", "200M", "--steps", "20", "--json"]
    done = drilled([*DRILL, *words, "--timeout", "150s"], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is True
    assert told["bytes"] == 250_000_000
    assert told["ship_s"] >= 9.5  # no way is wider than said
    assert told["prediction"]["took_s"] == told["ship_s"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--size", "0"], "is not a size such as 2GB"),
        (["--size", "900TB"], "a smaller --size, or set TMPDIR"),
        (["--size", "1GB", "--rtt", "soon"], "--rtt"),
        (["--size", "1GB", "--bandwidth", "wide"], "is not a rate such as 10G"),
        (["--timeout", "abc"], "--timeout: must be a duration such as 90s, 10m, 1h30m or 500ms, not 'abc'"),
        (["--timeout", "300"], "not '300'"),
        (["--timeout", "0s"], "'0s' is not above nothing"),
    ],
)
def test_a_drill_that_cannot_be_is_refused_at_once(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be is a usage error, what has no room on the disk a failure; nothing is started."""
    try:
        code = main(["drill", *words])
    except SystemExit as exc:
        code = int(exc.code or 0)
    assert code == (1 if complaint.endswith("TMPDIR") else 2)
    assert complaint in capsys.readouterr().err


def test_a_drill_is_waited_for_as_long_as_its_size_takes() -> None:
    """Nobody has to reckon a --timeout: it allows for both transfers at the given width and distance."""
    assert 300.0 <= patience(None, 0.0, None) < 310.0
    assert patience(2_000_000_000, 0.07, 125e6) > 300.0 + 2 * 2e9 / 125e6
    assert patience(10_000_000_000, 0.0, 12.5e6) > 300.0 + 2 * 10e9 / 12.5e6
    assert patience(None, 0.0, 1e5) > 300.0 + 2 * 11e6 / 1e5


@pytest.mark.parametrize(
    ("words", "bound_s"),
    [
        (["--size", "2GB", "--rtt", "70ms", "--bandwidth", "1G"], patience(2_000_000_000, 0.07, 125e6)),
        (["--size", "2GB", "--timeout", "90s"], 90.0),
    ],
)
def test_a_timeout_that_is_said_counts(words: list[str], bound_s: float) -> None:
    """The whole drill ends by the --timeout; without one, by what its checkpoints take."""
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    assert cli.planned(parser.parse_args(["drill", *words]), 13).bound_s == bound_s


@given(
    size=st.integers(1, 10**12),
    rtt_s=st.floats(0.0, 1.0),
    bytes_s=st.floats(1e3, 1e11),
    less=st.floats(0.0, 1.0),
)
def test_less_to_do_is_never_waited_for_longer(size: int, rtt_s: float, bytes_s: float, less: float) -> None:
    """More bytes and a narrower way never shorten the patience, nor does a far one against none at all."""
    most = patience(size, rtt_s, bytes_s)
    assert patience(max(1, int(size * less)), rtt_s, bytes_s) <= most
    assert patience(size, 0.0, bytes_s) <= most
    assert patience(size, rtt_s, bytes_s * (1.0 + less)) <= most
    assert patience(size, rtt_s, None) <= most


@pytest.mark.parametrize(
    ("number", "moment", "words"),
    [
        (signal.SIGINT, "starting a stand-in", ()),
        (signal.SIGTERM, "starting a stand-in", ()),
        (signal.SIGINT, "a first checkpoint is shipped", FAR),
        pytest.param(
            signal.SIGINT, "the provider gives notice", (), marks=[pytest.mark.long, pytest.mark.timeout(200)]
        ),
        pytest.param(signal.SIGINT, "taken over", (), marks=[pytest.mark.long, pytest.mark.timeout(200)]),
    ],
)
def test_interrupted_drill_leaves_nothing(
    number: signal.Signals, moment: str, words: tuple[str, ...], folder: Path
) -> None:
    """A signal at any moment ends every process of the drill and removes every file; the status is 130."""
    with subprocess.Popen(
        (*DRILL, *words),
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as drill:
        assert drill.stderr is not None
        assert any(moment in line for line in drill.stderr), "it ended before"
        assert of_the_drill(folder) != []
        drill.send_signal(number)
        out, err = drill.communicate(timeout=30)
    assert drill.returncode == 130, err
    assert out == ""
    assert "nothing is left behind" in err
    assert of_the_drill(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (["--provider", "hetzner"], "invalid choice: 'hetzner'"),
        (["--steps", "2"], "--steps must be at least 3"),
        (["--steps", "10", "--notice-at", "9"], "--notice-at must be from 1 to 8"),
        (["--timeout", "soon"], "--timeout"),
    ],
)
def test_wrong_usage_is_said(words: list[str], because: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be drilled is refused before anything is started."""
    with pytest.raises(SystemExit) as stopped:
        main(["drill", *words])
    assert stopped.value.code == 2
    assert because in capsys.readouterr().err


def test_a_folder_that_cannot_be_had_is_told_before_the_drill(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nothing is played whose logs are lost."""
    (tmp_path / "file").touch()
    assert main(["drill", "--size", "1MB", "--keep", str(tmp_path / "file/kept")]) == 1
    assert "cannot keep logs in" in capsys.readouterr().err


def test_drill_out_of_time_fails_with_the_reason(folder: Path) -> None:
    """A drill that takes too long ends with status 1, says what it waited for, and keeps its logs."""
    kept = folder / "kept"
    words = [*DRILL, "--timeout", "3s", "--json", "--keep", str(kept)]
    done = drilled(words, folder)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is False
    assert "waited in vain for step 13 at us-east-1" in told["because"]
    assert told["kept"] == str(kept)
    assert (kept / "logs/us-east-1.daemon.log").stat().st_size > 0
    assert of_the_drill(folder) == []
    assert list(folder.iterdir()) == [kept]
