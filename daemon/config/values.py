"""One function a kind of value: from what YAML said to what the code uses, or a ValueError that says why."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationInfo

from outlast.daemon.config import keys
from outlast.daemon.config.duration import seconds, words
from outlast.daemon.config.problem import shown

SOCKET_PATH_LIMIT = 107  # bytes in sun_path, less the final NUL
SHORTEST_POLL_S, LONGEST_POLL_S = 0.05, 60.0
SHORTEST_PRICES_S = 600.0
MOST_NODES = 1024
STOP_SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL")
AUTO = "auto"
CREDENTIAL = "credential:"
UNCHECKED_CREDENTIALS = Path("/run/credentials/outlast.service")

_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")
_JOB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,247}\.service")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_CREDENTIAL_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_SSH = re.compile(
    r"([A-Za-z0-9_][A-Za-z0-9._-]{0,31})@"
    r"(?:\[([0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._-]{1,15})?)\]|([A-Za-z0-9][A-Za-z0-9._-]{0,252}))"
    r"(?::([0-9]{1,5}))?"
)
_BANDWIDTH = re.compile(r"([1-9][0-9]{0,5}(?:\.[0-9]{1,3})?)\s*([kMGT])(?:bit/s)?")
_PREFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1"})


@dataclass(frozen=True, slots=True)
class Context:
    """What a value may be checked against besides itself.

    ``credentials`` is the folder of systemd credentials; None where this process has none, which is an
    error unless ``assume_credentials``.
    """

    credentials: Path | None = None
    assume_credentials: bool = False


@dataclass(frozen=True, slots=True)
class SshAddress:
    """``user@host:port``, taken apart."""

    user: str
    host: str
    port: int = 22


def text(value: object) -> str:
    """Text that is not empty."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {shown(value)}; quote it")
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def name(value: object) -> str:
    """The name of a machine."""
    if _NAME.fullmatch(text(value)) is None:
        raise ValueError(f"may hold letters, digits, '.', '_' and '-', not {shown(value)}")
    return text(value)


def nodes(value: object) -> tuple[str, ...]:
    """The names of the nodes that a job spans."""
    if not isinstance(value, list | tuple):
        raise ValueError("must be the list of the names of all nodes; begin each item with '- '")
    names = tuple(name(item) for item in value)
    if len(names) == 1 or len(names) > MOST_NODES:
        raise ValueError(f"must name 2 to {MOST_NODES} nodes; leave it out for a job on this node alone")
    twice = next((item for item in names if names.count(item) > 1), None)
    if twice is not None:
        raise ValueError(f"names {shown(twice)} twice")
    return names


def job_name(value: object) -> str:
    """The name of a job; it is also the name of a folder."""
    if _JOB.fullmatch(text(value)) is None:
        raise ValueError(
            f"may hold letters, digits, '.', '_' and '-', at most 64, none of '.-' first; not {shown(value)}"
        )
    return text(value)


def absolute(value: object) -> Path:
    """An absolute path, normalised, that need not exist."""
    path = Path(text(value)) if not isinstance(value, Path) else value
    if not path.is_absolute():
        raise ValueError(f"must be an absolute path, not {shown(value)}")
    return Path(os.path.normpath(path))


def socket_folder(value: object) -> Path:
    """A folder whose path is short enough for the sockets in it."""
    path = absolute(value)
    longest = len(os.fsencode(path / "control.sock"))
    if longest > SOCKET_PATH_LIMIT:
        raise ValueError(f"too long by {longest - SOCKET_PATH_LIMIT} bytes: a socket's path has at most 107")
    return path


def checkpoint_folder(value: object) -> Path:
    """A folder that exists and that this process can write."""
    path = absolute(value)
    try:
        is_folder = path.stat() is not None and path.is_dir()
    except FileNotFoundError:
        raise ValueError(
            f"checkpoint folder {path} does not exist; create it, group-writable for the daemon"
        ) from None
    except OSError as exc:
        raise ValueError(f"checkpoint folder {path} cannot be reached: {exc.strerror}") from None
    if not is_folder:
        raise ValueError(f"checkpoint folder {path} is not a folder")
    if not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(
            f"checkpoint folder {path} is not writable here; make it group-writable for the daemon, "
            "and under systemd name it in ReadWritePaths="
        )
    return path


def duration(value: object) -> float:
    """A length of time in seconds, 0 included."""
    return seconds(value)


def positive_duration(value: object) -> float:
    """A length of time in seconds, more than 0."""
    result = seconds(value)
    if result <= 0:
        raise ValueError("must be more than 0s")
    return result


def every(value: object) -> float | str:
    """The time between checkpoints in seconds, or ``auto``: chosen by what is measured."""
    if value == AUTO:
        return AUTO
    try:
        return positive_duration(value)
    except ValueError as exc:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        raise ValueError(str(exc) if number else f"{exc}; or auto, to have it chosen") from None


def bandwidth(value: object) -> float | None:
    """``500M`` or ``2G``, bits a second as networks are sold, in bytes a second."""
    if value is None:
        return None
    match = _BANDWIDTH.fullmatch(text(value))
    if match is None:
        raise ValueError(f"{shown(value)} is not a bandwidth such as 500M or 2G (bits a second)")
    return float(match[1]) * _PREFIXES[match[2]] / 8


def poll(value: object) -> float:
    """How long to wait between polls, in seconds."""
    result = seconds(value)
    if not SHORTEST_POLL_S <= result <= LONGEST_POLL_S:
        raise ValueError(f"must be between {words(SHORTEST_POLL_S)} and {words(LONGEST_POLL_S)}")
    return result


