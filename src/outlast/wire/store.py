"""A store of checkpoints: which are committed, what is damaged, and which is the newest whole one.

Reading only, and without following a symbolic link: a store may hold what another machine sent.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from outlast.wire.digests import digest
from outlast.wire.manifest import (
    MANIFEST_NAME,
    PARTIAL_SUFFIX,
    FileEntry,
    Manifest,
    ManifestError,
    check_name,
    read,
)

# Beside a part, once its checkpoint is whole at the receiver: the flush that saved it.
PROOF_SUFFIX = ".whole"
_EPOCH = re.compile(r"epoch-(0|[1-9][0-9]{0,15})")


@dataclass(frozen=True)
class Committed:
    """A folder whose manifest fits it. ``folder`` is the epoch folder: ``load_checkpoint(folder, tag)``."""

    folder: Path
    tag: str
    manifest: Manifest

    @property
    def path(self) -> Path:
        """The checkpoint's own folder."""
        return self.folder / self.tag

    @property
    def step(self) -> int:
        """The last step contained."""
        return self.manifest.step

    @property
    def epoch(self) -> int:
        """The epoch it was saved in."""
        return self.manifest.epoch

    @property
    def staged(self) -> str:
        """The name under which it is sent."""
        return self.manifest.staged

    @property
    def whole(self) -> bool:
        """Whether it is a checkpoint; else it is one node's part of one, and nobody can resume from it."""
        return self.manifest.part is None


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a checkpoint: ``path`` is relative to its folder, ``what`` a short clause."""

    path: str
    what: str


def epoch_folder(store: Path, epoch: int) -> Path:
    """Where the checkpoints of ``epoch`` lie in ``store``."""
    return store / f"epoch-{epoch}"


def epochs(store: Path) -> list[tuple[int, Path]]:
    """The epoch folders of ``store``, highest first; a missing store has none."""
    found = ((_EPOCH.fullmatch(path.name), path) for path in folders(store))
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def folders(parent: Path) -> list[Path]:
    """The real folders (no links) in ``parent``, by name; a missing or unreadable parent has none."""
    try:
        with os.scandir(parent) as entries:
            return sorted(Path(item.path) for item in entries if item.is_dir(follow_symlinks=False))
    except OSError:
        return []


def scan(store: Path) -> list[Committed]:
    """All that is committed, also parts, newest ``(epoch, step)`` first. No file is looked at."""
    found = [item for epoch, folder in epochs(store) for item in scan_epoch(folder, epoch)]
    return sorted(found, key=lambda item: (item.epoch, item.step, item.manifest.created), reverse=True)


def scan_epoch(folder: Path, epoch: int) -> list[Committed]:
    """The committed checkpoints in one epoch folder, in order of their names."""
    found = (committed_at(path, epoch) for path in folders(folder))
    return [item for item in found if item is not None]


def committed_at(path: Path, epoch: int) -> Committed | None:
    """The checkpoint at ``path`` if its manifest reads and fits folder name and ``epoch``; no digests."""
    try:
        if path.is_symlink() or check_name(path.name, "tag") != path.name:
            return None
        manifest = read(path)
    except ManifestError:
        return None
    fits = manifest.tag == path.name and manifest.epoch == epoch
    return Committed(path.parent, path.name, manifest) if fits else None


def newest_whole(store: Path, *, digests: bool = True) -> Committed | None:
    """The newest committed checkpoint that verifies, no part of one; damaged ones are passed over."""
    for item in scan(store):
        if item.whole and not verify(item.path, digests=digests):
            return item
    return None


def proof_of(item: Committed) -> Path:
    """The file that says that the checkpoint of this part is whole elsewhere."""
    return item.folder / f"{item.tag}{PROOF_SUFFIX}"


def proven(item: Committed) -> bool:
    """Whether this is a part of a checkpoint that is known to be whole: every node of the job had its own."""
    try:
        return not item.whole and proof_of(item).read_bytes() == item.manifest.flush_id.encode()
    except OSError:
        return False


def newest_usable(store: Path, *, digests: bool = True) -> Committed | None:
    """The newest that verifies of whole checkpoints and of parts whose checkpoint is whole: for one node of
    several, each of which has its own part."""
    for item in scan(store):
        if (item.whole or proven(item)) and not verify(item.path, digests=digests, parts=True):
            return item
    return None


def verify(
    path: Path,
    *,
    digests: bool = True,
    parts: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[Problem]:
    """Everything wrong with the checkpoint folder ``path``; empty means whole.

    To be one node's part of a checkpoint is a problem as well, unless ``parts`` may be. Without a manifest
    the files are judged by DeepSpeed's naming and their own archives' checksums.
    ``progress`` is called with the number of bytes of each file once it has been looked at.
    """
    if path.is_symlink() or not path.is_dir():
        return [Problem(path.name, "not a folder")]
    problems = _links(path)
    if path.name.endswith(PARTIAL_SUFFIX):
        problems.append(Problem(path.name, "still under its temporary name: not committed"))
    try:
        manifest = read(path)
    except ManifestError as exc:
        what = str(exc) if os.path.lexists(path / MANIFEST_NAME) else "missing: not committed"
        return [*problems, Problem(MANIFEST_NAME, what), *_structure(path)]
    if manifest.tag != path.name.removesuffix(PARTIAL_SUFFIX):
        problems.append(Problem(MANIFEST_NAME, f"is of tag {manifest.tag}, not of this folder"))
    if manifest.part is not None and not parts:
        count = len(manifest.part.nodes)
        problems.append(Problem(MANIFEST_NAME, f"the part of {manifest.part.node}, one of {count} nodes"))
    epoch = _EPOCH.fullmatch(path.absolute().parent.name)
    if epoch and int(epoch[1]) != manifest.epoch:
        problems.append(Problem(MANIFEST_NAME, f"is of epoch {manifest.epoch}, not of {epoch[0]}"))
    return problems + check_files(path, manifest, digests=digests, progress=progress)


def check_files(
    path: Path, manifest: Manifest, *, digests: bool = True, progress: Callable[[int], None] | None = None
) -> list[Problem]:
    """What differs between the files under ``path`` and ``manifest``, wherever that one came from."""
    problems = []
    for entry in manifest.files:
        what = check_file(path, entry, digests=digests)
        if what:
            problems.append(Problem(entry.path, what))
        if progress:
            progress(entry.size)
    return problems


def check_file(path: Path, entry: FileEntry, *, digests: bool = True) -> str:
    """What is wrong with one file, or an empty text. Unreadable counts as wrong."""
    try:
        info = _lstat_inside(path, entry.path)
    except FileNotFoundError:
        return "missing"
    except OSError as exc:
        return exc.strerror or str(exc)
    if not stat.S_ISREG(info.st_mode):
        return "not a regular file"
    if info.st_size == 0:
        return "empty"
    if info.st_size != entry.size:
        return f"{info.st_size} bytes, not {entry.size}"
    if not digests:
        return ""
    try:
        same = digest(path / entry.path, entry.chunk) == entry.sha256
        return "" if same else "contents differ from the manifest's digest"
    except OSError as exc:
        return f"cannot be read: {exc.strerror}"


def walk(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file and link below ``path`` as relative ``/``-separated path and lstat, in a stable order.

    What is deleted under the reader's hand is left out.
    """
    for folder, names, files in os.walk(path):
        names.sort()
        links = [name for name in names if Path(folder, name).is_symlink()]
        for name in sorted(files + links):
            full = Path(folder, name)
            try:
                info = full.lstat()
            except FileNotFoundError:
                continue
            yield full.relative_to(path).as_posix(), info


def _links(path: Path) -> list[Problem]:
    return [Problem(name, "symbolic link") for name, info in walk(path) if stat.S_ISLNK(info.st_mode)]


def _lstat_inside(path: Path, relative: str) -> os.stat_result:
    current = path
    for part in relative.split("/")[:-1]:
        current = current / part
        if stat.S_ISLNK(current.lstat().st_mode):
            raise OSError(0, f"reached through a symbolic link: {part}")
    return (path / relative).lstat()


def _structure(path: Path) -> list[Problem]:
    from outlast.wire import shards

    files = {name: info.st_size for name, info in walk(path) if stat.S_ISREG(info.st_mode)}
    empty = [Problem(name, "empty") for name, size in files.items() if size == 0]
    torn = [
        Problem(name, what)
        for name, size in files.items()
        if size and name.endswith(".pt") and (what := shards.torn(path / name))
    ]
    missing = [Problem(name, "missing") for name in shards.missing(path, set(files))]
    return empty + torn + missing
