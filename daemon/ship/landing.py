"""What a receiver does to its store: fence, offers, arriving files, commit, warning, handover.

Several sessions of one transfer work side by side, and a session of a connection that died unnoticed may
still be there: each file arrives under a part name of its own, and only a digest that matches gives it its
name. Everything can be repeated after kill -9.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from outlast.daemon.checkpoint import parts
from outlast.daemon.checkpoint.locks import hold_folder, try_lock
from outlast.daemon.checkpoint.place import (
    STAGING,
    Step,
    discard,
    drop_strangers,
    fsync,
    fsync_folders,
    no_step,
    put_in_place,
    side_by_side,
    write_atomically,
)
from outlast.daemon.checkpoint.recovery import COMMIT_LOCK, overtaken
from outlast.daemon.checkpoint.retention import prune_replicas
from outlast.daemon.history.layout import FOLDER
from outlast.daemon.ship import sheet, space, words
from outlast.daemon.ship.arrival import Arrivals, SenderGoneError, Source, receive, sheets_of
from outlast.daemon.ship.offers import Offers, offered, reuse
from outlast.daemon.ship.protocol import (
    BAD_REQUEST,
    DAMAGED,
    FENCED,
    IO,
    KEEP,
    MOST_DIGESTS,
    NO_SPACE,
    WRONG_JOB,
    Chunk,
    Commit,
    Digests,
    HandOver,
    Offer,
    Request,
    State,
    Stats,
    Warn,
)
from outlast.daemon.ship.segment import RESERVE_BYTES, keep
from outlast.daemon.ship.space import free_bytes, free_files
from outlast.daemon.ship.words import RefusedError
from outlast.providers.base import Clock
from outlast.wire.digests import CHUNK, chunks_in
from outlast.wire.manifest import MANIFEST_NAME, FileEntry, Manifest, tag_of
from outlast.wire.store import Committed, check_file, committed_at, epoch_folder, newest_whole, scan

COMMIT_WAIT_S = 30.0
# How often fence and room are looked at while chunks arrive, and what may arrive in between.
_LOOK_S = 0.2
_LOOK_BYTES = 16 * CHUNK

T = TypeVar("T")


class Landing:
    """The receiving end of one job, ``store`` being its folder of replicas. Blocking; one per session."""

    def __init__(
        self,
        store: Path,
        job: str,
        clock: Clock,
        *,
        free: Callable[[Path], int] = free_bytes,
        files: Callable[[Path], int | None] = free_files,
        step: Step = no_step,
    ) -> None:
        self._store = store
        self._job = job
        self._clock = clock
        self._free = free
        self._files = files
        self._step = step
        self._offers = Offers()
        self._held = ExitStack()
        self._holding: Path | None = None
        self._look_at = 0.0
        # One for all chunks: new memory for each costs more than the bytes do.
        self._room = memoryview(mmap.mmap(-1, CHUNK))

    @property
    def store(self) -> Path:
        """The job's folder of replicas."""
        return self._store

    def answer(self, request: Request, source: Source) -> dict[str, Any]:
        """Carry out one request and return the ``ok`` answer. Raises RefusedError and SenderGoneError."""
        try:
            return self._answer(request, source)
        except OSError as exc:
            if exc.errno in space.FULL:
                raise space.ended(exc, *self._room_left()) from exc
            raise RefusedError(IO, f"{exc.strerror}: {exc.filename or self._store}") from exc

    def close(self) -> None:
        """Let go of this session's locks."""
        self._holding = None
        self._held.close()

    def tidy(self, keep: int = KEEP, done: tuple[int, str] | None = None) -> None:
        """Delete what newer replicas made needless: all but the newest ``keep``, and dead transfers.

        ``done`` is the epoch and tag that was just committed: nothing newer than that goes, nor what was
        handed over here and may be resumed from.
        """
        found = scan(self._store)
        sure = [(c.epoch, c.step) for c in found if done is None or (c.epoch, c.tag) == done]
        said = words.read_handover(self._store)
        # Once a later epoch ships to here, the job that was handed over has moved on.
        counted = said is not None and sure and max(sure)[0] <= said.epoch
        held = {(said.from_epoch, said.tag)} if said is not None and counted else set()
        if sure:
            prune_replicas(self._store, keep, max(sure), held)
        overtaken(self._store)

    def staging(self, epoch: int, tag: str) -> Path:
        """Where the files of an offered checkpoint arrive. Raises RefusedError unless it was offered."""
        self.check_fence(epoch)
        folder = self._staging(epoch, tag)
        self._offers.files(folder)
        self._hold(folder)
        return folder

    def check_fence(self, epoch: int) -> None:
        """Raises RefusedError for an epoch that the job has left behind."""
        fence = words.fence(self._store)
        if epoch < fence:
            raise RefusedError(FENCED, f"epoch {epoch} is over: the job is at epoch {fence} here")

    def _answer(self, request: Request, source: Source) -> dict[str, Any]:
        if isinstance(request, State):
            return self._state()
        if isinstance(request, Offer):
            return self._offer_of(request.manifest)
        if isinstance(request, Chunk):
            return self._chunk(request, source)
        if isinstance(request, Digests):
            return self._digests(request)
        if isinstance(request, Commit):
            return self._alone(lambda: self._commit_unwritten(request.epoch, request.tag))
        if isinstance(request, Warn):
            return self._warn(request)
        if isinstance(request, Stats):
            return keep(self._store / FOLDER, request, source, self._free, self._step)
        return self._alone(lambda: self._hand_over(request))

    def _state(self) -> dict[str, Any]:
        newest = newest_whole(self._store, digests=False)
        place = {"epoch": newest.epoch, "tag": newest.tag, "step": newest.step} if newest else None
        body = {"ok": True, "fence": words.fence(self._store), "newest": place}
        unfinished = parts.open_parts(self._store, (newest.epoch, newest.step) if newest else None)
        return {**body, "parts": [asdict(item) for item in unfinished]} if unfinished else body

    def _offer_of(self, manifest: Manifest) -> dict[str, Any]:
        if manifest.part is None:
            return self._offer(manifest)
        # Alone: while parts are put together, none of them changes.
        return self._alone(lambda: self._offer_part(manifest))

    def _offer_part(self, manifest: Manifest) -> dict[str, Any]:
        parts.go_on(epoch_folder(self._store, manifest.epoch), manifest.tag, self._step)
        return self._offer(manifest)

    def _offer(self, manifest: Manifest) -> dict[str, Any]:
        if manifest.job != self._job:
            raise RefusedError(WRONG_JOB, f"this key sends job {self._job}, not {manifest.job}")
        self.check_fence(manifest.epoch)
        if self._committed(manifest):
            return {"ok": True, "want": []}
        staging = self._staging(manifest.epoch, manifest.staged)
        self._sweep_for(manifest)
        staging.mkdir(parents=True, exist_ok=True)
        self._hold(staging)
        with self._writing(staging):
            self._offers.note(staging, manifest)
            arrivals = Arrivals(staging, self._step)
            for path in reuse(self._store, staging, manifest):
                arrivals.drop(path)  # what came of it too early is of no use
            looked = side_by_side(lambda entry: self._lacking(arrivals, entry), manifest.files)
        want = [item for item in looked if item]
        self._check_room(staging, manifest, want)
        return {"ok": True, "want": want}

    def _lacking(self, arrivals: Arrivals, entry: FileEntry) -> dict[str, Any] | None:
        """What is wanted of one file, or None when all of it is here under its name."""
        if self._here(arrivals, entry) or arrivals.finish(entry):
            return None
        return {
            "path": entry.path,
            "missing": sheet.missing(arrivals.digests(entry.path), chunks_in(entry.size)),
        }

    def _here(self, arrivals: Arrivals, entry: FileEntry) -> bool:
        """Whether a file of that name is what is offered; one that came by rsync is read in the commit."""
        if check_file(arrivals.staging, entry, digests=False):
            arrivals.reopen(entry.path)
            return False
        if arrivals.arrived(entry) or not arrivals.digests(entry.path):
            return True
        arrivals.reopen(entry.path)
        return False

    def _sweep_for(self, manifest: Manifest) -> None:
        """Where little room is left, transfers older than the offered one go: their sender has moved on."""
        free, files = self._room_left()
        tight = manifest.total_bytes + RESERVE_BYTES > free
        if tight or (files is not None and files < space.files_for(e.path for e in manifest.files)):
            moved_on = (manifest.epoch, manifest.step) if manifest.part is None else None
            overtaken(self._store, moved_on)

    def _room_left(self) -> tuple[int, int | None]:
        there = next(path for path in (self._store, *self._store.parents) if path.is_dir())
        return self._free(there), self._files(there)

    def _check_room(self, staging: Path, manifest: Manifest, want: list[dict[str, Any]]) -> None:
        runs = sum(many for item in want for _, many in item["missing"])
        files = space.files_for(item["path"] for item in want)
        need = space.Need(manifest.tag, min(runs * CHUNK, manifest.total_bytes), files)
        space.check(need, self._free(staging), self._files(staging))

    def _chunk(self, chunk: Chunk, source: Source) -> dict[str, Any]:
        """Take one chunk; all its bytes are read first, so that a refusal does not end the session."""
        data = receive(source, self._room[: chunk.size])
        staging = self._staging(chunk.epoch, chunk.tag)
        if staging != self._holding or self._clock.monotonic() >= self._look_at:
            self._open_for(chunk, staging)
        arrivals = Arrivals(staging, self._step)
        staging.mkdir(parents=True, exist_ok=True)
        with self._writing(staging):
            try:
                arrivals.take(chunk, data)
            except OSError:
                arrivals.drop(chunk.path)  # a full disk is not helped by keeping half a file
                raise
        return {"ok": True}

    def _open_for(self, chunk: Chunk, staging: Path) -> None:
        """Fence, folder, lock and room for a checkpoint that arrives; looked at again after a while.

        A fence that rises meanwhile is seen by the offer and the commit, which look each time.
        """
        self.check_fence(chunk.epoch)
        staging.mkdir(parents=True, exist_ok=True)
        self._hold(staging)
        if (free := self._free(staging)) < _LOOK_BYTES + RESERVE_BYTES:
            raise RefusedError(NO_SPACE, f"no space: {chunk.tag} is arriving, {free} bytes are free there")
        self._look_at = self._clock.monotonic() + _LOOK_S

    def _digests(self, request: Digests) -> dict[str, Any]:
        self.check_fence(request.epoch)
        found = Arrivals(self._staging(request.epoch, request.tag), self._step).digests(request.path)
        some = found[request.first : request.first + MOST_DIGESTS]
        return {"ok": True, "digests": [digest.hex() for digest in some]}

    @contextmanager
    def _writing(self, staging: Path) -> Iterator[None]:
        """Whatever changes in a staging folder does so here, and never while it is committed."""
        with hold_folder(staging, shared=True, wait_s=COMMIT_WAIT_S) as held:
            if not held:
                raise RefusedError(DAMAGED, f"{staging.name} is being committed here: offer it again")
            yield

    def _commit_unwritten(self, epoch: int, tag: str) -> dict[str, Any]:
        """A session that nobody counts on any more may still be bringing other bytes of the same tag."""
        staging = self._staging(epoch, tag)
        with hold_folder(staging, wait_s=COMMIT_WAIT_S) as alone:
            if not alone and staging.is_dir():
                raise RefusedError(IO, f"another session is still writing to {tag} here")
            return self._commit(epoch, tag)

    def _commit(self, epoch: int, tag: str) -> dict[str, Any]:
        self.check_fence(epoch)
        staging = self._staging(epoch, tag)
        manifest = offered(staging)
        if manifest is None:
            done = committed_at(epoch_folder(self._store, epoch) / tag_of(tag), epoch)
            if done is None:
                raise RefusedError(BAD_REQUEST, f"{tag} was not offered in epoch {epoch}")
            return {"ok": True, "bytes": done.manifest.total_bytes}
        if manifest.part is not None:
            return self._commit_part(staging, manifest)
        if not self._committed(manifest):
            self._make_whole(staging, manifest)
            put_in_place(staging, epoch_folder(self._store, epoch) / tag, self._step)
        self._forget(staging)
        return {"ok": True, "bytes": manifest.total_bytes}

    def _commit_part(self, staging: Path, part: Manifest) -> dict[str, Any]:
        """Keep one node's part; with the last of them the checkpoint is committed."""
        folder = epoch_folder(self._store, part.epoch)
        waiting: tuple[str, ...] = ()
        parts.go_on(folder, part.tag, self._step)
        if not self._committed(part):
            if parts.arrived(staging) != part:
                self._make_whole(staging, part)
            try:
                waiting = parts.settle(folder, part, self._step)
            except parts.MismatchError as exc:
                raise RefusedError(BAD_REQUEST, f"{part.tag} cannot be put together: {exc}") from exc
        if not waiting:
            parts.forget_part(staging)
        return {"ok": True, "bytes": part.total_bytes, "waiting": list(waiting)}

    def _forget(self, staging: Path) -> None:
        """What lay beside the staging folder of a checkpoint that is committed now."""
        for suffix in ("offer", "lock"):
            (staging.parent / f"{staging.name}.{suffix}").unlink(missing_ok=True)
        if sheets_of(staging).is_dir():
            discard(sheets_of(staging))

    def _make_whole(self, staging: Path, manifest: Manifest) -> None:
        arrivals = Arrivals(staging, self._step)

        def look(entry: FileEntry) -> tuple[FileEntry, str]:
            if arrivals.finish(entry):
                return entry, ""
            # What came in chunks was checked on its way; what was linked, or came by rsync, is read here.
            what = check_file(staging, entry, digests=not arrivals.arrived(entry))
            if not what:
                fsync(staging / entry.path)
            return entry, what

        bad = [(entry, what) for entry, what in side_by_side(look, manifest.files) if what]
        for entry, _ in bad:
            if not arrivals.digests(entry.path):
                (staging / entry.path).unlink(missing_ok=True)
        if bad:
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            raise RefusedError(DAMAGED, f"{bad[0][0].path}: {bad[0][1]}{more}")
        self._step("checked")
        drop_strangers(staging, {entry.path for entry in manifest.files})
        fsync_folders(staging)
        write_atomically(staging / MANIFEST_NAME, manifest.to_bytes(), self._step)
        self._step("manifest named")

    def _warn(self, warn: Warn) -> dict[str, Any]:
        self.check_fence(warn.epoch)
        self._store.mkdir(parents=True, exist_ok=True)
        words.write_warning(self._store, warn, self._clock.wall())
        return {"ok": True}

    def _hand_over(self, request: HandOver) -> dict[str, Any]:
        known = words.read_handover(self._store)
        wanted = (request.epoch, request.tag, request.step)
        current = max(request.epoch, request.current)
        if known and (known.from_epoch, known.tag, known.step) == wanted and known.epoch > current:
            return {"ok": True, "epoch": known.epoch}
        self.check_fence(current)
        found = committed_at(epoch_folder(self._store, request.epoch) / request.tag, request.epoch)
        if found is None or found.step != request.step or self._sizes_differ(found):
            raise RefusedError(
                DAMAGED, f"{request.tag} of epoch {request.epoch} is not committed here: ship it first"
            )
        epoch = words.write_handover(self._store, request, self._clock.wall(), self._step)
        return {"ok": True, "epoch": epoch}

    def _alone(self, work: Callable[[], T]) -> T:
        self._store.mkdir(parents=True, exist_ok=True)
        with try_lock(self._store / COMMIT_LOCK, wait_s=COMMIT_WAIT_S) as held:
            if not held:
                raise RefusedError(IO, f"another commit of job {self._job} is still under way here")
            return work()

    def _committed(self, manifest: Manifest) -> bool:
        found = committed_at(epoch_folder(self._store, manifest.epoch) / manifest.tag, manifest.epoch)
        if found is None:
            return False
        same = found.manifest == manifest if manifest.part is None else parts.covers(found.manifest, manifest)
        return same and not self._sizes_differ(found)

    def _sizes_differ(self, found: Committed) -> bool:
        return any(check_file(found.path, entry, digests=False) for entry in found.manifest.files)

    def _staging(self, epoch: int, tag: str) -> Path:
        return epoch_folder(self._store, epoch) / STAGING / tag

    def _hold(self, staging: Path) -> None:
        """While this session lives, nobody sweeps the folder; as many sessions as like may share it."""
        if self._holding != staging:
            self._held.close()
            lock = staging.parent / f"{staging.name}.lock"
            self._held.enter_context(try_lock(lock, shared=True, wait_s=1.0))
            self._holding = staging


__all__ = ["RESERVE_BYTES", "Landing", "RefusedError", "SenderGoneError", "free_bytes"]
