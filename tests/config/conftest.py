"""What configurations of these tests stand on: real folders and a real key pair."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from outlast.daemon.config import Settings, load


@dataclass(frozen=True)
class Ground:
    """A folder with `ckpt/`, `key` and `key.pub`, and where configurations are written."""

    folder: Path

    @property
    def checkpoints(self) -> Path:
        return self.folder / "ckpt"

    @property
    def key(self) -> Path:
        return self.folder / "key"

    @property
    def host_key(self) -> str:
        return " ".join((self.folder / "key.pub").read_text().split()[:2])

    def write(self, text: str) -> Path:
        """The text as a file; CKPT, KEY and PUB stand for the real paths."""
        file = self.folder / "outlast.yaml"
        for word, path in (("CKPT", self.checkpoints), ("KEY", self.key), ("PUB", self.folder / "key.pub")):
            text = text.replace(word, str(path))
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        return file


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """One key pair for all tests."""
    folder = tmp_path_factory.mktemp("ground")
    (folder / "ckpt").mkdir()
    make_key(folder / "key")
    return Ground(folder)


@pytest.fixture
def load_text(ground: Ground) -> Callable[[str], Settings]:
    """Load a configuration from its text, in a process without credentials."""
    return lambda text: load(ground.write(text), env={})


def make_key(path: Path, passphrase: str = "", kind: str = "ed25519", fmt: str = "RFC4716") -> None:
    """A real key pair, as a user makes it."""
    bits = ["-b", "2048"] if kind == "rsa" else []
    command = ["ssh-keygen", "-q", "-t", kind, *bits, "-N", passphrase, "-f", str(path), "-C", "test"]
    subprocess.run([*command, *(["-m", fmt] if fmt != "RFC4716" else [])], check=True, capture_output=True)
