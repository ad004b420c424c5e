"""One open history file: every write is one durable transaction, and none ever raises into the daemon.

A write that the disk refuses is kept and tried again before the next one, so a full disk costs nothing once
there is room again. Where the file cannot be opened at all, the history goes on in memory and says so.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import structlog

from outlast.daemon.history import schema
from outlast.daemon.history.rows import Degraded, Moment
from outlast.providers.base import Clock

log = structlog.get_logger("outlast.history")

T = TypeVar("T")
Write = Callable[[sqlite3.Connection], object]

# Refused writes kept for another try; each is a few hundred bytes.
KEPT = 10_000
# What SQLite says when the file is the trouble, not the disk.
_UNREADABLE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
# A record that makes no sense to SQLite, whatever the state of the disk.
_NONSENSE = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    TypeError,
    ValueError,
)


class Store:
    """The file, its clock and what could not be written. ``degraded`` is None while all is well."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.degraded: Degraded | None = None
        self.set_aside: str = ""  # one sentence, if the file found was unreadable
        self.missed = 0  # writes given up for good
        self.boot_id = ""
        self._clock = clock
        self._pinned: Moment | None = None
        self._kept: deque[Write] = deque()
        self._in_memory = False
        self._db = self._open()

    def close(self) -> None:
        """Try what is kept once more and close the file. Safe to call twice."""
        if self._kept:
            self._catch_up()
        self._db.close()

    @property
    def waiting(self) -> int:
        """Writes that the disk refused and that will be tried again."""
        return len(self._kept)

    @contextlib.contextmanager
    def at(self, moment: Moment) -> Iterator[None]:
        """Within, what is written happened at ``moment``, however late it is written."""
        self._pinned = moment
        try:
            yield
        finally:
            self._pinned = None

    # ---- for the parts of the history

    def _now(self) -> Moment:
        return self._pinned or Moment(self._clock.wall(), self._clock.monotonic())

    def _write(self, write: Write) -> None:
        self._kept.append(write)
        self._catch_up()

    def _catch_up(self) -> None:
        while self._kept:
            try:
                self._transact(self._kept[0])
            except _NONSENSE as exc:
                # No disk's fault: another try would fail as well and hold up the rest.
                log.error("history_refused", because=str(exc), hint="please report this")
                self.missed += 1
            except (sqlite3.Error, OSError) as exc:
                self._degrade(exc)
                self._bound()
                return
            self._kept.popleft()
        if self.degraded and not self._in_memory:
            log.warning("history_regained", path=str(self.path))
            self.degraded = None

    def _read(self, read: Callable[[sqlite3.Connection], T], default: T) -> T:
        try:
            return read(self._db)
        except (sqlite3.Error, OSError) as exc:
            self._degrade(exc)
            return default

    # ---- inside

    def _transact(self, write: Write) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            write(self._db)
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    def _bound(self) -> None:
        while len(self._kept) > KEPT:
            self._kept.popleft()
            self.missed += 1

    def _degrade(self, exc: Exception) -> None:
        if self._in_memory:
            return
        because = (
            f"the history file {self.path} cannot be written: {exc}. "
            "Free space or restore access; what waits is then written."
        )
        if self.degraded is None or self.degraded.because != because:
            log.error("history_degraded", because=because)
        self.degraded = Degraded(because)

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self._open_or_set_aside()
        except (sqlite3.Error, OSError, schema.NotOursError) as exc:
            self._in_memory = True
            because = f"the history is kept in memory only, because {self.path} cannot be opened: {exc}"
            self.degraded = Degraded(f"{because}. Restore access and restart the daemon.")
            log.error("history_degraded", because=self.degraded.because)
            return schema.connect(None)

    def _open_or_set_aside(self) -> sqlite3.Connection:
        try:
            return schema.connect(self.path)
        except (sqlite3.DatabaseError, schema.NotOursError) as exc:
            if not _is_unreadable(exc):
                raise
            target = schema.set_aside(self.path, self._now().wall)
            self.set_aside = f"{self.path} was no readable history ({exc}); it is kept as {target.name}"
            log.error("history_set_aside", because=self.set_aside)
        return schema.connect(self.path)


def _is_unreadable(exc: Exception) -> bool:
    if isinstance(exc, schema.NotOursError):
        return True
    code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return (code & 0xFF) in _UNREADABLE
