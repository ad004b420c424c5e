"""Leaving nothing behind: which processes and shared memory belong to a drill, and ending them.

A process belongs to a drill if ``OUTLAST_DRILL_ID`` in its environment says so, or, where sshd has cleared
the environment, if it is an sshd or a receiver whose command line names the drill's folder.

Run as a program this is the guardian: it waits until the drill is gone, however that came about, and then
ends and removes what the drill itself could not:

    python -m outlast.simulations.drill.reap ID FOLDER < pipe
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "OUTLAST_DRILL_ID"
NODE = "OUTLAST_DRILL_NODE"
END_S = 10.0
_LOOK_S = 0.02
_QUIET_LOOKS = 3
_SHARED = Path("/dev/shm")  # noqa: S108 - where the kernel keeps POSIX shared memory
_BUFFERS = "deepspeed_allreduce_buffer_*"


def belonging(drill_id: str, folder: Path) -> set[int]:
    """The live processes of a drill; never this process."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid for pid in pids if pid != os.getpid() and _belongs(pid, drill_id, folder)}


def on_node(drill_id: str, node: str) -> set[int]:
    """The live processes of a drill that belong to one of its nodes."""
    wanted = {f"{MARK}={drill_id}".encode(), f"{NODE}={node}".encode()}
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid for pid in pids if pid != os.getpid() and wanted <= _environ(pid)}


def end_all(drill_id: str, folder: Path, deadline: float) -> tuple[set[int], set[int]]:
    """Kill a drill's processes, those included that they start meanwhile.

    Returns who was killed and who of them still lived at ``deadline`` (monotonic seconds).
    """
    killed: set[int] = set()
    quiet = 0
    # For a moment in its exec a process has no environment to be known by, so one look is not enough.
    while quiet < _QUIET_LOOKS:
        left = belonging(drill_id, folder)
        for pid in left:
            kill(pid, drill_id, folder)
        killed |= left
        quiet = 0 if left else quiet + 1
        if left and time.monotonic() >= deadline:
            return killed, left
        time.sleep(_LOOK_S)
    return killed, set()


def reap(pids: set[int]) -> None:
    """Take the exit status of those that are ended children of this process and nobody else's to wait for."""
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def shared_buffers() -> set[Path]:
    """DeepSpeed's communication buffers in shared memory, of whatever process."""
    return set(_SHARED.glob(_BUFFERS))


def sweep_buffers(before: set[Path]) -> set[Path]:
    """Remove buffers that are newer than ``before`` and that no live process has mapped: 69 MB each."""
    mapped = _mapped_buffers()
    gone = {path for path in shared_buffers() - before if str(path) not in mapped}
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


def _mapped_buffers() -> set[str]:
    found: set[str] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                maps = (entry / "maps").read_text(errors="replace")
                found |= {line.split()[-1] for line in maps.splitlines() if "deepspeed_allreduce" in line}
    return found


def _belongs(pid: int, drill_id: str, folder: Path) -> bool:
    if f"{MARK}={drill_id}".encode() in _environ(pid):
        return True
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    cleared = words.startswith((b"sshd", b"/usr/sbin/sshd")) or b"ship.receive" in words
    return cleared and os.fsencode(folder) + b"/" in words


def _environ(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def kill(pid: int, drill_id: str, folder: Path) -> None:
    """SIGKILL, by a descriptor, so that a number that was given to another process meanwhile is spared."""
    with suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            if _belongs(pid, drill_id, folder):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)


def main() -> int:
    """The guardian: wait for the end of standard input, then clean up."""
    drill_id, folder = sys.argv[1], Path(sys.argv[2])
    before = shared_buffers()
    sys.stdin.buffer.read()
    end_all(drill_id, folder, time.monotonic() + END_S)
    sweep_buffers(before)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
