"""The command line's way to the daemon: its control socket. Needs no configuration and no dependency."""

from __future__ import annotations

import argparse
import json
import os
import socket
from pathlib import Path
from typing import Any

DEFAULT_SOCKET = "/run/outlast/control.sock"


class UnreachableError(Exception):
    """The daemon does not answer: where, why and what to do."""


class RefusedError(Exception):
    """The daemon answered that it cannot: why."""


def add_socket_option(parser: argparse.ArgumentParser) -> None:
    """``--socket``, with its default from the environment."""
    parser.add_argument(
        "--socket",
        type=Path,
        default=Path(os.environ.get("OUTLAST_CONTROL") or DEFAULT_SOCKET),
        help=f"the daemon's control socket (default: $OUTLAST_CONTROL or {DEFAULT_SOCKET})",
    )


def ask(path: Path, request: dict[str, Any], wait_s: float) -> dict[str, Any]:
    """One request, one answer. Raises UnreachableError or RefusedError."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(wait_s)
            sock.connect(str(path))
            sock.sendall(json.dumps(request).encode() + b"\n")
            with sock.makefile("rb") as stream:
                line = stream.readline()
    except TimeoutError as exc:
        raise UnreachableError(f"the daemon at {path} did not answer within {wait_s:g} s") from exc
    except OSError as exc:
        why = exc.strerror or str(exc)
        raise UnreachableError(
            f"no daemon answers at {path}: {why}. Is it running (systemctl status outlast), "
            "and may this user use its socket? Give another one with --socket"
        ) from exc
    return _answer(path, line)


def _answer(path: Path, line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError as exc:
        raise UnreachableError(f"the daemon at {path} ended the connection without an answer") from exc
    if not isinstance(answer, dict):
        raise UnreachableError(f"what answers at {path} is not a daemon of Outlast")
    if not answer.pop("ok", False):
        raise RefusedError(str(answer.get("because", "no reason given")))
    return answer
