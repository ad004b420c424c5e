"""A universal checkpoint that DeepSpeed's converter has made, committed beside the one it was made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from outlast.daemon.checkpoint.locks import try_lock
from outlast.daemon.checkpoint.place import Step, entries, fsync_folders, no_step, write_atomically
from outlast.daemon.checkpoint.recovery import COMMIT_LOCK
from outlast.wire.fit import is_universal
from outlast.wire.manifest import (
    MANIFEST_NAME,
    PART_SUFFIX,
    Manifest,
    ManifestError,
    check_name,
    check_path,
    parse,
)
from outlast.wire.store import Committed, epochs, scan_epoch, walk

SUFFIX = "_universal"
_LOCK_S = 30.0


class AdoptError(Exception):
    """The folder cannot be committed as a universal checkpoint; the text says why and what to do."""


def adopt(folder: Path, created: float, *, step: Step = no_step) -> Committed:
    """Commit ``<store>/epoch-N/<tag>_universal``, made of the committed ``<tag>`` beside it. Blocking.

    It has that one's step and epoch, and counts from then on as an equal of it. Safe to repeat. Raises
    AdoptError.
    """
    source = _source(folder)
    try:
        check_name(folder.name, "tag")
        sizes = {check_path(name): info.st_size for name, info in walk(folder) if _counts(name)}
        files = entries(folder, sizes)
    except (ManifestError, OSError) as exc:
        raise AdoptError(f"{folder} cannot be committed: {exc}") from exc
    if not files or not all(sizes.values()):
        raise AdoptError(f"{folder} holds no files, or empty ones: run ds_to_universal.py again")
    manifest = replace(source.manifest, tag=folder.name, reason="universal", created=created, files=files)
    _check_readable(folder, manifest)
    if not is_universal(manifest):
        raise AdoptError(f"{folder} is no universal checkpoint: it has no zero/<parameter>/fp32.pt")
    _write(folder, manifest, step)
    return Committed(folder.parent, folder.name, manifest)


def _check_readable(folder: Path, manifest: Manifest) -> None:
    """Nothing is called committed whose manifest nobody would take: of too many files, say."""
    try:
        parse(manifest.to_bytes())
    except ManifestError as exc:
        raise AdoptError(f"{folder} cannot be committed, it has {len(manifest.files)} files: {exc}") from exc


def _source(folder: Path) -> Committed:
    """The checkpoint that it was made of, by its name and place."""
    epoch = next((number for number, path in epochs(folder.parent.parent) if path == folder.parent), None)
    tag = folder.name.removesuffix(SUFFIX)
    if epoch is None or tag == folder.name or not folder.is_dir() or folder.is_symlink():
        raise AdoptError(
            f"{folder} is not <store>/epoch-N/<tag>{SUFFIX}: give that to ds_to_universal.py as"
            " --output_folder"
        )
    found = next((one for one in scan_epoch(folder.parent, epoch) if one.tag == tag), None)
    if found is None:
        raise AdoptError(f"{folder.parent / tag}, which it was made of, is not a committed checkpoint")
    return found


def _counts(name: str) -> bool:
    return name != MANIFEST_NAME and not name.endswith(PART_SUFFIX)


def _write(folder: Path, manifest: Manifest, step: Step) -> None:
    """The folder has its name already, so the manifest alone commits it: it is written last, at once."""
    try:
        with try_lock(folder.parent.parent / COMMIT_LOCK, wait_s=_LOCK_S) as held:
            if not held:
                raise AdoptError(f"another commit into {folder.parent.parent} is still under way")
            fsync_folders(folder)
            step("checked")
            write_atomically(folder / MANIFEST_NAME, manifest.to_bytes(), step)
    except OSError as exc:
        raise AdoptError(f"{folder} cannot be committed: {exc}") from exc


__all__ = ["SUFFIX", "AdoptError", "adopt"]
