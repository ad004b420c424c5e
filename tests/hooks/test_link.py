"""The link to the daemon: what it makes of strange words, of silence and of a fork."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.hooks.agreement import Agreement
from outlast.hooks.ballot import LocalBallot
from outlast.hooks.guard import Guard
from outlast.hooks.link import SIGNAL_ANSWER_S, Link
from outlast.hooks.signals import Signals
from outlast.hooks.stream import Lines
from outlast.simulations.training.plain import build
from outlast.wire.messages import MAX_LINE, Agree, Flush, Hello, Layout, Progress, Saved, WireError, encode


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a stream."""
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=6), st.data())
def test_lines_come_whole_however_the_stream_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    """Any cut of the stream into pieces gives the same lines."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader, stream, found = Lines(ours), b"".join(line + b"\n" for line in lines), []
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            theirs.sendall(stream[:size])
            stream = stream[size:]
            found += list(reader.read())
        assert found == lines


def test_a_line_without_end_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    """A peer that never ends its line cannot fill the rank's memory."""
    ours, theirs = pair
    reader = Lines(ours)

    def write() -> None:
        with suppress(OSError):  # the reader may have closed its end by then
            theirs.sendall(b"x" * (2 * MAX_LINE))

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(WireError, match="longer"):
        _read_on(reader)
    ours.close()
    theirs.close()
    writer.join(5.0)


def _read_on(reader: Lines) -> None:
    for _ in range(100):
        list(reader.read())


@pytest.fixture
def protected(make_daemon: Callable[[int], Any], tmp_path: Path) -> Iterator[tuple[Any, Guard]]:
    """One rank and its daemon."""
    daemon = make_daemon(1)
    daemon.start()
    with build(tmp_path, LocalBallot()) as guard:
        daemon.connected()
        yield daemon, guard


def test_words_that_are_not_understood_are_left_out(
    protected: tuple[Any, Guard], caplog: pytest.LogCaptureFixture
) -> None:
    """A newer daemon's message is skipped with one warning; the link stays and does its work."""
    daemon, guard = protected
    sock = daemon._connections[0]
    sock.sendall(
        b'{"type":"cheer"}\n\xff\xfe\n{"type":"flush"}\n{"type":"cheer"}\n' + encode(Flush("f", "test"))
    )
    while not daemon.words(Saved, "f"):
        assert guard.step()
    assert daemon._connections[0] is sock
    assert len([r for r in caplog.records if "unknown message type" in r.getMessage()]) == 1


def test_progress_is_told_once_a_second_at_most(protected: tuple[Any, Guard], wait: Any) -> None:
    """Thousands of steps make a handful of messages, with the step, its seconds and the loss."""
    daemon, guard = protected

    def told() -> list[Progress]:
        return [said for _, said in daemon.said if isinstance(said, Progress)]

    while len(told()) < 3:
        assert guard.step(loss=2.5)
    assert guard.step_count > 1000
    assert len(told()) == 3
    assert told()[-1].loss == 2.5
    assert 0 < told()[-1].step_s < 0.01


def test_a_loss_that_is_no_number_does_not_end_the_loop(protected: tuple[Any, Guard]) -> None:
    """Whatever is passed as the loss, step() returns True."""
    _, guard = protected
    guard._link.wants_loss = True
    assert guard.step(loss=object())
    assert guard.step(loss="high")


def test_a_forked_child_keeps_no_connection_open(protected: tuple[Any, Guard], wait: Any) -> None:
    """A data loader's worker that outlives its rank does not make the daemon think the rank lives."""
    daemon, guard = protected
    ready, release = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(ready[1], b"r")
        os.read(release[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        guard.close()
        wait(lambda: not daemon._connections, 5.0)
    finally:
        os.write(release[1], b"x")
        os.waitpid(pid, 0)
        for end in (*ready, *release):
            os.close(end)


def test_a_pause_of_shipping_is_asked_for_and_ended(protected: tuple[Any, Guard], wait: Any) -> None:
    """The block's ends reach the daemon, also when an error leaves it; without a daemon nothing is said."""
    daemon, guard = protected
    guard.step()

    def said() -> list[float]:
        with daemon._lock:
            words = [m for _, m in daemon.said if isinstance(m, Progress)]
        return [word.pause_s for word in words if word.pause_s is not None]

    wait(lambda: guard.epoch > 0)

    def phase() -> None:
        with guard.pause_shipping(seconds=30):
            wait(lambda: said() == [30.0])
            raise KeyError

    with pytest.raises(KeyError):
        phase()
    wait(lambda: said() == [30.0, 0.0])
    daemon.stop()
    wait(lambda: not guard._link.live)
    with guard.pause_shipping():
        guard.step()
    assert not guard._agreement.outbox


def test_a_signal_is_let_through_where_the_daemon_went_away_unanswered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was told of a save and died before its answer, after which nothing could end the process."""
    now, through = [0.0], []
    rank = Agreement(LocalBallot(), lambda: now[0])
    hello = Hello("tune", 0, 1, "/c", Layout(1), 0, 1)
    link = Link("/nowhere", lambda _step, _epoch: hello, rank, lambda: now[0])
    link.signals = Signals(lambda: False, lambda: None)
    link.signals.pending = 15
    monkeypatch.setattr(Signals, "let_through", lambda _self: through.append(now[0]))
    rank.connected()
    rank.hear(Flush("f", "test"))
    rank.step_count = 1
    rank.hear(Agree("f", 1))
    assert rank.meet() is not None
    link._ask(None)
    rank.answered(Saved("f", 1, "t", 0.1), hold=False)
    rank.lost()
    for second in (1.0, SIGNAL_ANSWER_S - 1.0, SIGNAL_ANSWER_S + 1.0):
        now[0] = second
        link._ask(None)
    assert through == [SIGNAL_ANSWER_S + 1.0]
