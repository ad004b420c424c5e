"""Logs as they arrive: JSON lines, a terminal, and the journal on a real datagram socket."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from outlast.daemon.ops import journal, logs


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root, ours = logging.getLogger(), logging.getLogger("outlast")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture
def journald(tmp_path: Path) -> Iterator[socket.socket]:
    """The journal's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "journal"))
        sock.settimeout(5)
        yield sock


def fields(datagram: bytes) -> dict[str, str]:
    """A datagram of the native protocol as journald would take it apart."""
    found: dict[str, str] = {}
    while datagram:
        line, _, datagram = datagram.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack("<Q", datagram[:8])
            value, datagram = datagram[8 : 8 + size], datagram[8 + size + 1 :]
        assert name.decode() not in found
        found[name.decode()] = value.decode()
    return found


def json_lines(stream: io.StringIO) -> list[dict[str, object]]:
    """The events in the stream."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines() -> None:
    """Each event is one JSON object with level, UTC time, context and traceback, and without secrets."""
    stream = io.StringIO()
    assert logs.configure("info", "auto", stream=stream, env={}) == "json"
    log = structlog.get_logger()
    with structlog.contextvars.bound_contextvars(notice_id="n1"):
        log.warning("notice_received", deadline_s=118.2, token="abc", detail="two\nlines")
    log.debug("polled")
    try:
        raise OSError(28, "No space left")
    except OSError:
        log.exception("commit_failed")
    first, second = json_lines(stream)
    assert (first["event"], first["level"], first["notice_id"]) == ("notice_received", "warning", "n1")
    assert (first["deadline_s"], first["token"], first["detail"]) == (118.2, "[redacted]", "two\nlines")
    assert str(first["timestamp"]).endswith("Z")
    assert (second["event"], second["level"]) == ("commit_failed", "error")
    assert "OSError: [Errno 28] No space left" in str(second["exception"])


def test_level_is_obeyed() -> None:
    """What is below the level is not logged; a second configuration replaces the first."""
    stream = io.StringIO()
    logs.configure("debug", "json", stream=stream, env={})
    logs.configure("error", "json", stream=stream, env={})
    structlog.get_logger().warning("no")
    logging.getLogger("asyncssh").warning("no")
    logging.getLogger("asyncssh").error("yes")
    assert [line["event"] for line in json_lines(stream)] == ["yes"]


def test_libraries_are_routed() -> None:
    """Libraries come in from WARNING on, redacted; our own standard loggers from the level on."""
    stream = io.StringIO()
    logs.configure("info", "json", stream=stream, env={})
    logging.getLogger("aiohttp.client").info("no")
    logging.getLogger("botocore").warning("X-aws-ec2-metadata-token: %s", "abc123")
    logging.getLogger("outlast.providers.aws").info("yes")
    record = logging.LogRecord("other", 35, "x.py", 1, "odd level, %d", ("wrong argument",), None)
    logs.StandardLibraryHandler().emit(record)
    assert [(line["logger"], line["level"], line["event"]) for line in json_lines(stream)] == [
        ("botocore", "warning", "X-aws-ec2-metadata-token: [redacted]"),
        ("outlast.providers.aws", "info", "yes"),
        ("other", "warning", "odd level, %d (its arguments do not fit)"),
    ]


@pytest.mark.parametrize(("env", "colored"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_terminal(env: dict[str, str], colored: bool) -> None:
    """On a terminal the log is for people, in colour unless NO_COLOR says otherwise."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        assert logs.configure("info", "auto", stream=stream, env=env) == "console"
        structlog.get_logger().warning("notice_received", token="abc", left_s=30)
        said = os.read(ours, 4096).decode()
    os.close(ours)
    assert "notice_received" in said
    assert "abc" not in said
    assert ("\x1b[" in said) is colored


def test_journal_is_recognised(tmp_path: Path) -> None:
    """JOURNAL_STREAM counts only if it names the very stream that is written to."""
    with (tmp_path / "stderr").open("w") as stream:
        found = os.fstat(stream.fileno())
        assert logs._detect(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}) == "journal"
        assert logs._detect(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"}) == "json"
        assert logs._detect(stream, {}) == "json"


def test_journal_fields(journald: socket.socket) -> None:
    """An event is one datagram whose fields can be searched for, line breaks and all."""
    assert logs.configure("info", "journal", journal_socket=journald.getsockname(), env={}) == "journal"
    structlog.get_logger().warning(
        "notice_received", notice_id="n1", left_s=30.5, detail="two\nPRIORITY=0", token="abc", ok=True
    )
    assert fields(journald.recv(65536)) == {
        "MESSAGE": "notice_received notice_id=n1 left_s=30.5 detail=two\nPRIORITY=0 token=[redacted] ok=true",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "outlast",
        "OUTLAST_EVENT": "notice_received",
        "OUTLAST_NOTICE_ID": "n1",
        "OUTLAST_LEFT_S": "30.5",
        "OUTLAST_DETAIL": "two\nPRIORITY=0",
        "OUTLAST_TOKEN": "[redacted]",
        "OUTLAST_OK": "true",
    }


def test_journal_traceback_and_odd_keys(journald: socket.socket) -> None:
    """A traceback is part of the message; keys become names that journald accepts."""
    logs.configure("info", "journal", journal_socket=journald.getsockname(), env={})
    try:
        raise ValueError("why")
    except ValueError:
        structlog.get_logger().exception("failed", **{"rank-0 µs": 1, "_x": 2})
    found = fields(journald.recv(65536))
    assert found["MESSAGE"].splitlines()[0] == "failed rank-0 µs=1 _x=2"
    assert found["MESSAGE"].splitlines()[-1] == "ValueError: why"
    assert found["PRIORITY"] == "3"
    assert {"OUTLAST_RANK_0__S", "OUTLAST__X"} < set(found)


def test_journal_datagram_is_bounded() -> None:
    """However much is logged, the datagram stays below what the kernel refuses."""
    event = {"event": "x" * 100_000, **{f"k{i}": "y" * 20_000 for i in range(100)}}
    datagram = journal.encode(event)
    assert len(datagram) <= journal.MESSAGE_LIMIT
    assert fields(datagram)["PRIORITY"] == "6"


def test_full_journal_loses_and_counts(journald: socket.socket) -> None:
    """A journal that does not read never holds the daemon up; the next line says how many were lost."""
    sink = journal.JournalLogger(journald.getsockname())
    sent = 0
    while sink._lost == 0 and sent < 10_000:
        sink.msg({"event": "filler", "level": "info"})
        sent += 1
    sink.msg({"event": "also lost", "level": "info"})
    assert sink._lost == 2
    for _ in range(sent - 1):
        journald.recv(65536)
    sink.msg({"event": "after", "level": "info"})
    assert fields(journald.recv(65536))["OUTLAST_LOST_BEFORE"] == "2"


def test_no_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the journal's socket is gone, events go to stderr."""
    sink = journal.JournalLogger(str(tmp_path / "gone"))
    sink.msg({"event": "notice_received", "level": "warning"})
    assert json.loads(capsys.readouterr().err) == {"event": "notice_received", "level": "warning"}


async def test_logging_does_not_block_the_loop(journald: socket.socket) -> None:
    """Logging to the journal is allowed inside the event loop."""
    logs.configure("info", "journal", journal_socket=journald.getsockname(), env={})
    structlog.get_logger().info("polled")
    journald.setblocking(False)
    assert fields(journald.recv(65536))["OUTLAST_EVENT"] == "polled"
