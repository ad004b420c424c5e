"""What systemd hears, on a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.daemon.ops.notify import Notifier


class FixedClock:
    """A clock that stands still."""

    def monotonic(self) -> float:
        return 12.5

    def wall(self) -> float:
        return 0.0


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which systemd listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(5)
        yield sock


def notifier(listener: socket.socket, **env: str) -> Notifier:
    """A notifier as in a service whose notifications go to this socket."""
    name = listener.getsockname()
    path = name if isinstance(name, str) else "@" + os.fsdecode(name[1:])
    return Notifier({"NOTIFY_SOCKET": path, **env}, FixedClock())


def test_messages(systemd: socket.socket) -> None:
    """Each call is one datagram in the words of sd_notify."""
    to_systemd = notifier(systemd)
    to_systemd.ready("watching 2 jobs")
    to_systemd.status("notice seen")
    to_systemd.watchdog()
    to_systemd.reloading()
    to_systemd.extend(2.5)
    to_systemd.stopping("draining")
    assert [systemd.recv(4096).decode() for _ in range(6)] == [
        "READY=1\nSTATUS=watching 2 jobs",
        "STATUS=notice seen",
        "WATCHDOG=1",
        "RELOADING=1\nMONOTONIC_USEC=12500000",
        "EXTEND_TIMEOUT_USEC=2500000",
        "STOPPING=1\nSTATUS=draining",
    ]


def test_status_stays_one_line(systemd: socket.socket) -> None:
    """A line break in a sentence cannot smuggle in another message."""
    notifier(systemd).status("peer said:\nSTOPPING=1 " + "x" * 1000 + "\ud800")
    said = systemd.recv(4096).decode()
    assert said.startswith("STATUS=peer said: STOPPING=1 xxx")
    assert "\n" not in said
    assert len(said) < 450


def test_abstract_socket() -> None:
    """An address that begins with @ is an abstract socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0outlast-test-{os.getpid()}")
        sock.settimeout(5)
        notifier(sock).ready("up")
        assert sock.recv(4096) == b"READY=1\nSTATUS=up"


def test_readiness_survives_a_full_socket(systemd: socket.socket) -> None:
    """What could not be sent because systemd did not read goes with the next message; nothing blocks."""
    to_systemd = notifier(systemd)
    filled = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        other.connect(systemd.getsockname())
        while filled < 10_000 and _accepted(other):
            filled += 1
        assert 0 < filled < 10_000
        to_systemd.ready("up")
        to_systemd.watchdog()
    for _ in range(filled):
        systemd.recv(4096)
    to_systemd.watchdog()
    assert systemd.recv(4096) == b"READY=1\nSTATUS=up\nWATCHDOG=1"
    to_systemd.watchdog()
    assert systemd.recv(4096) == b"WATCHDOG=1"


def _accepted(sock: socket.socket) -> bool:
    try:
        return bool(sock.send(b"filler"))
    except BlockingIOError:
        return False


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/notify"])
def test_nobody_listens(address: str) -> None:
    """Outside systemd, or where its socket is gone, every call is harmless."""
    quiet = Notifier({"NOTIFY_SOCKET": address} if address else {}, FixedClock())
    quiet.ready("up")
    quiet.extend(1)
    quiet.stopping("down")
    assert quiet.active is (address == "/nowhere/notify")


@pytest.mark.parametrize(
    ("env", "expected_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
    ],
)
def test_watchdog_interval(systemd: socket.socket, env: dict[str, str], expected_s: float | None) -> None:
    """A sign of life is due twice as often as systemd demands, and only of the process it watches."""
    assert notifier(systemd, **env).watchdog_interval_s == expected_s
