"""A small world of nodes on real folders, and what was ever saved in it: the judge of what may be seen."""

from __future__ import annotations

import base64
import hashlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import asyncssh

from outlast.daemon.core.facts import Role
from outlast.daemon.core.state import JobState, load
from outlast.daemon.ship.landing import RefusedError
from outlast.daemon.ship.words import read_handover
from outlast.simulations.saved import order, save_tag
from outlast.wire.manifest import MANIFEST_NAME, PART_SUFFIX, Manifest
from outlast.wire.store import Committed, epoch_folder, scan, verify, walk

Order = tuple[int, int]
Content = frozenset[tuple[str, str]]

CONFIG = """\
node: {{name: {name}, state: {folder}/state, runtime: {folder}/run}}
provider: {{name: none}}
jobs:
  - name: gpt
    role: {role}
    checkpoints: {folder}/ckpt
    replicas: {folder}/replicas
    every: 1h
    require: {require}
    peer: {{ssh: "outlast@127.0.0.1:1", host_key: "{host_key}", key: {key}, bulk: channels}}
    start: {{command: ["/bin/true"], when: takeover}}
"""
COLD = "    stores: [{{url: {cold}}}]\n"
FROZEN = "mp_rank_00_model_states.pt"


class BrokenError(AssertionError):
    """A promise did not hold."""


@dataclass(frozen=True)
class Made:
    """One content that the ranks once saved under a tag; ``folder`` keeps its bytes."""

    epoch: int
    tag: str
    step: int
    content: Content
    folder: Path
    by: str


@dataclass
class Node:
    """A machine: its configuration, its folders, and what its ranks have saved and not seen committed."""

    name: str
    folder: Path
    config: Path
    require: str
    cold: Path | None
    peer: Node | None = None
    saving: int | None = None

    @property
    def checkpoints(self) -> Path:
        """What its own ranks saved."""
        return self.folder / "ckpt"

    @property
    def replicas(self) -> Path:
        """What others sent."""
        return self.folder / "replicas" / "gpt"

    @property
    def boot(self) -> Path:
        """What tells one start of the machine from another."""
        return self.folder / "boot_id"

    @property
    def state(self) -> JobState:
        """What its daemon remembers."""
        role = Role.STANDBY if self.name == "b" else Role.PRIMARY
        return load(self.folder / "state/jobs/gpt.json") or JobState(int(role is Role.PRIMARY), role)

    @property
    def partial(self) -> Path:
        """Where its ranks save."""
        return epoch_folder(self.checkpoints, self.state.epoch) / f"global_step{self.saving}.partial"

    def newest(self) -> Order:
        """Of all that it has, of whatever epoch."""
        found = [(c.epoch, c.step) for store in (self.checkpoints, self.replicas) for c in scan(store)]
        return max(found, default=(0, 0))

    def stage(self) -> Iterator[Path]:
        """The files in its staging folders, notes included."""
        for staging in self.replicas.glob("epoch-*/.staging"):
            yield from (staging / name for name, _ in list(walk(staging)))


