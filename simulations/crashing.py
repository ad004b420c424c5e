"""The daemon with a death appointed: kill -9 of one part at the very moment the timeline reaches an event.

    python -m outlast.simulations.crashing --at committed --victim daemon --mark done run -c outlast.yaml

The first such event from the provider's notice on is meant, or with ``--any-time`` the first of all. The
victim dies before the event is recorded, so the next life cannot know of it from the record.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from outlast.__main__ import main as outlast
from outlast.daemon.core.diary import Diary

VICTIMS = ("daemon", "rank", "receiver")


def appoint(at: str, kill: Callable[[], None], mark: Path, *, any_time: bool = False) -> None:
    """Call ``kill`` once, at the first event of kind ``at`` from a notice on; ``mark`` says that it happened.

    A notice that an earlier life of the daemon has recorded does not count; with ``any_time`` none is needed.
    """
    record = Diary.event
    noticed = any_time

    def event(self: Diary, kind: str, job: str = "", episode: str = "", **fields: object) -> None:
        nonlocal noticed
        noticed = noticed or kind == "notice_seen"
        if noticed and kind == at and not mark.exists():
            mark.touch()
            kill()
        record(self, kind, job, episode, **fields)

    Diary.event = event  # type: ignore[method-assign]  # to replace it is the point


def _kill(args: argparse.Namespace) -> None:
    if args.victim == "daemon":
        pids = [os.getpid()]
    elif args.victim == "rank":
        pids = [int(args.rank_pid_file.read_text())]
    else:
        pids = _receivers(args.replicas)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _receivers(replicas: Path) -> list[int]:
    """Receivers whose command line names this folder of replicas."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if "--root" in words and str(replicas) in words and not words[0].endswith("sshd"):
                    found.append(int(path.name))
    return found


def main() -> int:
    """Run the command that follows the options, with the death appointed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--at", required=True, help="the event's kind")
    parser.add_argument("--any-time", action="store_true", help="also before any notice")
    parser.add_argument("--victim", choices=VICTIMS, required=True)
    parser.add_argument("--rank-pid-file", type=Path, help="where the pid of the rank to kill is")
    parser.add_argument("--replicas", type=Path, default=Path(), help="the folder of the receivers to kill")
    parser.add_argument("--mark", type=Path, required=True, help="made when it has happened")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    appoint(args.at, lambda: _kill(args), args.mark, any_time=args.any_time)
    return outlast(args.words)


if __name__ == "__main__":
    sys.exit(main())
