"""The SSH keys a configuration names: found, fit to use, and never shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest
from tests.config.conftest import Ground, make_key

from outlast.daemon.config import ConfigError, PeerSettings, load


def peer(
    ground: Ground, host_key: str = "PUB", key: str = "KEY", ssh: str = "outlast@10.8.0.2"
) -> PeerSettings:
    """The peer of a job configured with these keys."""
    found = load(_file(ground, host_key, key, ssh), env={}).jobs[0].peer
    assert found is not None
    return found


def refusal(
    ground: Ground, host_key: str = "PUB", key: str = "KEY", env: dict[str, str] | None = None
) -> str:
    """The message of the one problem that these keys make."""
    with pytest.raises(ConfigError) as caught:
        load(_file(ground, host_key, key), env=env or {})
    (problem,) = caught.value.problems
    return problem.message


def _file(ground: Ground, host_key: str, key: str, ssh: str = "outlast@10.8.0.2") -> Path:
    section = f"{{ssh: '{ssh}', host_key: '{host_key}', key: '{key}'}}"
    return ground.write(f"jobs:\n  - {{name: tune, checkpoints: CKPT, peer: {section}}}\n")


def test_host_key_as_a_line(ground: Ground) -> None:
    """A key line is taken as it is, without its comment."""
    assert peer(ground, f"{ground.host_key} root@peer").host_key == ground.host_key


def test_host_key_in_known_hosts(ground: Ground, tmp_path: Path) -> None:
    """Of several hosts in a file, the peer's key is taken, plain or hashed, with its port."""
    make_key(tmp_path / "other")
    other = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    salt = b"0123456789abcdefghij"
    digest = hmac.digest(salt, b"[10.8.0.2]:2222", hashlib.sha1)
    hashed = f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
    known = tmp_path / "known_hosts"
    known.write_text(
        f"# comment\nother.example,10.8.0.9 {other}\n{hashed} {ground.host_key}\n@revoked * {other}\n"
    )
    assert peer(ground, str(known), ssh="outlast@10.8.0.2:2222").host_key == ground.host_key
    assert peer(ground, str(known), ssh="outlast@other.example").host_key == other
    assert (
        refusal(ground, str(known)) == f"{known} holds several keys, none for 10.8.0.2; keep only the peer's"
    )


def test_strongest_of_a_scan(ground: Ground, tmp_path: Path) -> None:
    """Of the kinds of keys that one host shows, Ed25519 is pinned."""
    make_key(tmp_path / "rsa", kind="rsa")
    scan = tmp_path / "scan"
    scan.write_text(f"10.8.0.2 {(tmp_path / 'rsa.pub').read_text()}10.8.0.2 {ground.host_key}\n")
    assert peer(ground, str(scan)).host_key == ground.host_key


@pytest.mark.parametrize(
    "line",
    [
        "ssh-ed25519 AAAA",
        "ssh-ed25519",
        "ssh-dss AAAAB3NzaC1kc3M=",
        "nonsense",
        "ssh-rsa KEYOF",
        "ssh-ed25519 %%%",
    ],
)
def test_host_key_that_is_none(ground: Ground, line: str) -> None:
    """A line that is no whole key of a known kind is refused."""
    text = line.replace("KEYOF", ground.host_key.split()[1])
    assert refusal(ground, text) == (
        "this is no OpenSSH public key; give a line 'ssh-ed25519 AAAA…' or the path of one"
    )


def test_host_key_file_missing(ground: Ground) -> None:
    """A file that is not there is named."""
    assert refusal(ground, "/nowhere/peer.pub") == "host key file /nowhere/peer.pub does not exist"


def test_private_key_open_to_everybody(ground: Ground, tmp_path: Path) -> None:
    """A key that everybody can read is refused, with the command that mends it."""
    key = tmp_path / "open"
    make_key(key)
    key.chmod(0o644)
    assert refusal(ground, key=str(key)) == (
        f"private key {key} is open to everybody (mode 0644); run: chmod 0600 {key}"
    )


