"""Opening the connection: what is pinned, what is offered, and what each failure means for the user."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import asyncssh

from outlast.daemon.checkpoint.destinations import Unreachable

CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes128-ctr")
_KEEPALIVES_MISSED = 2


@dataclass(frozen=True)
class PeerSettings:
    """Where the peer is and how it is recognised. ``host_key`` is an OpenSSH public key line.

    ``channels`` is the most sessions that carry bulk at once; ``keep`` replicas are to stay there.
    ``connect_s`` bounds one attempt; after about three times ``keepalive_s`` of silence the connection
    counts as dead.
    """

    host: str
    port: int
    user: str
    host_key: str
    key: Path
    bulk: Literal["auto", "channels", "openssh", "rsync"] = "auto"
    channels: int = 8
    limit_bytes_s: float | None = None
    keep: int = 2
    connect_s: float = 10.0
    keepalive_s: float = 4.0


class _Pinned(asyncssh.SSHClient):
    """Accepts one host key and remembers what else it was shown."""

    def __init__(self, pinned: asyncssh.SSHKey) -> None:
        self._pinned = pinned
        self.seen = ""

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Called by asyncssh for every key, since none is in the list of known hosts."""
        del host, addr, port  # the key alone says who answers
        self.seen = key.get_fingerprint()
        return key.public_data == self._pinned.public_data


async def dial(settings: PeerSettings) -> asyncssh.SSHClientConnection:
    """Connect and log in. Raises Unreachable with what failed, why, and what to do."""
    pinned = _host_key(settings)
    key = await asyncio.to_thread(_private_key, settings.key)
    client = _Pinned(pinned)
    where = f"{settings.user}@{settings.host}:{settings.port}"
    try:
        return await _connect(settings, client, pinned, key)
    except asyncssh.HostKeyNotVerifiable as exc:
        raise Unreachable(_wrong_key(where, client.seen, pinned)) from exc
    except asyncssh.PermissionDenied as exc:
        raise Unreachable(
            f"{where} refused the key {key.get_fingerprint()}: put its public half, with the forced command"
            " 'outlast receive', into that user's authorized_keys"
        ) from exc
    except (TimeoutError, asyncssh.Error, OSError) as exc:
        because = str(exc) or f"no answer within {settings.connect_s:.0f} s"
        raise Unreachable(f"{where} cannot be reached: {because}") from exc


async def _connect(
    settings: PeerSettings, client: _Pinned, pinned: asyncssh.SSHKey, key: asyncssh.SSHKey
) -> asyncssh.SSHClientConnection:
    async with asyncio.timeout(settings.connect_s):
        return await asyncssh.connect(
            settings.host,
            settings.port,
            username=settings.user,
            client_factory=lambda: client,
            known_hosts=([], [], []),
            server_host_key_algs=_algorithms(pinned),
            client_keys=[key],
            # Nothing of the user's own SSH set-up may change where this goes or what it offers.
            config=[],
            agent_path=None,
            gss_host=None,
            preferred_auth="publickey",
            encryption_algs=CIPHERS,
            compression_algs=None,
            keepalive_interval=settings.keepalive_s,
            keepalive_count_max=_KEEPALIVES_MISSED,
            login_timeout=settings.connect_s,
        )


def _algorithms(pinned: asyncssh.SSHKey) -> list[str]:
    """The pinned key's own algorithms first; the others are there to say whose key was seen instead."""
    name = pinned.get_algorithm()
    own = ["rsa-sha2-512", "rsa-sha2-256"] if name == "ssh-rsa" else [name]
    others = ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "rsa-sha2-512", "rsa-sha2-256"]
    return own + [other for other in others if other not in own]


def _host_key(settings: PeerSettings) -> asyncssh.SSHKey:
    try:
        return asyncssh.import_public_key(settings.host_key)
    except (asyncssh.KeyImportError, ValueError) as exc:
        raise Unreachable(
            f"host_key of {settings.host} is not an OpenSSH public key ({exc}): copy the line from"
            " /etc/ssh/ssh_host_ed25519_key.pub on the peer"
        ) from exc


def _private_key(path: Path) -> asyncssh.SSHKey:
    try:
        return asyncssh.read_private_key(path)
    except OSError as exc:
        raise Unreachable(
            f"the private key {path} cannot be read ({exc.strerror}): check its path, owner and mode"
        ) from exc
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError) as exc:
        raise Unreachable(f"{path} is not a private key without a passphrase ({exc})") from exc


def _wrong_key(where: str, seen: str, pinned: asyncssh.SSHKey) -> str:
    return (
        f"{where} showed the host key {seen or 'of another kind'}, but {pinned.get_fingerprint()} is"
        " configured: if the peer was rebuilt, compare with its console and change host_key; if not,"
        " somebody else answers there"
    )
