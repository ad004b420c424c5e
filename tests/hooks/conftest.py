"""A scripted daemon on a real Unix socket, and ranks to speak with it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.wire.messages import (
    Agree,
    At,
    Done,
    Failed,
    Flush,
    FromHook,
    Hello,
    Progress,
    Resume,
    Saved,
    StandDown,
    ToHook,
    decode_from_hook,
    encode,
)

# A folder saved by the ranks becomes a checkpoint: called when all ranks have said Saved.
Commit = Callable[[Saved, Hello], None]


def wait_until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """What ``condition`` gives once it is true; fails the test after ``seconds``."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    return pytest.fail(f"did not come true within {seconds} s")


class ScriptedDaemon:
    """Greets each rank with ``greeting``, agrees on the highest promise once ``world`` ranks have answered.

    ``agree_with`` limits which ranks hear Agree. When all have saved, ``commit`` runs, then StandDown.
    """

    def __init__(self, path: Path, world: int) -> None:
        self.path, self.world = path, world
        self.greeting: list[ToHook] = [Resume(epoch=1)]
        self.said: list[tuple[int, FromHook]] = []
        self.hellos: dict[int, Hello] = {}
        self.agree_with: set[int] | None = None
        self.answers_saved = True
        self.then = "train"
        self.flush_on_ask = False
        self.commit: Commit = lambda _saved, _hello: None
        self._connections: dict[int, socket.socket] = {}
        self._lock = threading.RLock()
        self._agreed: set[str] = set()
        self._answered: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._server: socket.socket | None = None

    def start(self) -> None:
        """Listen."""
        self.path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(self.path))
        self._server.listen(16)
        self._spawn(self._accept, self._server)

    def stop(self) -> None:
        """Be gone, as after kill -9: the socket file stays, nobody listens, every connection is cut."""
        if self._server is not None:
            self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            self._server = None
        for rank in list(self._connections):
            self.cut(rank)
        for thread in self._threads:
            thread.join(5.0)

    def cut(self, rank: int) -> None:
        """Cut one rank's connection."""
        with self._lock:
            sock = self._connections.pop(rank, None)
        if sock is not None:
            sock.shutdown(socket.SHUT_RDWR)

    def send(self, message: ToHook, rank: int | None = None) -> None:
        """To one rank, or to all."""
        with self._lock:
            for number, sock in list(self._connections.items()):
                if rank in (None, number):
                    try:
                        sock.sendall(encode(message))
                    except OSError:
                        self._connections.pop(number, None)

    def flush(self, flush_id: str, seconds_left: float | None = 60.0, hold: bool = False) -> None:
        """Ask all ranks for a flush."""
        self.send(Flush(flush_id, "test", seconds_left, hold))

    def words(self, kind: type, flush_id: str | None = None) -> dict[int, Any]:
        """The last message of a kind from each rank."""
        with self._lock:
            return {
                rank: message
                for rank, message in self.said
                if isinstance(message, kind) and flush_id in (None, getattr(message, "id", None))
            }

    def all_said(self, kind: type, flush_id: str | None = None, seconds: float = 20.0) -> dict[int, Any]:
        """The same once every rank has said one."""

        def complete() -> dict[int, Any] | None:
            words = self.words(kind, flush_id)
            return words if len(words) == self.world else None

        found: dict[int, Any] = wait_until(complete, seconds)
        return found

    def connected(self, seconds: float = 20.0) -> None:
        """Wait for every rank."""
        wait_until(lambda: len(self._connections) == self.world, seconds)

    def _spawn(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            self._spawn(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        hello: FromHook | None = None
        with sock, sock.makefile("rb") as lines:
            try:
                hello = decode_from_hook(lines.readline())
                assert isinstance(hello, Hello)
                with self._lock:
                    self.hellos[hello.rank] = hello
                    self._connections[hello.rank] = sock
                    for message in self.greeting:
                        sock.sendall(encode(message))
                for line in lines:
                    self._take(hello.rank, decode_from_hook(line))
            except (OSError, ValueError):
                return
            finally:
                with self._lock:
                    if isinstance(hello, Hello) and self._connections.get(hello.rank) is sock:
                        del self._connections[hello.rank]

    def _take(self, rank: int, message: FromHook) -> None:
        with self._lock:
            self.said.append((rank, message))
            if isinstance(message, At):
                self._maybe_agree(message.id)
            elif isinstance(message, Saved):
                self._maybe_stand_down(message)
            elif message.type == "ask" and self.flush_on_ask:
                self.flush_on_ask = False
                self.flush("signal", None)

    def _maybe_agree(self, flush_id: str) -> None:
        promises = self.words(At, flush_id)
        if len(promises) < self.world or flush_id in self._agreed:
            return
        self._agreed.add(flush_id)
        agree = Agree(flush_id, max(at.step for at in promises.values()))
        for rank in promises:
            if self.agree_with is None or rank in self.agree_with:
                self.send(agree, rank)

    def _maybe_stand_down(self, saved: Saved) -> None:
        if not self.answers_saved or len(self.words(Saved, saved.id)) < self.world:
            return
        if saved.id not in self._answered:
            self._answered.add(saved.id)
            self.commit(saved, self.hellos[min(self.hellos)])
        self.send(StandDown("committed", self.then, saved.id, committed=True))


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket."""
    with tempfile.TemporaryDirectory(prefix="ol-") as folder:
        yield Path(folder)


@pytest.fixture
def make_daemon(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], ScriptedDaemon]]:
    """Scripted daemons on the socket that ranks look for; stopped at the end."""
    made: list[ScriptedDaemon] = []
    monkeypatch.setenv("OUTLAST_SOCKET", str(short_path / "t.sock"))

    def make(world: int) -> ScriptedDaemon:
        made.append(ScriptedDaemon(short_path / "t.sock", world))
        return made[-1]

    yield make
    for daemon in made:
        daemon.stop()


@pytest.fixture
def wait() -> Callable[..., Any]:
    """``wait_until``, for tests."""
    return wait_until


class Processes:
    """Processes started by a test, in groups of their own: none outlives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        """Start ``command``; its output goes to a file that ``output`` reads."""
        log = self.folder / f"output-{len(self._started)}"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **env},
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def output(self) -> str:
        """All that was printed so far."""
        return "\n".join(p.read_text(errors="replace") for p in sorted(self.folder.glob("output-*")))

    def end(self) -> None:
        """Kill what is left."""
        for process in self._started:
            for pid in [process.pid, *_descendants(process.pid)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(10.0)


def _descendants(pid: int) -> list[int]:
    """All processes below ``pid``: a launcher puts its ranks into sessions of their own."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for known in found:
        found.extend(child for child, parent in parents.items() if parent == known)
    return found[1:]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Start processes; all are killed at the end of the test."""
    made = Processes(tmp_path)
    yield made
    made.end()


__all__ = ["Done", "Failed", "Progress", "ScriptedDaemon"]
