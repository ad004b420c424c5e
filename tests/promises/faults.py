"""Random crashes, orders and faults upon a world: rules for hypothesis, real processes on real folders."""

from __future__ import annotations

import contextlib
import hashlib
import random
import select
import shutil
import socket
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.promises.world import BrokenError, Made, Node, World, tree

from outlast.daemon.core.facts import Role
from outlast.daemon.ship.protocol import (
    Chunk,
    Commit,
    Offer,
    Refusal,
    Request,
    encode,
    parse_answer,
    request_body,
)
from outlast.simulations.mishap import NONE, Mishap
from outlast.simulations.zygote import CHUNK, Life, Zygote
from outlast.wire.store import newest_whole, scan

BOUND_S = 20.0
# In which a process either answers or waits for one that is halted.
_SOON_S = 0.3
TRIES = 4

few = st.integers(0, 90)
deaths = st.builds(Mishap, st.sampled_from(["die", "fail", "full"]), few)
mishaps = st.one_of(st.just(NONE), deaths, st.builds(Mishap, st.just("short"), st.integers(1, 200)))
names = st.sampled_from(["a", "b", "twin"])
peers = st.sampled_from(["b", "b", "a"])
bytes_in = st.one_of(st.none(), st.integers(0, 900_000))
nth = st.integers(0, 1_000)


