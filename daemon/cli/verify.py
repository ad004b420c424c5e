"""``outlast verify``: is every file of these checkpoints what its manifest says?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outlast.daemon.checkpoint.place import LATEST
from outlast.daemon.cli import quantities
from outlast.daemon.ops.exit import ExitCode
from outlast.wire.manifest import MANIFEST_NAME, PARTIAL_SUFFIX, Manifest, ManifestError, check_name, read
from outlast.wire.store import Problem, epochs, folders, verify

_EXAMPLES = """\
examples:
  outlast verify /data/checkpoints                          every checkpoint of a store
  outlast verify /data/checkpoints/epoch-3                  those of one epoch
  outlast verify /data/checkpoints/epoch-3/global_step1200  one checkpoint
  outlast verify /data/checkpoints --json | jq .newest

Sizes and SHA-256 digests are compared with the manifest. A DeepSpeed tag without one is not committed; what
its names and archives tell is reported all the same. Nothing is changed.

exit status: 0 all whole, 1 damage found, 2 no such folder or no checkpoint in it
"""


@dataclass(frozen=True)
class Finding:
    """One checkpoint folder as found: ``manifest`` is None where there is none that reads."""

    path: Path
    manifest: Manifest | None
    problems: list[Problem]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``verify``."""
    parser = subparsers.add_parser(
        "verify",
        help="check checkpoints against their manifests",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="a store, an epoch folder or a checkpoint")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the folder. Returns DONE, FAILED with what is damaged, or USAGE."""
    folder: Path = args.folder
    if not folder.is_dir():
        print(f"outlast verify: {folder} is not a folder: give a store or a checkpoint", file=sys.stderr)
        return ExitCode.USAGE
    tags = checkpoint_folders(folder)
    if not tags:
        print(f"outlast verify: {folder} holds no checkpoint: nothing was checked", file=sys.stderr)
        return ExitCode.USAGE
    findings = [_find(path, _progress(path)) for path in tags]
    parents = sorted({path.parent for path in tags} - {folder.parent})
    pointers = [problem for parent in parents for problem in _pointer(parent, findings)]
    newest = max((item for item in findings if not item.problems), key=_order, default=None)
    (_print_json if args.json else _print_text)(folder, findings, pointers, newest)
    return ExitCode.FAILED if pointers or any(item.problems for item in findings) else ExitCode.DONE


def checkpoint_folders(folder: Path) -> list[Path]:
    """The checkpoint folders that ``folder`` is or holds, oldest first; unfinished ones only if named."""
    found = [path for _, epoch in reversed(epochs(folder)) for path in _tags_in(epoch)]
    if found:
        return found
    return [folder] if _is_checkpoint(folder) else _tags_in(folder)


def _tags_in(folder: Path) -> list[Path]:
    found = [path for path in folders(folder) if _plain(path.name) and _is_checkpoint(path)]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def _plain(name: str) -> bool:
    try:
        return bool(check_name(name, "tag"))
    except ManifestError:
        return False


def _is_checkpoint(path: Path) -> bool:
    if path.name.endswith(PARTIAL_SUFFIX) or (path / MANIFEST_NAME).is_symlink():
        return True
    return (path / MANIFEST_NAME).exists() or any(path.glob("*.pt"))


def _find(path: Path, progress: Callable[[int], None] | None) -> Finding:
    try:
        manifest = read(path)
    except ManifestError:
        manifest = None
    problems = verify(path, progress=progress)
    if progress:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return Finding(path, manifest, problems)


def _progress(path: Path) -> Callable[[int], None] | None:
    """A line on a terminal: digests of a large checkpoint take minutes."""
    if not sys.stderr.isatty():
        return None
    done = 0

    def show(size: int) -> None:
        nonlocal done
        done += size
        print(f"\r\033[K{path.name}: {quantities.size(done)} checked", end="", file=sys.stderr, flush=True)

    return show


def _pointer(parent: Path, findings: list[Finding]) -> list[Problem]:
    """``latest`` is DeepSpeed's own pointer: one that names no whole checkpoint misleads a plain load."""
    path = parent / LATEST
    if path.is_symlink() or not path.is_file():
        return []
    tag = path.read_bytes()[:256].decode(errors="replace").strip()
    if any(item.path == parent / tag and not item.problems for item in findings):
        return []
    return [Problem(f"{parent.name}/{LATEST}", f"names {tag!r}, which is not a whole checkpoint")]


def _order(finding: Finding) -> tuple[int, int]:
    return (finding.manifest.epoch, finding.manifest.step) if finding.manifest else (-1, -1)


def _print_json(
    folder: Path, findings: list[Finding], pointers: list[Problem], newest: Finding | None
) -> None:
    body = {
        "format": 1,
        "folder": str(folder),
        "ok": not pointers and not any(item.problems for item in findings),
        "newest": _place(newest.manifest) if newest and newest.manifest else None,
        "checkpoints": [_outline(item) for item in findings],
        "problems": [asdict(problem) for problem in pointers],
    }
    print(json.dumps(body))


def _outline(item: Finding) -> dict[str, Any]:
    manifest = item.manifest
    return {
        "path": str(item.path),
        "ok": not item.problems,
        **(_place(manifest) if manifest else {"epoch": None, "tag": item.path.name, "step": None}),
        "files": len(manifest.files) if manifest else None,
        "bytes": manifest.total_bytes if manifest else None,
        "problems": [asdict(problem) for problem in item.problems],
    }


def _place(manifest: Manifest) -> dict[str, Any]:
    return {"epoch": manifest.epoch, "tag": manifest.tag, "step": manifest.step}


def _print_text(
    folder: Path, findings: list[Finding], pointers: list[Problem], newest: Finding | None
) -> None:
    for item in findings:
        name = f"{item.path.absolute().parent.name}/{item.path.name}"
        if item.problems or item.manifest is None:
            print(f"{name}: DAMAGED" if item.manifest else f"{name}: NOT A CHECKPOINT")
            print("\n".join(f"  {problem.path}: {problem.what}" for problem in item.problems))
        else:
            files, size = len(item.manifest.files), quantities.size(item.manifest.total_bytes)
            print(f"{name}: whole, step {item.manifest.step}, {files} files, {size}")
    for problem in pointers:
        print(f"{problem.path}: {problem.what}")
    if newest and len(findings) > 1:
        print(f"newest whole: {newest.path.parent.name}/{newest.path.name}")
    elif newest is None:
        print(f"{folder} holds no whole checkpoint")
