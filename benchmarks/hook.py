"""What the hook costs: an ordinary ``guard.step()``, and the agreement of two ranks on the step to save.

    python benchmarks/hook.py [--json] [--step-seconds S] [--flushes N]

Two rank processes meet in a barrier each step. ``agreement`` is the time that ``guard.step()`` adds to a step
while a flush is being agreed on, as a share of that step. The ``vote`` comes once a flush, right before the
saving: all ranks are at the agreed step, all save or none does. A thread here plays the daemon.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outlast.hooks.ballot import LocalBallot
from outlast.simulations.training import plain
from outlast.wire.messages import Agree, At, Flush, Resume, Saved, StandDown, ToHook, decode_from_hook, encode

GOAL_STEP_NS = 1000.0
GOAL_RATIO = 0.001
WORLD = 2
BOUND_S = 30.0


class Empty:
    """What a method call costs that does nothing."""

    def step(self, loss: Any = None) -> bool:
        """Nothing."""
        return loss is None


class Hub:
    """The daemon's part for ``world`` ranks: agrees on the highest promise, releases when all have saved."""

    def __init__(self, path: Path, world: int) -> None:
        self._world = world
        self._said: queue.Queue[Any] = queue.Queue()
        self._ranks: list[socket.socket] = []
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
        self._server.listen(world)
        threading.Thread(target=self._accept, daemon=True).start()

    def greeted(self) -> None:
        """Wait for all ranks."""
        until = time.monotonic() + BOUND_S
        while len(self._ranks) < self._world:
            if time.monotonic() > until:
                raise TimeoutError("the ranks did not connect")
            time.sleep(0.01)

    def flush(self, flush_id: str) -> None:
        """One flush, from asking to release. Raises queue.Empty if a rank does not answer."""
        self._send(Flush(flush_id, "benchmark", 60.0, hold=True))
        self._send(Agree(flush_id, max(at.step for at in self._collect(At))))
        self._collect(Saved)
        self._send(StandDown("committed", "train", flush_id, committed=True))

    def _collect(self, kind: type) -> list[Any]:
        found: list[Any] = []
        while len(found) < self._world:
            message = self._said.get(timeout=BOUND_S)
            found += [message] if isinstance(message, kind) else []
        return found

    def _send(self, message: ToHook) -> None:
        for sock in self._ranks:
            sock.sendall(encode(message))

    def _accept(self) -> None:
        for _ in range(self._world):
            sock, _address = self._server.accept()
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock.makefile("rb") as lines:
            lines.readline()
            sock.sendall(encode(Resume(1)))
            self._ranks.append(sock)
            for line in lines:
                self._said.put(decode_from_hook(line))


def nanoseconds(item: Any, calls: int = 200_000) -> float:
    """The best of seven: nanoseconds of one ``item.step()``, the loop included."""
    best = float("inf")
    for _ in range(7):
        began = time.perf_counter_ns()
        for _ in range(calls):
            item.step()
        best = min(best, (time.perf_counter_ns() - began) / calls)
    return best


def ordinary(folder: Path) -> tuple[float, float]:
    """Nanoseconds of an empty call and of ``guard.step()``, with a daemon connected and nothing asked."""
    os.environ["OUTLAST_SOCKET"] = str(folder / "1.sock")
    hub = Hub(folder / "1.sock", 1)
    with plain.build(folder / "one", LocalBallot()) as guard:
        hub.greeted()
        return nanoseconds(Empty()), nanoseconds(guard)


def agreeing(folder: Path, args: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Seconds in the agreement and in the vote, one of each a rank and flush."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, WORLD, is_master=True, wait_for_workers=False)
    hub = Hub(folder / "2.sock", WORLD)
    ranks = [_start(rank, store.port, folder, args) for rank in range(WORLD)]
    try:
        hub.greeted()
        for number in range(args.flushes):
            time.sleep(args.step_seconds * (1.5 + number % 7 / 7))  # anywhere in a step
            hub.flush(f"f{number}")
        (folder / "stop").touch()
        told = [json.loads(rank.communicate(timeout=BOUND_S)[0]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [s for one in told for s in one["meet"]], [s for one in told for s in one["vote"]]


def _start(rank: int, port: int, folder: Path, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    words = ["--rank", str(rank), "--store", str(port), "--folder", str(folder)]
    command = [sys.executable, __file__, *words, "--step-seconds", str(args.step_seconds)]
    env = {**os.environ, "OUTLAST_SOCKET": str(folder / "2.sock")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=env)


def _rank(args: argparse.Namespace) -> None:
    """A rank of ``agreeing``: prints what the agreement and the votes took."""
    args.world = WORLD
    ballot, barrier = plain.meet(args)
    with plain.build(args.folder / "two", ballot) as guard:
        met: list[float] = []
        votes: list[float] = []
        owner: Any = guard
        agreement = owner._agreement  # noqa: SLF001 - timed from inside: the whole of step() includes the save
        agreement.meet = _timed(agreement.meet, met, until_first=True)
        owner._vote = _timed(owner._vote, votes, until_first=False)  # noqa: SLF001 - the same
        while not (args.folder / "stop").exists():
            time.sleep(args.step_seconds)
            barrier(guard.step_count + 1)
            guard.step()
    print(json.dumps({"meet": met, "vote": votes}))


def _timed(call: Callable[[], Any], seconds: list[float], *, until_first: bool) -> Callable[..., Any]:
    """``call``, timed; with ``until_first`` only what precedes a save, not the hold after it."""
    saved = False

    def timed(*given: Any) -> Any:
        nonlocal saved
        began = time.perf_counter()
        result = call(*given)
        if not (until_first and saved):
            seconds.append(time.perf_counter() - began)
        saved = until_first and result is not None
        return result

    return timed


def main() -> int:
    """Measure and print; 0 if both goals are met, else 1."""
    args = _arguments()
    if args.rank is not None:
        _rank(args)
        return 0
    with tempfile.TemporaryDirectory(prefix="ol-") as name:
        empty, own = ordinary(Path(name))
        met, votes = agreeing(Path(name), args)
    report = {
        "empty_call_ns": round(empty, 1),
        "step_ns": round(own, 1),
        "step_seconds": args.step_seconds,
        "flushes": args.flushes,
        "agreement_us_mean": round(statistics.fmean(met) * 1e6, 1),
        "agreement_us_max": round(max(met) * 1e6, 1),
        "agreement_ratio": round(statistics.fmean(met) / args.step_seconds, 7),
        "vote_ms_mean": round(statistics.fmean(votes) * 1e3, 2),
    }
    met_goals = own <= GOAL_STEP_NS and report["agreement_ratio"] <= GOAL_RATIO
    print(json.dumps({**report, "goals_met": met_goals}) if args.json else _text(report))
    return 0 if met_goals else 1


def _text(report: dict[str, Any]) -> str:
    return (
        f"guard.step(), nothing asked: {report['step_ns']} ns (an empty call: {report['empty_call_ns']} ns; "
        f"goal at most {GOAL_STEP_NS:.0f} ns)\n"
        f"agreement of {WORLD} ranks in {report['flushes']} flushes: {report['agreement_us_mean']} us mean, "
        f"{report['agreement_us_max']} us max in a step of {report['step_seconds'] * 1000:.0f} ms: "
        f"{report['agreement_ratio']:.4%} (goal at most {GOAL_RATIO:.1%})\n"
        f"vote before a save, once a flush: {report['vote_ms_mean']} ms"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--flushes", type=int, default=20)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