@pytest.mark.parametrize("fmt", ["RFC4716", "PEM", "PKCS8"])
def test_private_key_with_passphrase(ground: Ground, tmp_path: Path, fmt: str) -> None:
    """A key that needs a passphrase is refused before it fails at three in the morning."""
    key = tmp_path / "locked"
    make_key(key, passphrase="correct horse", kind="rsa", fmt=fmt)
    assert refusal(ground, key=str(key)) == (
        f"private key {key} has a passphrase, which a daemon cannot type; make one without"
    )


@pytest.mark.parametrize("fmt", ["RFC4716", "PEM", "PKCS8"])
def test_private_key_formats(ground: Ground, tmp_path: Path, fmt: str) -> None:
    """Every format that ssh-keygen writes is accepted."""
    key = tmp_path / "rsa"
    make_key(key, kind="rsa", fmt=fmt)
    assert peer(ground, key=str(key)).key == key


def test_public_key_in_place_of_the_private(ground: Ground, tmp_path: Path) -> None:
    """The wrong half of a pair is recognised."""
    public = tmp_path / "k.pub"
    public.write_text(ground.host_key)
    public.chmod(0o600)
    assert refusal(ground, key=str(public)) == (
        f"{public} is not a private key; name the file made by ssh-keygen without .pub"
    )


def test_private_key_missing_or_unreadable(ground: Ground, tmp_path: Path) -> None:
    """A key that cannot be read is named with the reason."""
    assert refusal(ground, key="/nowhere/key") == "private key /nowhere/key does not exist"
    below = f"{ground.key}/key"
    assert refusal(ground, key=below) == f"private key {below} cannot be read by this user: Not a directory"
    said = refusal(ground, key=str(tmp_path))
    assert said == f"private key {tmp_path} cannot be read by this user: Is a directory"


def test_private_key_pasted_in(ground: Ground, tmp_path: Path) -> None:
    """A private key in place of its path is refused and not repeated in the message."""
    body = ground.key.read_text()
    pasted = body.strip().replace("\n", "\\n")
    file = tmp_path / "outlast.yaml"
    section = f'{{ssh: a@b, host_key: {ground.host_key}, key: "{pasted}"}}'
    file.write_text(f"jobs: [{{name: a, checkpoints: {tmp_path}, peer: {section}}}]\n")
    with pytest.raises(
        ConfigError, match="must be the path of the private key, never the key itself"
    ) as caught:
        load(file, env={})
    assert body.splitlines()[1] not in str(caught.value)


def test_credential(ground: Ground, tmp_path: Path) -> None:
    """A systemd credential is found in the folder that systemd names, and its mode 0440 is in order."""
    make_key(tmp_path / "ssh_key")
    (tmp_path / "ssh_key").chmod(0o440)
    file = _file(ground, "PUB", "credential:ssh_key")
    found = load(file, env={"CREDENTIALS_DIRECTORY": str(tmp_path)}).jobs[0].peer
    assert found is not None
    assert found.key == tmp_path / "ssh_key"


def test_credential_out_of_reach(ground: Ground, tmp_path: Path) -> None:
    """Without credentials the daemon refuses; a mere check may take them for granted."""
    assert refusal(ground, key="credential:ssh_key") == (
        "there are no credentials in this process ($CREDENTIALS_DIRECTORY is not set); "
        "add LoadCredential=ssh_key:/etc/outlast/ssh_key to the unit, or give a path"
    )
    file = _file(ground, "PUB", "credential:ssh_key")
    found = load(file, env={}, assume_credentials=True).jobs[0].peer
    assert found is not None
    assert found.key == Path("/run/credentials/outlast.service/ssh_key")
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert "does not exist" in refusal(ground, key="credential:ssh_key", env=env)
    assert refusal(ground, key="credential:../x", env=env) == "'../x' is no name of a credential"
