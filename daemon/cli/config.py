"""``outlast config check``: is this file a configuration the daemon can run with?"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from outlast.daemon.config import ConfigError, JobSettings, Settings

DEFAULT_FILE = Path("/etc/outlast/outlast.yaml")

_EXAMPLES = """\
examples:
  outlast config check                        the file the daemon reads
  outlast config check ./outlast.yaml --json
  sudo -u outlast outlast config check        with the daemon's own rights to keys and folders

exit status: 0 usable, 78 not usable; every problem is one line, file:line:column: key: what to change
"""


def config_file(given: Path | None) -> Path:
    """The file to read: as given, else ``$OUTLAST_CONFIG``, else /etc/outlast/outlast.yaml."""
    return given or Path(os.environ.get("OUTLAST_CONFIG") or DEFAULT_FILE)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``config`` and its one command, ``check``."""
    parser = subparsers.add_parser(
        "config",
        help="check a configuration file",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="config_command", metavar="COMMAND", required=True)
    check = commands.add_parser(
        "check",
        help="report every problem of a configuration file with its place",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("file", nargs="?", type=Path, help=f"default: $OUTLAST_CONFIG or {DEFAULT_FILE}")
    check.add_argument("--json", action="store_true", help="print one JSON object")
    check.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the file. Returns DONE with a summary, or BAD_CONFIG with every problem."""
    from outlast.daemon.config import ConfigError, load

    file = config_file(args.file)
    try:
        settings = load(file, assume_credentials=True)
    except ConfigError as exc:
        _report_problems(exc, as_json=args.json)
        return ExitCode.BAD_CONFIG
    notes = _notes(settings)
    if args.json:
        print(
            json.dumps(
                {
                    "format": 1,
                    "file": str(file),
                    "ok": True,
                    "problems": [],
                    "notes": notes,
                    **_outline(settings),
                }
            )
        )
        return ExitCode.DONE
    print("\n".join([f"{file}: usable", *_summary(settings), *(f"note: {note}" for note in notes)]))
    return ExitCode.DONE


def _report_problems(error: ConfigError, *, as_json: bool) -> None:
    if as_json:
        problems = [
            {"line": p.line, "column": p.column, "path": p.path, "message": p.message} for p in error.problems
        ]
        print(
            json.dumps({"format": 1, "file": str(error.file), "ok": False, "problems": problems, "notes": []})
        )
        return
    print(error, file=sys.stderr)
    count = len(error.problems)
    print(f"{count} problem{'s' if count != 1 else ''}; the daemon will not start", file=sys.stderr)


def _outline(settings: Settings) -> dict[str, Any]:
    jobs = [{"name": job.name, "role": job.role} for job in settings.jobs]
    return {"node": settings.node.name, "provider": settings.provider.name, "jobs": jobs}


def _summary(settings: Settings) -> list[str]:
    from outlast.daemon.config.duration import words

    provider = settings.provider
    heard = "nobody" if provider.name == "none" else f"{provider.name}, poll {words(provider.poll_s)}"
    return [f"  node {settings.node.name}, listens to {heard}", *map(_job, settings.jobs)]


def _job(job: JobSettings) -> str:
    from outlast.daemon.config.duration import words

    parts = [f"  job {job.name}: {job.role}"]
    if job.checkpoints is not None:
        parts.append(f"checkpoints in {job.checkpoints}")
    if job.every_s is not None:
        parts.append(f"every {job.every_s if job.every_s == 'auto' else words(job.every_s)}")
    if job.peer is not None:
        parts.append(f"shipped to {job.peer.user}@{job.peer.host}:{job.peer.port}")
    if job.replicas is not None:
        parts.append(f"replicas in {job.replicas}")
    return ", ".join(parts)


def _notes(settings: Settings) -> list[str]:
    """What is in order and may still surprise."""
    notes = []
    for job in settings.jobs:
        if job.role == "primary" and job.peer is None:
            notes.append(f"job {job.name} has no peer: its checkpoints stay on this node")
        if job.peer is not None and not job.peer.key.exists():
            notes.append(
                f"job {job.name}: credential {job.peer.key.name} is only there inside the unit; not checked"
            )
    return notes