def price_pause(value: object) -> float:
    """How long to wait between looks at prices, in seconds."""
    result = seconds(value)
    if result < SHORTEST_PRICES_S:
        raise ValueError(f"must be at least {words(SHORTEST_PRICES_S)}; providers change prices seldom")
    return result


def endpoint(value: object) -> str | None:
    """The base address of a metadata service: plain http, no user, no query; without the last slash."""
    if value is None:
        return None
    url = text(value)
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "http" and parts.hostname is not None and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"[\s@?#\\]", url):
        safe = shown(re.sub(r"//[^/]*@", "//...@", url))
        raise ValueError(f"must be an http:// address such as http://127.0.0.1:1338, not {safe}")
    return url.rstrip("/")


def listen(value: object) -> tuple[str, int] | None:
    """An IP address of this machine and a port, to serve metrics at; an IPv6 address stands in brackets."""
    if value is None or isinstance(value, tuple):
        return value
    host, _, port = text(value).rpartition(":")
    inner = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        wanted = 6 if inner != host else 4
        usable = ipaddress.ip_address(inner).version == wanted and re.fullmatch(r"[1-9][0-9]{0,4}", port)
    except ValueError:
        usable = None
    if not usable or int(port) > 65535:
        raise ValueError(f"must be an address and a port such as 127.0.0.1:9464, not {shown(value)}")
    return inner, int(port)


def textfile(value: object) -> Path | None:
    """The file that node_exporter's textfile collector is to read."""
    if value is None:
        return None
    path = absolute(value)
    if path.suffix != ".prom":
        raise ValueError(f"must end in .prom, as node_exporter reads no other, not {shown(value)}")
    return path


def ssh_address(value: object) -> SshAddress:
    """``user@host`` or ``user@host:port``; an IPv6 address stands in brackets."""
    if isinstance(value, SshAddress):
        return value
    match = _SSH.fullmatch(text(value))
    port = int((match and match.group(4)) or 22)
    if match is None or not 0 < port < 65536:
        raise ValueError(f"must be user@host or user@host:port, not {shown(value)}")
    return SshAddress(match.group(1), match.group(2) or match.group(3), port)


def host_key(value: object, info: ValidationInfo) -> str:
    """The peer's host key as ``algorithm base64``, from a line or a file."""
    address = info.data.get("ssh") or SshAddress("", "", 22)
    return keys.pinned_host_key(text(value).strip(), address.host, address.port)


def private_key(value: object, info: ValidationInfo) -> Path:
    """The file of our private key, from a path or ``credential:NAME``; usable as it is."""
    context = info.context if isinstance(info.context, Context) else Context()
    given = str(value) if isinstance(value, Path) else text(value)
    if not given.startswith(CREDENTIAL):
        if "PRIVATE KEY" in given:
            raise ValueError("must be the path of the private key, never the key itself")
        return keys.usable_private_key(absolute(given))
    credential = given.removeprefix(CREDENTIAL)
    if _CREDENTIAL_NAME.fullmatch(credential) is None:
        raise ValueError(f"{shown(credential)} is no name of a credential")
    if context.credentials is not None:
        return keys.usable_private_key(context.credentials / credential)
    if context.assume_credentials:
        return UNCHECKED_CREDENTIALS / credential
    raise ValueError(
        f"there are no credentials in this process ($CREDENTIALS_DIRECTORY is not set); "
        f"add LoadCredential={credential}:/etc/outlast/{credential} to the unit, or give a path"
    )


def command(value: object) -> tuple[str, ...] | None:
    """The words of a command that is run without a shell."""
    if value is None:
        return None
    if isinstance(value, str):
        return _split(value)
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("must be a command line, or the list of its words")
    if any(isinstance(word, bool) or not isinstance(word, str | int) for word in value):
        raise ValueError("each word must be text; quote it")
    return tuple(str(word) for word in value)


def _split(line: str) -> tuple[str, ...]:
    try:
        parts = tuple(shlex.split(line))
    except ValueError as exc:
        raise ValueError(f"cannot be split into words: {str(exc).lower()}") from None
    if not parts:
        raise ValueError("must not be empty")
    shell = next((part for part in parts if part in _SHELL_WORDS), None)
    if shell is not None:
        raise ValueError(f"is run without a shell, so {shell} does nothing; use [sh, -c, '…']")
    return parts


def unit(value: object) -> str | None:
    """The name of a systemd service."""
    if value is not None and _UNIT.fullmatch(text(value)) is None:
        raise ValueError(f"must be the name of a service such as tune.service, not {shown(value)}")
    return None if value is None else text(value)


def environment(value: object) -> Mapping[str, str]:
    """Variables for a command; whole numbers count as text."""
    if not isinstance(value, Mapping):
        raise ValueError("must be variables and their values, one a line")
    result: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(key, str) or _VARIABLE.fullmatch(key) is None:
            raise ValueError(f"{shown(key)} is no name of a variable")
        if isinstance(item, bool) or not isinstance(item, str | int):
            raise ValueError(f"the value of {key} must be text; quote it")
        result[key] = str(item)
    return result


def stop_signal(value: object) -> str:
    """The name of a signal without SIG."""
    wanted = value.upper().removeprefix("SIG") if isinstance(value, str) else ""
    if wanted not in STOP_SIGNALS:
        raise ValueError(f"must be one of {', '.join(STOP_SIGNALS)}, not {shown(value)}")
    return wanted