@dataclass
class World:
    """Two nodes that are each other's peer, a twin of the first one, a folder beside them, and the judge."""

    folder: Path
    require: str
    made: list[Made] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    seen: dict[Path, dict[Order, Content]] = field(default_factory=dict)
    _digests: dict[tuple[int, int, int, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "cold").mkdir(parents=True)
        for name in ("a", "b", "twin"):
            self.nodes[name] = self._node(name)
        a, b, twin = self.nodes.values()
        a.peer, b.peer, twin.peer = b, a, b

    @cached_property
    def keys(self) -> tuple[Path, str]:
        """A private key's file, and a host key: nobody asks for them, the configuration must have them."""
        file, key = self.folder / "key", asyncssh.generate_private_key("ssh-ed25519")
        file.write_bytes(key.export_private_key())
        file.chmod(0o600)
        words = b"\0\0\0\x0bssh-ed25519\0\0\0 " + bytes(range(32))
        return file, f"ssh-ed25519 {base64.b64encode(words).decode()}"

    def _node(self, name: str) -> Node:
        folder, cold = self.folder / name, None if name == "twin" else self.folder / "cold"
        for part in ("ckpt", "replicas/gpt", "state", "run"):
            (folder / part).mkdir(parents=True)
        (folder / "boot_id").write_text("first\n")
        key, host_key = self.keys
        text = CONFIG + (COLD if cold else "")
        role = "standby" if name == "b" else "primary"
        config = folder / "outlast.yaml"
        config.write_text(
            text.format(
                name=name,
                folder=folder,
                role=role,
                require=self.require,
                host_key=host_key,
                key=key,
                cold=cold,
            )
        )
        return Node(name, folder, config, self.require, cold and cold / "gpt")

    # ---- what the ranks do

    def save(self, node: Node, kib: int, *, frozen: bool, lacking: bool) -> None:
        """All ranks save; ``frozen`` weights are the same each time, a ``lacking`` save lacks a rank's."""
        if node.saving is None:
            node.saving = node.newest()[1] + 1
        shutil.rmtree(node.partial, ignore_errors=True)
        save_tag(node.partial, seed=random.randrange(1 << 30), shard_bytes=kib * 1024)
        if frozen:
            shutil.copyfile(self._frozen / FROZEN, node.partial / FROZEN)
        if lacking:
            next(node.partial.glob("*optim_states.pt")).unlink()

    @cached_property
    def _frozen(self) -> Path:
        return save_tag(self.folder / "frozen", seed=0, shard_bytes=150 * 1024)

    def note(self, node: Node) -> dict[str, object]:
        """Remember what is about to be committed, byte by byte; and the order to do so."""
        assert node.saving is not None
        wanted = order(node.saving, epoch=node.state.epoch)
        if node.partial.is_dir():
            content = self.content(node.partial)
            kept = self.folder / "kept" / str(len(self.made))
            shutil.copytree(node.partial, kept)
            self.made.append(Made(wanted.epoch, wanted.tag, wanted.step, content, kept, node.name))
        return asdict(wanted)

    def manifest_of(self, made: Made) -> Manifest | None:
        """The manifest under which it was committed, where that can still be read."""
        return next((c.manifest for c in self._all() if self._is(c, made)), None)

    def _is(self, item: Committed, made: Made) -> bool:
        return (item.epoch, item.tag) == (made.epoch, made.tag) and self.content(item.path) == made.content

    def _all(self) -> list[Committed]:
        return [item for node in self.nodes.values() for item in scan(node.checkpoints)]

    # ---- the judge

    def content(self, folder: Path) -> Content:
        """Every file of a checkpoint with the digest of its bytes; nothing of the product's is believed."""
        names = [(name, info) for name, info in walk(folder) if name != MANIFEST_NAME]
        return frozenset(
            (name, self._digest(folder / name)) for name, _ in names if not name.endswith(PART_SUFFIX)
        )

    def _digest(self, path: Path) -> str:
        info = path.stat()
        key = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        if key not in self._digests:
            self._digests[key] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._digests[key]

    def judge(self) -> None:
        """Whatever is seen as a checkpoint is one that was saved, whole; nothing went that had to stay."""
        self._judge_epochs()
        for store in self._stores():
            now = self._visible(store)
            for gone in self.seen.get(store, {}).keys() - now.keys():
                self._judge_gone(store, gone, now)
            self.seen[store] = now

    def _judge_epochs(self) -> None:
        trained = [{made.epoch for made in self.made if made.by == name} for name in ("a", "b")]
        if both := set.intersection(*trained):
            raise BrokenError(f"both nodes have committed in epoch {both}")

    def _stores(self) -> list[Path]:
        own = [store for node in self.nodes.values() for store in (node.checkpoints, node.replicas)]
        return [*own, self.folder / "cold" / "gpt"]

    def _visible(self, store: Path) -> dict[Order, Content]:
        found: dict[Order, Content] = {}
        for item in scan(store):
            content = self.content(item.path)
            if not any(self._is(item, made) for made in self.made):
                raise BrokenError(f"{item.path} was never saved like that: {verify(item.path)}")
            if problems := verify(item.path):
                raise BrokenError(f"{item.path} is not whole: {problems}")
            found[(item.epoch, item.step)] = content
        return found

    def _judge_gone(self, store: Path, gone: Order, now: dict[Order, Content]) -> None:
        if sum(order > gone for order in now) < 2:
            if self._set_aside(store, gone):
                return
            raise BrokenError(f"{gone} went from {store}, which has only {sorted(now)}")
        node = next((node for node in self.nodes.values() if node.checkpoints == store), None)
        if node is not None:
            there = [place for place in self._destinations(node) if max(place, default=(0, 0)) > gone]
            needed = 1 if node.require == "any" or node.cold is None else len(self._destinations(node))
            if len(there) < needed:
                raise BrokenError(f"{gone} went from {store}, and nothing newer is where it counts")

    def _destinations(self, node: Node) -> list[set[Order]]:
        places = [node.peer.replicas] if node.peer else []
        places += [node.cold] if node.cold else []
        return [{(item.epoch, item.step) for item in scan(place)} for place in places]

    def _set_aside(self, store: Path, gone: Order) -> bool:
        """Of two senders of one tag the later one wins here; what the other had sent is kept beside it."""
        wanted = self.seen[store][gone]
        folders = epoch_folder(store, gone[0]).glob(f"global_step{gone[1]}.damaged-*")
        return any(self.content(folder) == wanted for folder in folders)

    def actors(self) -> list[Node]:
        """The nodes that train the job as far as they know, the one of the highest epoch first."""
        found = [node for node in self.nodes.values() if node.state.role is Role.PRIMARY and node.cold]
        return sorted(found, key=lambda node: -node.state.epoch)

    def owed(self, node: Node) -> bool:
        """Whether a takeover by this standby was begun and is not done."""
        try:
            said = read_handover(node.replicas)
        except RefusedError:
            return False
        return said is not None and said.epoch > node.state.epoch


def tree(folder: Path) -> dict[str, str]:
    """Everything below a folder but the locks: names, and digests of the bytes."""
    found = {name: folder / name for name, _ in walk(folder) if not name.endswith(".lock")}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in found.items()}
