"""The command line without a daemon: usage, help, and messages that say what to do."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast import __version__
from outlast.__main__ import COMMANDS, main
from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from tests.cli.conftest import Place

# What a reading command must not wait for, and what a bare install does not have.
HEAVY = ("aiohttp", "asyncssh", "pydantic", "yaml", "rich", "structlog", "torch", "deepspeed", "asyncio")


def test_no_command_is_usage(place: Place) -> None:
    """Without words: the help, with every command, and status 2."""
    done = place.outlast()
    assert done.code == ExitCode.USAGE
    listed = {line.split()[0] for line in done.out.splitlines() if line.startswith("    ")}
    assert set(COMMANDS) <= listed
    assert "examples:" in done.out


@pytest.mark.parametrize("words", [["frobnicate"], ["status", "--frob"], ["checkpoint", "--timeout", "soon"]])
def test_wrong_words_are_usage(place: Place, words: list[str]) -> None:
    """An unknown command or option is named on stderr; nothing goes to stdout."""
    done = place.outlast(*words)
    assert done.code == ExitCode.USAGE
    assert words[-1] in done.err
    assert done.out == ""


@pytest.mark.parametrize("wait", ["nan", "inf", "-1", "0", "1e400", "99999999999"])
@pytest.mark.parametrize("command", ["checkpoint", "takeover"])
def test_a_wait_that_is_none_is_usage(
    command: str, wait: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """No number that a socket cannot wait for gets as far as the socket."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--socket", str(tmp_path / "none.sock"), f"--timeout={wait}"])
    assert ended.value.code == ExitCode.USAGE
    assert f"{wait!r} is not a number of seconds above 0" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--world", "--data", "--tensor", "--pipeline"])
def test_sizes_of_a_run_are_whole_numbers(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says what is wrong in words."""
    with pytest.raises(SystemExit) as ended:
        main(["restore", option, "0"])
    assert ended.value.code == ExitCode.USAGE
    assert f"argument {option}: '0' is not a whole number from 1" in capsys.readouterr().err


def test_version(place: Place) -> None:
    """The package's version, alone on its line."""
    done = place.outlast("--version")
    assert (done.code, done.out) == (ExitCode.DONE, f"outlast {__version__}\n")


@pytest.mark.parametrize("command", [[name] for name in COMMANDS] + [["config", "check"]], ids="-".join)
def test_every_command_has_examples(place: Place, command: list[str]) -> None:
    """Each command's help shows how it is used."""
    done = place.outlast(*command, "--help")
    assert done.code == ExitCode.DONE
    assert f"outlast {' '.join(command)}" in done.out
    assert "example" in done.out


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["status", "--help"], ["checkpoint", "--help"]])
def test_reading_commands_start_light(words: list[str]) -> None:
    """Help and the commands that only ask the daemon load nothing but the standard library."""
    program = f"""
import json, sys
from outlast.__main__ import main
try:
    main({words!r})
except SystemExit:
    pass
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.parametrize("command", ["status", "checkpoint", "takeover"])
def test_no_daemon(place: Place, command: str) -> None:
    """The message names the socket, why it fails and how to give another; status 3."""
    done = place.outlast(command)
    assert done.code == ExitCode.UNREACHABLE
    assert str(place.folder / "run/control.sock") in done.err
    assert "No such file" in done.err
    assert "Is it running (systemctl status outlast)" in done.err
    assert "--socket" in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_the_option_outranks_the_environment(place: Place) -> None:
    """--socket, then $OUTLAST_CONTROL, then the packaged address."""
    assert "/else/where.sock" in place.outlast("status", "--socket", "/else/where.sock").err
    assert "/run/outlast/control.sock" in place.outlast("status", OUTLAST_CONTROL="").err


@pytest.mark.parametrize(
    ("answer", "code", "why"),
    [
        (b"", 3, "ended the connection without an answer"),
        (b"HTTP/1.1 400 Bad Request\r\n", 3, "without an answer"),
        (b'{"ok": false, "because": "too tired"}\n', 1, "too tired"),
        (b'{"ok": false}\n', 1, "no reason given"),
        (b"[]\n", 3, "is not a daemon of Outlast"),
    ],
    ids=repr,
)
def test_odd_answers_are_told(place: Place, tmp_path: Path, answer: bytes, code: int, why: str) -> None:
    """Whatever listens there, the command ends with one line and its status."""
    path = tmp_path / "odd.sock"
    with served(path, lambda peer: peer.sendall(answer)):
        done = place.outlast("checkpoint", "--socket", path)
    assert done.code == code
    assert why in done.err
    assert "Traceback" not in done.err


def test_a_daemon_that_does_not_answer(place: Place, tmp_path: Path) -> None:
    """The wait is bounded, and the bound is named."""
    path, done = tmp_path / "mute.sock", threading.Event()
    with served(path, lambda _: done.wait(20.0)):
        outcome = place.outlast("checkpoint", "--socket", path, "--timeout", "0.3")
        done.set()
    assert outcome.code == ExitCode.UNREACHABLE
    assert "did not answer within 0.3 s" in outcome.err


class served:  # noqa: N801 - reads as a phrase where it is used
    """A socket whose owner does this with the first connection, after its first line."""

    def __init__(self, path: Path, do: Callable[[socket.socket], object]) -> None:
        self._do = do
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(str(path))
        self._sock.listen()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        peer, _ = self._sock.accept()
        with peer, peer.makefile("rb") as lines:
            lines.readline()
            self._do(peer)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(20.0)
        self._sock.close()
