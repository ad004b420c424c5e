"""What one job's node knows: ranks, the flush in progress, wishes, what is committed. Facts come from here.

Inputs are plain method calls from the loop's thread; each sets ``changed``, and the keeper plans anew.
Nothing here waits, and nothing here acts.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from outlast.daemon.core.deadline import Verdict
from outlast.daemon.core.facts import Cause, Facts, PeerFact, Place, Role
from outlast.daemon.core.flushes import Every, Flushes
from outlast.daemon.core.notices import Live
from outlast.daemon.core.pace import interval
from outlast.daemon.core.quiet import Quiet
from outlast.daemon.core.record import Record
from outlast.daemon.core.restores import Restores
from outlast.daemon.core.state import JobState
from outlast.daemon.core.trainers import Connection
from outlast.providers.base import Clock, Hint
from outlast.wire.manifest import Part
from outlast.wire.messages import Ask, At, Done, Failed, FromHook, Progress, Saved, StandDown


class Job(Flushes):
    """One job on this node. ``state`` is what outlives the daemon; the rest is re-derived."""

    def __init__(
        self,
        name: str,
        checkpoints: Path | None,
        every: Every,
        state: JobState,
        clock: Clock,
        record: Record,
        part: Part | None = None,
    ) -> None:
        super().__init__(name, every, clock, part)
        self.checkpoints = checkpoints
        self._folders = _spellings(checkpoints)
        self.state = state
        self.alarm = asyncio.Event()
        # Called, in the event loop, when the notice or the role has changed.
        self.news: list[Callable[[], None]] = []
        self.hint: Hint | None = None
        self.can_stand_by = False
        self.joining: list[Connection] = []
        self.notice_since: float | None = None
        self.resumed_at: int | None = None
        self.done_step: int | None = None
        self.ship_bytes_s: float | None = None
        # What the last whole transfer sent, and how much of it while the checkpoint was still being saved.
        self.flush_bytes: int | None = None
        self.early_bytes = 0
        self.hazard_per_hour: float | None = None
        self.verdict: Verdict | None = None
        self.last_decision = ""
        self._record = record
        self._incomplete_since: float | None = None
        self._saw_first_step = False
        self._quiet = Quiet()
        self._restores = Restores(name, clock, record)

    # ---- ranks

    def joined(self, connection: Connection) -> str | None:
        """A rank says hello. Returns why it is refused, or None; the keeper answers it."""
        refusal = self._wrong_folder(connection) or self.ranks.refusal(connection)
        if refusal is not None:
            return refusal
        if not len(self.ranks):
            self._restores.returned()
        self.ranks.add(connection)
        self.joining.append(connection)
        layout = connection.hello.layout
        self._note_complete()
        if self._whole():
            self._since = self._clock.monotonic()
            self._record.event("trainer_connected", self.name, world=layout.world, step=self.ranks.step)
        self.changed.set()
        return None

    def _wrong_folder(self, connection: Connection) -> str | None:
        if self.checkpoints is None:
            return f"job {self.name} has no checkpoints folder on this node; set jobs.checkpoints"
        said = connection.hello.checkpoints
        if os.path.normpath(said) in self._folders:
            return None
        return f"the trainer saves to {said}, the configuration says {self.checkpoints}: make them agree"

    def said(self, connection: Connection, message: FromHook) -> None:
        """A rank's word, after its hello."""
        match message:
            case Progress():
                self.ranks.progress(connection, message)
                self._note_first_step(message.step)
                if message.pause_s is not None:
                    self._quiet.ask(connection, message.pause_s, self._clock.monotonic())
                return  # steps alone change no decision
            case At():
                if self.nodes > 1:
                    self._called(message)
                else:
                    self._orphan_at(connection, message)
                self.ranks.at(connection, message)
            case Saved():
                self.ranks.saved(connection, message)
                self._adopt()
            case Failed():
                self.ranks.failed(connection, message)
                self.commits.tell()
            case Ask():
                self._signalled(connection, message.reason)
            case Done():
                self.done_step = message.step
                self._record.event("trainer_done", self.name, step=message.step)
            case _:
                return
        self.changed.set()

    def left(self, connection: Connection) -> None:
        """A rank's connection ended."""
        self._quiet.forget(connection, self._clock.monotonic())
        if connection in self.joining:
            self.joining.remove(connection)
        if self.ranks.remove(connection):
            if not len(self.ranks):
                self._restores.gone()
            self._note_complete()
            self._forget_wishes()
            self.changed.set()

    def _note_complete(self) -> None:
        if self._whole() or not len(self.ranks):
            self._incomplete_since = None
        elif self._incomplete_since is None:
            self._incomplete_since = self._clock.monotonic()

    def bulk_paused_s(self) -> float:
        """For so long the ranks want nothing sent; under a notice that is not heeded."""
        return 0.0 if self.notice is not None else self._quiet.left(self._clock.monotonic())

    def bulk_was_paused(self, seconds: float) -> bool:
        """In the last so many seconds: what a transfer took then says nothing of the way."""
        return self._quiet.since(self._clock.monotonic() - seconds)

    @property
    def has_stepped(self) -> bool:
        """A step was trained since the ranks were told where to resume."""
        return self._saw_first_step

    def expect_first_step(self, resumed_at: int, tag: str = "", place: str = "") -> None:
        """The ranks were told to resume here; the next step beyond it is news."""
        self.resumed_at, self._saw_first_step = resumed_at, False
        self._restores.resuming(self.state.epoch, tag, place)

    def _signalled(self, connection: Connection, reason: str) -> None:
        """A rank was told to end. If it is held, its work is safe already: let it go."""
        held = self.held_for
        if held is not None and self.newest is not None and self.newest.flush_id == held:
            self.ranks.send(StandDown(f"committed; {reason}", "train", held, committed=True))
            return
        self._want(f"signal-{connection.pid}-{secrets.token_hex(3)}", Cause.SIGNAL, reason)

    def _note_first_step(self, step: int) -> None:
        if self._saw_first_step or self.resumed_at is None or step <= self.resumed_at:
            return
        self._saw_first_step = True
        self._restores.stepped(step)
        self._record.event("first_step", self.name, step=step, epoch=self.state.epoch)

    def _orphan_at(self, connection: Connection, said: At) -> None:
        """A flush asked for by an earlier life of this daemon: let the rank train on."""
        if self.flush is None and self.notice is None:
            connection.send(StandDown("the daemon was restarted; the flush is off", "train", said.id))

    # ---- the provider's words

    def hinted(self, hint: Hint) -> None:
        """An early word of the provider: one checkpoint, training goes on."""
        self.hint = hint
        self.alarm.set()
        if len(self.ranks):
            self._want(hint.id, Cause.HINT, f"hint: {hint.kind}")

    def noticed(self, live: Live | None) -> None:
        """The most urgent notice is now this one, or none."""
        if live != self.notice:
            if live is None or self.notice is None or live.episode != self.notice.episode:
                self.notice_since = self._clock.monotonic() if live else None
                self.verdict = None
            self.notice = live
            self.alarm.set()
            self.changed.set()
            self._spread()

    def facts(
        self, peer: PeerFact | None, in_flight: dict[str, Place | None], unsent: int | None = None
    ) -> Facts:
        """Everything the plan looks at, now. ``in_flight``: long actions under way, by name.

        ``unsent``: the bytes that the transfer among them still has to send.
        """
        if self.state.role is Role.PRIMARY:
            self._repace()
            self._wish_on_interval()
        return Facts(
            now=self._clock.monotonic(),
            epoch=self.state.epoch,
            role=self.state.role,
            world=self.ranks.world,
            ranks=self.ranks.facts(self.flush.id if self.flush else None),
            notice=self.notice.fact if self.notice else None,
            wishes=tuple(self._wishes),
            flush=self.flush,
            committing="commit" in in_flight,
            commit_failed=self.commit_failed,
            newest=self.newest,
            peer=peer,
            shipping=in_flight.get("ship"),
            handing_over="hand_over" in in_flight,
            given_up=frozenset(self.given_up),
            incomplete_since=self._incomplete_since,
            held=self.held_for is not None,
            can_stand_by=self.can_stand_by,
            flush_s=self.flush_s,
            ship_bytes_s=self.ship_bytes_s,
            flush_bytes=self.flush_bytes,
            early_bytes=self.early_bytes,
            unsent=unsent,
            nodes=self.nodes,
        )

    def _repace(self) -> None:
        """The interval follows what was measured last: the stall, the transfer, the pool."""
        if not self.auto:
            return
        size = self.flush_bytes if self.flush_bytes is not None else self.newest.size if self.newest else 0
        ship_s = size / self.ship_bytes_s if self.ship_bytes_s else None
        # A flush of an earlier life is known with its commit only: that stalls no less.
        stall_s = self.stall_s if self.stall_s is not None else self.flush_s
        self.set_every(interval(stall_s, self.hazard_per_hour, ship_s))

    def became(self, state: JobState) -> None:
        """Another role or epoch; the caller has made it durable."""
        if state.role is Role.PRIMARY and self.state.role is not Role.PRIMARY:
            self._restores.taken_over()
        self.state = state
        self.changed.set()
        self._spread()

    def _spread(self) -> None:
        for tell in self.news:
            tell()


def _spellings(folder: Path | None) -> frozenset[str]:
    """The path as configured and with links resolved: a trainer may say either."""
    if folder is None:
        return frozenset()
    return frozenset({os.path.normpath(folder), str(folder.resolve())})
