"""The daemon with a death appointed: kill -9 of one part at the very moment the timeline reaches an event.

    python -m outlast.simulations.crashing --at committed --victim daemon run -c outlast.yaml

The victim dies before the event is recorded, so the next life cannot know of it from the record.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from outlast.__main__ import main as outlast
from outlast.daemon.core.diary import Diary

VICTIMS = ("daemon", "rank", "receiver")


def appoint(at: str, victim: str, pid_file: Path | None, mark: Path) -> None:
    """Make the first event of kind ``at`` kill the victim; ``mark`` is written so that it happens once."""
    record = Diary.event

    def event(self: Diary, kind: str, job: str = "", episode: str = "", **fields: object) -> None:
        if kind == at and not mark.exists():
            mark.write_text(victim)
            _kill(victim, pid_file)
        record(self, kind, job, episode, **fields)

    Diary.event = event  # type: ignore[method-assign]


def _kill(victim: str, pid_file: Path | None) -> None:
    if victim == "daemon":
        os.kill(os.getpid(), signal.SIGKILL)
    if victim == "rank" and pid_file is not None:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
    if victim == "receiver":
        for pid in _receivers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _receivers() -> list[int]:
    """Receivers whose command line names the folder of replicas in OUTLAST_CRASH_ROOT."""
    root = os.environ["OUTLAST_CRASH_ROOT"]
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if "--root" in words and root in words and not words[0].endswith("sshd"):
                    found.append(int(path.name))
    return found


def main() -> int:
    """Run the command that follows the options, with the death appointed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--at", required=True, help="the event's kind")
    parser.add_argument("--victim", choices=VICTIMS, required=True)
    parser.add_argument("--pid-file", type=Path, help="where the rank's pid is")
    parser.add_argument("--mark", type=Path, required=True, help="written when it has happened")
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    appoint(args.at, args.victim, args.pid_file, args.mark)
    return outlast(args.words)


if __name__ == "__main__":
    sys.exit(main())
