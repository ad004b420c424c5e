"""systemd's journal by its native protocol, so that each field of an event can be searched for."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any

SOCKET = "/run/systemd/journal/socket"
FIELD_LIMIT = 16 * 1024
MESSAGE_LIMIT = 160 * 1024  # the kernel refuses datagrams above about 200 kB
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9_]")


def is_journal(env: Mapping[str, str], fd: int) -> bool:
    """Whether ``fd`` is the stream that systemd opened to the journal for this process."""
    device, _, inode = env.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def encode(event: Mapping[str, Any]) -> bytes:
    """One datagram: a readable MESSAGE, and ``OUTLAST_EVENT`` and ``OUTLAST_<KEY>`` for the rest."""
    rest = {key: value for key, value in event.items() if key not in ("event", "level", "exception")}
    message = " ".join(
        [str(event.get("event", "")), *(f"{key}={_text(value)}" for key, value in rest.items())]
    )
    if "exception" in event:
        message += f"\n{event['exception']}"
    parts = [
        _field("MESSAGE", message),
        _field("PRIORITY", str(PRIORITIES.get(str(event.get("level")), 6))),
        _field("SYSLOG_IDENTIFIER", "outlast"),
        _field("OUTLAST_EVENT", str(event.get("event", ""))),
        *(_field(_name(key), _text(value)) for key, value in rest.items()),
    ]
    return _bounded(parts)


class JournalLogger:
    """The last link of the chain: sends each event as one datagram, never blocks.

    What the journal cannot take is counted, and the count goes with the next message that it takes; where
    there is no journal at all, messages go to ``stderr``.
    """

    def __init__(self, address: str = SOCKET) -> None:
        self._address = address
        self._lost = 0

    def msg(self, event: Mapping[str, Any]) -> None:
        """Send one event."""
        lost = _field("OUTLAST_LOST_BEFORE", str(self._lost)) if self._lost else b""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.sendto(encode(event) + lost, self._address)
        except BlockingIOError:
            self._lost += 1
        except OSError:
            sys.stderr.write(json.dumps(event, default=str) + "\n")
        else:
            self._lost = 0

    debug = info = warning = error = critical = exception = msg


def whole_event(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[MutableMapping[str, Any]], dict[str, Any]]:
    """The last structlog processor before a JournalLogger, which wants the event, not a line of text."""
    return (event,), {}


def _name(key: str) -> str:
    return f"OUTLAST_{_NOT_IN_NAMES.sub('_', key.upper())}"[:64]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _field(name: str, value: str) -> bytes:
    """``NAME=value``, or with a length where the value has a line break (which would start a field)."""
    raw = value.encode("utf-8", "replace")[:FIELD_LIMIT]
    if b"\n" not in raw:
        return name.encode() + b"=" + raw + b"\n"
    return name.encode() + b"\n" + len(raw).to_bytes(8, "little") + raw + b"\n"


def _bounded(parts: list[bytes]) -> bytes:
    size, kept = 0, []
    for part in parts:
        size += len(part)
        if size > MESSAGE_LIMIT:
            break
        kept.append(part)
    return b"".join(kept)