class Line:
    """A session with a receiver at a node, held by hand."""

    def __init__(self, zygote: Zygote, node: Node, mishap: Mishap = NONE) -> None:
        self._socket, theirs = socket.socketpair()
        args = {"root": str(node.replicas.parent), "boot": str(node.boot)}
        self.node = node
        self.life: Life = zygote.bear("receiver", args, mishap, theirs)
        theirs.close()
        self._buffer = b""

    def say(self, request: Request, data: bytes = b"") -> None:
        """Send a request; a receiver that is gone hears nothing, one that is halted goes on to hear it."""
        left = memoryview(encode(request_body(request)) + data)
        with contextlib.suppress(OSError):
            while left:
                if not select.select([], [self._socket], [], _SOON_S)[1]:
                    self.life.go_on()
                left = left[self._socket.send(left, socket.MSG_DONTWAIT) :]

    def hear(self, within_s: float) -> dict[str, Any] | Refusal | str | None:
        """Its answer, ``halted``, ``ended``; None if it did not answer in time."""
        until = time.monotonic() + within_s
        while b"\n" not in self._buffer:
            watched = [self._socket] if self.life.ended else [self._socket, self.life.status]
            ready, _, _ = select.select(watched, [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            if self._socket in ready:
                data = self._receive()
                if not data:
                    return "ended"
                self._buffer += data
            elif self.life.look(0.0) == "halted":
                return "halted"
        line, _, self._buffer = self._buffer.partition(b"\n")
        return parse_answer(line)

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 16)
        except OSError:
            return b""

    def finish(self) -> None:
        """Have it do to the end what it was asked for, whatever it answers."""
        self.life.go_on()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        if not self.life.gone(BOUND_S):
            raise BrokenError("a receiver does not come to an end")

    def close(self) -> None:
        """Kill it, and wait until it is gone."""
        self.life.kill()
        self._socket.close()
        self.life.gone(BOUND_S)
        self.life.close()


class Faults(RuleBasedStateMachine):
    """What may happen, and the judge after each of it."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        super().__init__()
        self.zygote = zygote
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.lines: list[Line] = []
        self.well = True
        self.world = World(self.folder, "any")

    @initialize(require=st.sampled_from(["any", "all"]))
    def require(self, require: str) -> None:
        """Where a newer checkpoint must be before an older one goes."""
        shutil.rmtree(self.folder)
        self.world = World(self.folder, require)

    # ---- ranks and commits

    @rule(name=names, kib=st.sampled_from([1, 70, 200]), frozen=st.booleans(), lacking=nth)
    def save(self, name: str, kib: int, frozen: bool, lacking: int) -> None:
        """The ranks of a node save a step; one time in eight one of them does not get to its end."""
        node = self.world.nodes[name]
        if node.state.role is Role.PRIMARY:
            self.world.save(node, kib, frozen=frozen, lacking=lacking % 8 == 7)

    @rule(name=names, mishap=mishaps)
    def commit(self, name: str, mishap: Mishap) -> None:
        """What was saved is committed, or the process dies over it, or its disk is full."""
        node = self.world.nodes[name]
        if node.saving is None or node.state.role is not Role.PRIMARY:
            return
        epoch, whole = node.state.epoch, self._complete(node)
        args = {"store": str(node.checkpoints), "order": self.world.note(node), "created": time.time()}
        outcome = self._run("commit", args, mishap)
        if outcome is not None and "committed" in outcome:
            if not whole:
                raise BrokenError("a save that lacks a rank was committed")
            if (epoch, node.saving) not in {(c.epoch, c.step) for c in scan(node.checkpoints)}:
                raise BrokenError(f"step {node.saving} is said to be committed and is not there")
            node.saving = None

    def _complete(self, node: Node) -> bool:
        final = node.partial.with_name(node.partial.name.removesuffix(".partial"))
        return len(list(node.partial.glob("*.pt"))) == 5 or final.is_dir()

    @rule(name=names, where=nth, how=nth)
    def damage_saved(self, name: str, where: int, how: int) -> None:
        """A file in the folder that is being saved loses its end, or a bit of it is flipped."""
        node = self.world.nodes[name]
        files = sorted(node.partial.glob("*.pt")) if node.saving is not None else []
        if files:
            _damage(files[where % len(files)], how)

    @rule(name=names, mishap=mishaps, sweep=st.booleans())
    def restart(self, name: str, mishap: Mishap, sweep: bool) -> None:
        """Recovery, which may die of it as well, ends where it would have ended at once; twice is as once."""
        node = self.world.nodes[name]
        self._hang_up()
        for store in (node.checkpoints, node.replicas):
            keep = [f"global_step{node.saving}"] if sweep else None
            args = {"store": str(store), "boot": str(node.boot), "keep": keep}
            copy = node.folder / "copy" / store.name
            shutil.copytree(store, copy, copy_function=shutil.copy2)
            self._run("recover", {**args, "store": str(copy)})
            self._run("recover", args, mishap)
            first = self._run("recover", args)
            once = tree(store)
            again = self._run("recover", args)
            if tree(store) != once or first is None or again is None or "failed" in again:
                raise BrokenError(f"recovering twice is not as once: {first}, {again}")
            if once != tree(copy) and mishap.kind in {"none", "die"}:
                raise BrokenError(
                    f"a recovery that was cut off ends elsewhere: {once.keys() ^ tree(copy).keys()}"
                )
            shutil.rmtree(node.folder / "copy")

    # ---- the daemon's lives

    @rule(name=names, mine=mishaps, theirs=mishaps, cut=bytes_in, flip=bytes_in)
    def ship(self, name: str, mine: Mishap, theirs: Mishap, cut: int | None, flip: int | None) -> None:
        """A daemon's life: it recovers, ships to peer and folder, prunes; it, they and the line may fail."""
        self._live(self.world.nodes[name], "ship", mine, theirs, cut, flip)

    @rule(name=st.sampled_from(["a", "b"]), mine=mishaps, theirs=mishaps)
    def hand_over(self, name: str, mine: Mishap, theirs: Mishap) -> None:
        """The job is given to the peer, which takes it over in its next life."""
        self._live(self.world.nodes[name], "hand_over", mine, theirs)

    @rule(name=st.sampled_from(["a", "b"]), mine=mishaps)
    def take_over(self, name: str, mine: Mishap) -> None:
        """An operator has a standby take over; the old primary may live on and know nothing of it."""
        node = self.world.nodes[name]
        if node.state.role is not Role.PRIMARY and scan(node.replicas):
            self._live(node, "take_over", mine)

    @rule(name=names, kib=st.sampled_from([1, 70, 200]))
    def go_well(self, name: str, kib: int) -> None:
        """A checkpoint on a good day."""
        self.save(name, kib, frozen=True, lacking=0)
        self.commit(name, NONE)
        self.ship(name, NONE, NONE, None, None)

    def _live(
        self,
        node: Node,
        aim: str,
        mine: Mishap = NONE,
        theirs: Mishap = NONE,
        cut: int | None = None,
        flip: int | None = None,
    ) -> dict[str, Any] | None:
        peer = node.peer
        assert peer is not None
        before = node.state
        line = {"root": str(peer.replicas.parent), "boot": str(peer.boot), "mishap": asdict(theirs)}
        args = {"config": str(node.config), "aim": aim, "line": {**line, "cut": cut, "flip": flip}}
        outcome = self._run("daemon", args, mine)
        if node.state.epoch != before.epoch:
            node.saving = None
        if outcome and outcome.get("at_peer"):
            there = {(c.epoch, c.step) for c in scan(peer.replicas)}
            if max(there, default=(0, 0)) < tuple(outcome["at_peer"]):
                raise BrokenError(f"{outcome} is said, and the peer has only {there}")
        return outcome

    # ---- the receiver, by hand

    @precondition(lambda self: len(self.lines) < 3)
    @rule(name=peers, mishap=st.one_of(mishaps, st.builds(Mishap, st.just("halt"), few)))
    def call(self, name: str, mishap: Mishap) -> None:
        """One more session with a receiver, which may come to a halt in the midst of something."""
        self.lines.append(Line(self.zygote, self.world.nodes[name], mishap))

    @precondition(lambda self: self.lines)
    @rule(which=nth, what=nth, where=nth, lie=st.sampled_from(["", "", "told", "hidden"]))
    def send(self, which: int, what: int, where: int, lie: str) -> None:
        """A chunk of anything that was ever saved, in any order, offered or not; perhaps altered."""
        line, made = self._choose(which, what)
        if made is not None:
            files = sorted(made.folder.glob("*.pt"))
            self._ask(line, *_chunk(made, files[where % len(files)], where // len(files), lie))

    @precondition(lambda self: self.lines)
    @rule(which=nth, what=nth)
    def send_all(self, which: int, what: int) -> None:
        """All chunks of one content."""
        line, made = self._choose(which, what)
        if made is not None:
            self._send_all(line, made)

    def _send_all(self, line: Line, made: Made) -> None:
        for file in sorted(made.folder.glob("*.pt")):
            for index in range(-(-file.stat().st_size // CHUNK)):
                if self._ask(line, *_chunk(made, file, index, "")) in ("ended", None):
                    return

    @precondition(lambda self: self.lines)
    @rule(which=nth, what=nth)
    def offer(self, which: int, what: int) -> None:
        """Something that was committed is offered, however old."""
        line, made = self._choose(which, what)
        manifest = self.world.manifest_of(made) if made is not None else None
        if manifest is not None:
            self._ask(line, Offer(manifest))

    @precondition(lambda self: self.lines)
    @rule(which=nth, what=nth)
    def commit_there(self, which: int, what: int) -> None:
        """A commit, whether or not all is there."""
        line, made = self._choose(which, what)
        if made is not None:
            self._ask(line, Commit(made.epoch, made.tag))

    @rule(name=peers, what=nth, halt=st.integers(0, 60), every=st.booleans())
    def collide(self, name: str, what: int, halt: int, every: bool) -> None:
        """In the midst of a commit another sender of the same tag brings other bytes, one chunk or every."""
        node = self.world.nodes[name]
        first = self._one(node, what)
        manifest = self.world.manifest_of(first) if first is not None else None
        if first is None or manifest is None:
            return
        second = next((made for made in self.world.made if self._rivals(made, first)), first)
        sender, late = Line(self.zygote, node), Line(self.zygote, node)
        committer = Line(self.zygote, node, Mishap("halt", halt))
        self.lines += [sender, late, committer]
        self._ask(sender, Offer(manifest))
        self._send_all(sender, first)
        self._ask(committer, Commit(first.epoch, first.tag))
        if every:
            self._send_all(late, second)
        else:
            self._ask(late, *_chunk(second, min(second.folder.glob("*.pt")), 0, ""))
        committer.finish()
        for line in (sender, late, committer):
            self.lines.remove(line)
            line.close()

    def _rivals(self, one: Made, other: Made) -> bool:
        return (one.epoch, one.tag) == (other.epoch, other.tag) and one.content != other.content

    @precondition(lambda self: self.lines)
    @rule(which=nth)
    def hang_up(self, which: int) -> None:
        """A session is killed."""
        self.lines.pop(which % len(self.lines)).close()

    @rule(name=peers, how=nth)
    def power_cut(self, name: str, how: int) -> None:
        """A node starts anew: of what was not fsynced anything may be lost, the notes or the bytes."""
        node, chance = self.world.nodes[name], random.Random(how)
        self._hang_up()
        node.boot.write_text(f"boot {how} {time.monotonic_ns()}\n")
        for path in list(node.stage()):
            noted = ".chunks" in str(path)
            if (noted or path.name.endswith(".outlast-part")) and path.exists() and chance.random() < 0.4:
                _damage(path, chance.randrange(1_000))

    @rule(name=peers, how=nth)
    def lose_notes(self, name: str, how: int) -> None:
        """Notes of chunks that arrived are gone."""
        chance = random.Random(how)
        for path in list(self.world.nodes[name].stage()):
            if ".chunks" in str(path) and chance.random() < 0.4:
                path.unlink()

    # ---- after each

    @invariant()
    def nothing_is_lost_and_nothing_torn_is_shown(self) -> None:
        """The judge's word."""
        self.well = False  # until it has spoken
        self.world.judge()
        self.well = True

    def teardown(self) -> None:
        """Once faults stop, all converges, and within a few lives."""
        try:
            self._hang_up()
            if self.well:
                self._converge()
                self.world.judge()
        finally:
            for line in self.lines:
                line.close()
            shutil.rmtree(self.folder)

    def _converge(self) -> None:
        nodes, told = self.world.nodes.values(), []
        for node in list(nodes) * 2:
            # What was handed over is taken over, and whoever is no primary any more learns so.
            called = node.state.role is Role.PRIMARY or self.world.owed(node)
            told += [self._live(node, "ship")] if called else []
        actors = self.world.actors()
        if not actors:
            raise BrokenError(f"nobody trains the job: {[node.state for node in nodes]}, {told}")
        node = actors[0]
        # A step beyond whatever the twin has sent: the peer goes by epoch and step alone.
        node.saving = max(each.newest()[1] for each in nodes) + 1
        self.world.save(node, 70, frozen=True, lacking=False)
        wanted = (node.state.epoch, node.saving)
        self.commit(node.name, NONE)
        told += [self._live(node, "ship") for _ in range(TRIES) if not self._has_all(node, wanted)]
        if not self._has_all(node, wanted):
            raise BrokenError(f"{node.name} did not get {wanted} to where it belongs: {told}")

    def _has_all(self, node: Node, wanted: tuple[int, int | None]) -> bool:
        own = self.world.content(newest.path) if (newest := newest_whole(node.checkpoints)) else None
        assert node.peer is not None
        assert node.cold is not None
        found = [newest_whole(place) for place in (node.peer.replicas, node.cold)]
        return all(
            item is not None and (item.epoch, item.step) == wanted and self.world.content(item.path) == own
            for item in found
        )

    # ---- plumbing

    def _run(self, program: str, args: dict[str, Any], mishap: Mishap = NONE) -> dict[str, Any] | None:
        """A life to its end and that of all it started; whoever is halted goes on if it waits for them."""
        life, told = self.zygote.bear(program, args, mishap), len(self.zygote.told())
        try:
            if not life.gone(_SOON_S if self.lines else BOUND_S):
                self._wake()
            if not life.gone(BOUND_S) or life.look(BOUND_S) != "ended":
                raise BrokenError(f"{program} does not come to an end")
            self._no_surprise(self.zygote.told()[told:], mishap, args)
            return life.outcome
        finally:
            life.kill()
            life.close()

    def _no_surprise(self, said: str, mine: Mishap, args: dict[str, Any]) -> None:
        """Whoever meets no error of the disk must not run into one that nobody foresaw."""
        kinds = {mine.kind, args.get("line", {}).get("mishap", {}).get("kind", "none")}
        if "Traceback" in said and kinds <= {"none", "die"}:
            raise BrokenError(said)

    def _ask(self, line: Line, request: Request, data: bytes = b"") -> object:
        line.say(request, data)
        answer = line.hear(_SOON_S if self.lines else BOUND_S)
        if answer is None:
            self._wake()
            answer = line.hear(BOUND_S)
            if answer is None:
                raise BrokenError(f"no answer to {request.__class__.__name__}")
        return answer

    def _wake(self) -> None:
        for line in self.lines:
            line.life.go_on()

    def _hang_up(self) -> None:
        while self.lines:
            self.lines.pop().close()

    def _choose(self, which: int, what: int) -> tuple[Line, Made | None]:
        line = self.lines[which % len(self.lines)]
        return line, self._one(line.node, what)

    def _one(self, node: Node, what: int) -> Made | None:
        """Something that a peer of this node saved."""
        senders = {each.name for each in self.world.nodes.values() if each.peer is node}
        fits = [made for made in self.world.made if made.by in senders]
        return fits[what % len(fits)] if fits else None


def _chunk(made: Made, file: Path, index: int, lie: str) -> tuple[Chunk, bytes]:
    index %= max(1, -(-file.stat().st_size // CHUNK))
    data = file.read_bytes()[CHUNK * index : CHUNK * (index + 1)]
    digest = hashlib.sha256(data).hexdigest() if lie != "hidden" else ""
    if lie:
        data = bytes([data[0] ^ 1]) + data[1:]
    return Chunk(made.epoch, made.tag, file.name, index, len(data), digest), data


def _damage(path: Path, how: int) -> None:
    """Flip a bit, or cut the end off. A file that others share by a link gets bytes of its own first."""
    data = bytearray(path.read_bytes())
    if not data:
        return
    at = how * 7919 % len(data)
    if how % 2:
        data[at] ^= 1
    else:
        del data[max(1, at) :]
    path.unlink()
    path.write_bytes(data)
