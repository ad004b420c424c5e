"""The two nodes of a drill: where each keeps its things, its configuration, and what it trains with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import yaml

JOB = "drill"
PRIMARY = "us-east-1"
STANDBY = "us-west-2"


@dataclass(frozen=True)
class Node:
    """One node's folder. Paths stay short: two of them are Unix sockets."""

    name: str
    root: Path

    @property
    def state(self) -> Path:
        """What the daemon keeps, its history among it."""
        return self.root / "state"

    @property
    def history(self) -> Path:
        """The daemon's SQLite file."""
        return self.state / "history.sqlite3"

    @property
    def socket(self) -> Path:
        """Where the ranks find the daemon."""
        return self.root / "run" / "trainer.sock"

    @property
    def control(self) -> Path:
        """Where the command line finds the daemon."""
        return self.root / "run" / "control.sock"

    @property
    def checkpoints(self) -> Path:
        """The trainer's checkpoint folder."""
        return self.root / "checkpoints"

    @property
    def replicas(self) -> Path:
        """Where the receiver puts what the other node sends."""
        return self.root / "replicas"

    @property
    def losses(self) -> Path:
        """What the trainer notes down of each step."""
        return self.root / "losses.jsonl"

    @property
    def config(self) -> Path:
        """The daemon's configuration."""
        return self.root / "outlast.yaml"

    @property
    def stores(self) -> tuple[Path, ...]:
        """Every folder that may hold epochs of the job."""
        return (self.checkpoints, self.replicas / JOB)

    def make(self) -> None:
        """Make the folders. Blocking."""
        for folder in (self.state, self.socket.parent, self.checkpoints, self.replicas):
            folder.mkdir(parents=True, exist_ok=True)

    def write(self, settings: Mapping[str, Any]) -> None:
        """Write the configuration. Blocking."""
        self.config.write_text(yaml.safe_dump(dict(settings), sort_keys=False))


class Trainer(Protocol):
    """What is trained."""

    @property
    def env(self) -> Mapping[str, str]:
        """Variables the trainer needs besides OUTLAST_SOCKET."""
        ...

    def command(self, node: Node) -> tuple[str, ...]:
        """The words that train on ``node``, noting each step down in its losses file."""
        ...

    def undisturbed(self, resumed: int) -> Trainer:
        """The same training as fast as it goes, without a daemon, to where a run ends that resumed there."""
        ...


@dataclass(frozen=True)
class Meeting:
    """Where the launchers of one training on ``nodes`` nodes meet, and which of them this one is."""

    rank: int
    nodes: int
    port: int

    @property
    def words(self) -> tuple[str, ...]:
        """What torchrun is told of it."""
        which = ("--nnodes", str(self.nodes), "--node-rank", str(self.rank))
        return (*which, "--master-addr", "127.0.0.1", "--master-port", str(self.port))


@dataclass(frozen=True)
class GptTrainer:
    """DeepSpeed, ``world`` ranks, ZeRO stage ``zero``, up to ``steps``; a step takes ``pace_s`` at least.

    With a ``meeting`` they are the ranks of one node of several.
    """

    steps: int
    pace_s: float = 0.3
    world: int = 2
    zero: int = 2
    size: str = "small"
    meeting: Meeting | None = None
    env: Mapping[str, str] = field(default_factory=lambda: {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"})

    def command(self, node: Node) -> tuple[str, ...]:
        """torchrun with the training script of this package."""
        meets = self.meeting.words if self.meeting else ("--standalone",)
        launcher = ("-m", "torch.distributed.run", *meets, "--nproc-per-node", str(self.world))
        script = ("-m", "outlast.simulations.training.gpt", "--job", JOB, "--size", self.size)
        lengths = ("--steps", str(self.steps), "--step-seconds", str(self.pace_s), "--zero", str(self.zero))
        places = ("--checkpoints", str(node.checkpoints), "--losses", str(node.losses))
        return (sys.executable, *launcher, *script, *lengths, *places)

    def undisturbed(self, resumed: int) -> GptTrainer:
        """Without a pace, to the same step."""
        del resumed
        return replace(self, pace_s=0.0)


@dataclass(frozen=True)
class ScriptedTrainer:
    """One process of ranks that train nothing, whose steps and saves take exactly as long as said.

    ``ranks``: which of the ``world`` this process is; None: all. Rank 0 notes the steps down. ``more``: a run
    that resumed ends so many steps later, whatever ``steps`` says; ``alone``: without a daemon.
    """

    steps: int
    pace_s: float = 0.05
    save_s: float = 0.0
    shard_bytes: int = 100_000
    world: int = 1
    ranks: tuple[int, ...] | None = None
    more: int | None = None
    alone: bool = False
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self, node: Node) -> tuple[str, ...]:
        """The scripted ranks of this package."""
        ranks = self.ranks or tuple(range(self.world))
        timing = ("--step-s", str(self.pace_s), "--save-s", str(self.save_s), "--size", str(self.shard_bytes))
        log = node.losses if 0 in ranks else node.losses.with_name(f"rank{ranks[0]}.jsonl")
        places = ("--checkpoints", str(node.checkpoints), "--log", str(log))
        words = ("--job", JOB, "--steps", str(self.steps), "--world", str(self.world))
        which = ("--rank", *map(str, ranks))
        ends = () if self.more is None else ("--more", str(self.more))
        how = ("--alone",) if self.alone else ()
        return (
            sys.executable,
            "-m",
            "outlast.simulations.rank",
            *which,
            *words,
            *timing,
            *places,
            *ends,
            *how,
        )

    def undisturbed(self, resumed: int) -> ScriptedTrainer:
        """Without a pace and a daemon, to the step at which the resumed run ends."""
        steps = self.steps if self.more is None else resumed + self.more
        return replace(self, pace_s=0.0, steps=steps, more=None, alone=True)

    def apart(self) -> tuple[ScriptedTrainer, ...]:
        """The same ranks, each a process of its own."""
        return tuple(replace(self, ranks=(rank,)) for rank in range(self.world))


def primary_settings(
    node: Node, provider: Mapping[str, Any], peer: Mapping[str, Any] | None, every: str | None
) -> dict[str, Any]:
    """The configuration of the node that trains and is to be taken away."""
    job: dict[str, Any] = {"name": JOB, "checkpoints": str(node.checkpoints)}
    if peer is not None:
        job["peer"] = dict(peer)
    if every is not None:
        job["every"] = every
    return {**_node(node), "provider": dict(provider), "jobs": [job]}


def standby_settings(node: Node, trainer: Trainer, when: str) -> dict[str, Any]:
    """The configuration of the node that receives, and takes over."""
    start = {"command": list(trainer.command(node)), "env": dict(trainer.env), "when": when}
    job = {
        "name": JOB,
        "role": "standby",
        "checkpoints": str(node.checkpoints),
        "replicas": str(node.replicas),
        "start": start,
        "takeover_after": "1s",
    }
    return {**_node(node), "provider": {"name": "none"}, "jobs": [job]}


def _node(node: Node) -> dict[str, Any]:
    return {
        "node": {"name": node.name, "state": str(node.state), "runtime": str(node.socket.parent)},
        "log": {"level": "info", "format": "json"},
    }
