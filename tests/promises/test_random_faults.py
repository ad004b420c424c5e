"""Promise 1 under random crashes, orders and faults: nothing committed is lost, nothing torn is resumed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.promises.faults import Faults

from outlast.simulations.mishap import NONE
from outlast.simulations.zygote import Zygote
from outlast.wire.store import scan


@pytest.fixture
def folder() -> Iterator[Path]:
    """For the worlds; near the root, as the path of a socket is short."""
    with tempfile.TemporaryDirectory(prefix="outlast-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Forks the processes."""
    with Zygote(tmp_path_factory.mktemp("zygote") / "log") as one:
        yield one


def play(zygote: Zygote, folder: Path, how: settings) -> None:
    """Run stories; one that fails is told as it was found: to shrink it would take minutes."""
    factory: Any = partial(Faults, zygote, folder)
    quick = settings(
        how, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate)
    )
    run_state_machine_as_test(factory, settings=quick)


def test_promise_1_under_a_few_faults(zygote: Zygote, folder: Path) -> None:
    """The same few stories each time, so that a change that breaks the promise is seen at once."""
    play(zygote, folder, settings(max_examples=20, stateful_step_count=20, derandomize=True))


@pytest.mark.long
def test_promise_1_under_many_faults(zygote: Zygote, folder: Path) -> None:
    """Other stories each time, longer ones and many more."""
    play(zygote, folder, settings(max_examples=200, stateful_step_count=40, print_blob=True))


@pytest.mark.parametrize("late", ["one chunk", "every chunk"])
def test_nobody_writes_into_what_is_being_committed(zygote: Zygote, folder: Path, late: str) -> None:
    """Other bytes of the same tag that come in the midst of a commit never tear what it gives its name to."""
    committed = []
    for halt in range(1, 43, 3):
        story = Faults(zygote, folder)
        try:
            for name in ("a", "twin"):
                story.save(name, 70, frozen=False, lacking=0)
                story.commit(name, NONE)
            story.collide("b", 0, halt, every=late == "every chunk")
            story.world.judge()
            committed.append(bool(scan(story.world.nodes["b"].replicas)))
        finally:
            story.teardown()
    assert any(committed)
