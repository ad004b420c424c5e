"""SSH keys named in the configuration: the peer's pinned host key and our private key.

Only the shape is checked here, without the SSH library, which costs a quarter of a second to import.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

ALGORITHMS = (
    "ssh-ed25519",
    "sk-ssh-ed25519@openssh.com",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)
MAX_KEY_FILE = 64 * 1024
_PEM = re.compile(r"-----BEGIN ([A-Z]+ )*PRIVATE KEY-----(.*?)-----END", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Line:
    hosts: str  # empty in a .pub file
    key: str


def pinned_host_key(value: str, host: str, port: int) -> str:
    """The peer's host key as ``algorithm base64``, from a key line or from the file at an absolute path.

    In a file of several keys, those for ``host`` count, the strongest first. Raises ValueError.
    """
    if value.startswith("/"):
        lines, where = _parse_lines(_read(Path(value), "host key file")), f"{value} holds"
    else:
        lines, where = _parse_lines(value), "this is"
    if not lines:
        raise ValueError(f"{where} no OpenSSH public key; give a line 'ssh-ed25519 AAAA…' or the path of one")
    chosen = lines if len({line.key for line in lines}) == 1 else _for_host(lines, host, port)
    if not chosen:
        raise ValueError(f"{where} several keys, none for {host}; keep only the peer's")
    return min(chosen, key=lambda line: ALGORITHMS.index(line.key.split()[0])).key


def usable_private_key(path: Path) -> Path:
    """``path``, if it is a private key without passphrase that this user can read and not everybody.

    Raises ValueError; the text never shows the content.
    """
    text = _read(path, "private key")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o007:
        raise ValueError(f"private key {path} is open to everybody (mode {mode:04o}); run: chmod 0600 {path}")
    match = _PEM.search(text)
    if match is None:
        raise ValueError(f"{path} is not a private key; name the file made by ssh-keygen without .pub")
    if "ENCRYPTED" in match.group(0) or _has_passphrase(match.group(2)):
        raise ValueError(f"private key {path} has a passphrase, which a daemon cannot type; make one without")
    return path


def _read(path: Path, what: str) -> str:
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{what} {path} is not a file")
            return file.read(MAX_KEY_FILE).decode("ascii", "replace")
    except FileNotFoundError:
        raise ValueError(f"{what} {path} does not exist") from None
    except OSError as exc:
        raise ValueError(f"{what} {path} cannot be read by this user: {exc.strerror}") from None


def _parse_lines(text: str) -> list[_Line]:
    return [line for line in map(_parse_line, text.splitlines()) if line is not None]


def _parse_line(text: str) -> _Line | None:
    """A line of a .pub or known_hosts file; None for comments, markers (@revoked) and nonsense."""
    words = text.split()
    if not words or words[0].startswith(("#", "@")):
        return None
    index = next((i for i, word in enumerate(words[:2]) if word in ALGORITHMS), None)
    if index is None or len(words) < index + 2 or not _is_key(words[index], words[index + 1]):
        return None
    return _Line(words[0] if index else "", f"{words[index]} {words[index + 1]}")


def _is_key(algorithm: str, encoded: str) -> bool:
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return False
    name = algorithm.encode()
    prefix = len(name).to_bytes(4, "big") + name
    return blob.startswith(prefix) and len(blob) >= len(prefix) + 4 + 32


def _for_host(lines: list[_Line], host: str, port: int) -> list[_Line]:
    names = {f"[{host}]:{port}", *([host] if port == 22 else [])}
    return [line for line in lines if not line.hosts or _names_host(line.hosts, names)]


def _names_host(hosts: str, names: set[str]) -> bool:
    if not hosts.startswith("|1|"):
        return not names.isdisjoint(hosts.split(","))
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in hosts[3:].split("|"))
    except (binascii.Error, ValueError):
        return False
    return any(hmac.digest(salt, name.encode(), hashlib.sha1) == digest for name in names)


def _has_passphrase(body: str) -> bool:
    try:
        blob = base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        return False  # the older PEM forms say ENCRYPTED in their text
    magic = b"openssh-key-v1\0"
    return blob.startswith(magic) and blob[len(magic) :][4:8] != b"none"
