"""What every test gets: a loop that must not block, owned tasks, a clock that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import hypothesis
import pytest
import pytest_randomly
from blockbuster import BlockBuster, blockbuster_ctx

# DeepSpeed registers a seeder of its own; to call it would load PyTorch into every test run.
pytest_randomly.entrypoint_reseeds = []

# How long one example takes says nothing on a busy machine; every test as a whole is bounded.
hypothesis.settings.register_profile("outlast", deadline=None)
hypothesis.settings.load_profile("outlast")


@pytest.fixture(autouse=True)
def _loop_stays_free(request: pytest.FixtureRequest) -> Iterator[BlockBuster | None]:
    """Our code may not block a running event loop, unless the test is marked `blocking`."""
    if request.node.get_closest_marker("blocking"):
        yield None
        return
    with blockbuster_ctx("outlast") as guard:
        yield guard


@pytest.fixture(autouse=True)
def _tasks_are_owned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test fails whose event loop closes while a task that nobody awaited or cancelled still runs."""
    left: list[str] = []
    cancel_all = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]  # private, and the only place that knows

    def note(loop: asyncio.AbstractEventLoop) -> None:
        left.extend(repr(task) for task in asyncio.all_tasks(loop))
        cancel_all(loop)

    monkeypatch.setattr(asyncio.runners, "_cancel_all_tasks", note)
    yield
    if left:
        pytest.fail("tasks left running when the loop closed:\n  " + "\n  ".join(left))


@dataclass
class ManualClock:
    """A Clock that stands still until told; ``step_wall`` jumps the wall clock alone."""

    mono: float = 1_000.0
    epoch: float = 1_800_000_000.0

    def monotonic(self) -> float:
        """Seconds, as set."""
        return self.mono

    def wall(self) -> float:
        """UTC epoch seconds, as set."""
        return self.epoch

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.mono += seconds
        self.epoch += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back; no time passes."""
        self.epoch += seconds


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock moved by hand."""
    return ManualClock()


@pytest.fixture(scope="session")
def new_clock() -> Callable[[], ManualClock]:
    """Makes clocks, for a test with several nodes or for hypothesis. Annotate with ``tests.conftest``."""
    return ManualClock
