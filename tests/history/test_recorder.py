"""The history in an event loop: ordered, never blocking, honest about a disk that hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.core.record import Record
from outlast.daemon.history import recorder as module
from outlast.daemon.history.db import History
from outlast.daemon.history.recorder import Recorder
from outlast.providers.base import Action, Hint, Identity, Notice

if TYPE_CHECKING:
    from tests.conftest import ManualClock

SOON = 1e9  # a deadline that a drain on a working disk never sees


@pytest.fixture
async def recorder(tmp_path: Path, manual_clock: ManualClock) -> AsyncIterator[Recorder]:
    """A recorder on an empty file."""
    opened = await Recorder.open(tmp_path / "history.sqlite3", manual_clock)
    yield opened
    assert await opened.close(SOON)
    assert not opened._thread.is_alive()


async def test_records_are_written_in_order_with_the_time_they_happened(
    recorder: Recorder, manual_clock: ManualClock
) -> None:
    """A slow disk changes neither order nor times."""
    gate = threading.Event()
    recorder.record(lambda _: gate.wait(10))
    began = manual_clock.wall()
    for number in range(50):
        recorder.event("tick", "job", number=number)
        manual_clock.advance(0.1)
    gate.set()
    events = await recorder.ask(lambda h: h.events())
    assert [event.fields["number"] for event in events] == list(range(50))
    assert [round(event.wall - began, 3) for event in events] == [round(n * 0.1, 3) for n in range(50)]


async def test_the_core_can_record_through_it(recorder: Recorder, manual_clock: ManualClock) -> None:
    """Flush and ship timings come back as the job's measured speeds."""
    record: Record = recorder  # type: ignore[assignment]  # a structural check at run time
    spell = await recorder.begin(Identity("aws", instance_id="i-1"), "a", "boot-1")
    for number, (flush_s, ship_s) in enumerate([(2.0, 4.0), (3.0, 8.0), (90.0, 2.0)]):
        record.flush("job", f"f-{number}", "asked", reason="notice")
        manual_clock.advance(flush_s)
        record.flush("job", f"f-{number}", "committed", step=number, tag=f"t-{number}", bytes=4096)
        record.ship("job", 1, f"t-{number}", "peer", "began", bytes=4096)
        manual_clock.advance(ship_s)
        record.ship("job", 1, f"t-{number}", "peer", "verified", bytes=4096)
    record.hint(Hint("r-1", "rebalance", "events"))
    recorder.notice(
        Notice("n-1", Action.TERMINATE, manual_clock.monotonic() + 120, "s"),
        manual_clock.wall() + 120,
        "boot-1",
    )
    measured = await recorder.ask(lambda h: h.measured("job"))
    assert (measured.flush_s, measured.ship_bytes_s) == (3.0, 1024.0)
    assert [n.id for n in await recorder.ask(lambda h: h.open_notices(spell))] == ["n-1"]
    recorder.withdrawn("n-1")
    recorder.end("user-stop")
    assert await recorder.ask(lambda h: h.open_notices(spell)) == []
    assert await recorder.drain(SOON)


async def test_a_hanging_disk_is_counted_and_told_and_delays_nobody(
    recorder: Recorder, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is counted, memory is bounded, the loop goes on, and draining gives up at its deadline."""
    monkeypatch.setattr(module, "FULL", 100)
    gate = threading.Event()
    recorder.record(lambda _: gate.wait(30))
    try:
        began = time.monotonic()
        for _ in range(150):
            recorder.event("tick")
        assert time.monotonic() - began < 1.0
        assert recorder.waiting == 100
        assert recorder.trouble is not None
        assert "51 records were lost" in recorder.trouble.because
        with pytest.raises(RuntimeError, match="takes no questions"):
            await recorder.ask(lambda h: h.events())
        assert not await recorder.drain(manual_clock.monotonic() + 0.05)
    finally:
        gate.set()
    assert await recorder.drain(SOON)
    assert len(await recorder.ask(lambda h: h.events())) == 99


async def test_a_disk_that_hangs_longer_than_usual_is_named(
    recorder: Recorder, manual_clock: ManualClock
) -> None:
    """After ten seconds without an answer the recorder says so, before anything is lost."""
    gate, taken = threading.Event(), threading.Event()

    def hang(_: History) -> None:
        taken.set()
        gate.wait(30)

    recorder.record(hang)
    try:
        assert await asyncio.to_thread(taken.wait, 10)
        recorder.event("tick")
        assert recorder.trouble is None
        manual_clock.advance(11)
        late = str(recorder.trouble)
        assert "has not answered for 11 s; 2 records wait" in late
    finally:
        gate.set()


async def test_a_question_that_fails_fails_for_its_asker_only(recorder: Recorder) -> None:
    """The thread outlives an error, and a question nobody waits for any more."""
    with pytest.raises(ZeroDivisionError):
        await recorder.ask(lambda _: 1 // 0)
    gate = threading.Event()
    recorder.record(lambda _: gate.wait(10))
    asked = asyncio.create_task(recorder.ask(lambda h: h.events()))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    gate.set()
    recorder.event("after")
    assert [event.kind for event in await recorder.ask(lambda h: h.events())] == ["after"]
