"""A node that has no state file: which epoch it is in, and whether the job is its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import asyncssh
import pytest
from tests.core.conftest import Noted

from outlast.daemon.config import load
from outlast.daemon.core.facts import Role
from outlast.daemon.core.node import build
from outlast.daemon.ship.words import Handover, record
from outlast.providers.base import SystemClock
from outlast.simulations.saved import committed

CONFIG = """\
node: {{name: here, state: {folder}/state, runtime: {folder}/run}}
provider: {{name: none}}
jobs:
  - {{name: gpt, checkpoints: {folder}/ckpt, replicas: {folder}/replicas, peer: {peer}}}
"""
Start = Callable[[], tuple[int, Role, int]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a primary that another node sends replicas to; its epoch, its role, the highest it knows of."""
    for name in ("ckpt", "replicas/gpt"):
        (tmp_path / name).mkdir(parents=True)
    key = asyncssh.generate_private_key("ssh-ed25519")
    (tmp_path / "key").write_bytes(key.export_private_key())
    (tmp_path / "key").chmod(0o600)
    host_key = key.export_public_key().decode().strip()
    peer = f'{{ssh: "u@127.0.0.1:1", host_key: "{host_key}", key: {tmp_path}/key}}'
    (tmp_path / "outlast.yaml").write_text(CONFIG.format(folder=tmp_path, peer=peer))

    def begin() -> tuple[int, Role, int]:
        desks = build(load(tmp_path / "outlast.yaml", env={}), SystemClock(), Noted())
        state = desks["gpt"].job.state
        return state.epoch, state.role, state.highest

    return begin


def test_what_it_saved_itself_is_its_epoch(start: Start, tmp_path: Path) -> None:
    """Older replicas say nothing."""
    committed(tmp_path / "ckpt", 20, epoch=3)
    committed(tmp_path / "replicas/gpt", 10, epoch=2)
    assert start() == (3, Role.PRIMARY, 3)


def test_two_nodes_never_train_in_one_epoch(start: Start, tmp_path: Path) -> None:
    """Replicas of a later epoch come from whoever trains now: the job is not this node's any more."""
    committed(tmp_path / "ckpt", 10, epoch=1)
    committed(tmp_path / "replicas/gpt", 20, epoch=2)
    assert start() == (1, Role.FENCED, 2)


def test_what_was_handed_over_to_it_is_its_own(start: Start, tmp_path: Path) -> None:
    """The state file is lost after a takeover, and nothing was committed since."""
    committed(tmp_path / "replicas/gpt", 20, epoch=2)
    record(tmp_path / "replicas/gpt", Handover(3, "global_step20", 20, 2, 0.0))
    assert start() == (3, Role.PRIMARY, 3)
