"""One table of many writers' files, in whatever order and however often they are merged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outlast.daemon.fleet.filling import fill
from outlast.daemon.fleet.load import observe, read
from outlast.daemon.history.counting import count, merge
from outlast.daemon.history.db import History
from outlast.daemon.history.reading import read_rows
from outlast.daemon.history.rows import Cause, LaunchRow, Pool
from outlast.daemon.history.segments import write as write_segment
from outlast.daemon.rates.table import Observed
from outlast.providers.base import Action, Hint, Identity, Notice

if TYPE_CHECKING:
    from tests.conftest import ManualClock

    NewClock = Callable[[], ManualClock]

NAMES = ("a", "b", "c")
NOW = 1_800_000_000.0 + 30 * 86_400
ENDS: dict[str, Cause] = {
    "taken": "interruption",
    "outbid": "outbid",
    "left": "failover",
    "stopped": "user-stop",
}
SLOW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
STEPS = [
    *("live", "live", "live long", "notice", "withdrawn", "hint", "copy", "copy", "segment", "segment"),
    *("reboot", "launch", "clock back", *ENDS),
]
STORIES = st.tuples(*(st.lists(st.sampled_from(STEPS), min_size=2, max_size=8) for _ in NAMES))


class Writer:
    """One machine's daemon. ``sources`` are the copies of its file and the folder of its segments."""

    def __init__(self, folder: Path, name: str, clock: ManualClock) -> None:
        self.folder, self.name, self.clock = folder, name, clock
        zone = "use1-az1" if name == "c" else "use1-az4"
        self.identity = Identity("aws", "us-east-1", "", zone, "p5.48xlarge", f"i-{name}")
        self.boots = self.words = 0
        self.sources: list[str] = []
        self._file = folder / f"{name}.sqlite3"
        self._start()

    def _start(self) -> None:
        self.boots += 1
        self.history = History.open(self._file, self.clock)
        self.spell = self.history.begin_spell(self.identity, self.name, f"boot-{self.boots}")

    def tell(self, story: list[str]) -> list[str]:
        """Live through the story; the last copy has all of it."""
        for step in story:
            self._step(step)
        self._copy()
        self.history.close()
        return self.sources

    def _step(self, step: str) -> None:
        history, clock = self.history, self.clock
        match step:
            case "live" | "live long" | "clock back":
                self._pass(step)
            case "notice":
                self.words += 1
                word = Notice(f"n-{self.words}", Action.TERMINATE, clock.monotonic() + 120, "imds")
                history.notice_seen(self.spell, word, clock.wall() + 120, f"boot-{self.boots}")
            case "withdrawn":
                history.notice_withdrawn(self.spell, f"n-{self.words}")
            case "hint":
                history.hint_seen(self.spell, Hint("h", "rebalance", "imds"))
            case "launch":
                number, pool = (
                    f"{self.name}-{clock.wall():.0f}",
                    Pool("aws", "us-east-1", self.identity.zone_id, "p5.48xlarge"),
                )
                history.launch(LaunchRow(number, pool, clock.wall(), 2, 1))
            case "reboot":
                history.close()
                clock.advance(1000)
                self._start()
            case "copy":
                self._copy()
            case "segment":
                self._segment()
            case "lost b":
                history.loss(Identity("aws", "us-east-1", "", "use1-az4", "p5.48xlarge", "i-b"), "peer")
            case _:
                history.end_spell(self.spell, ENDS[step])

    def _pass(self, step: str) -> None:
        """Time goes on; or the wall clock is set back, by less than what keeps a beginning in its month."""
        if step == "clock back":
            self.clock.step_wall(-7200)
            return
        self.clock.advance(70 if step == "live" else 5000)
        self.history.heartbeat(self.spell)

    def _copy(self) -> None:
        """A copy of the file as it is now, as a backup or a collector would take it."""
        self.history.close()
        copy = self.folder / f"{self.name}-{len(self.sources)}.sqlite3"
        shutil.copy(self._file, copy)
        self.sources.append(str(copy))
        self.history = History.open(self._file, self.clock)

    def _segment(self) -> None:
        """All that is there as one more segment."""
        changed = self.history.changed("", -1)
        assert changed is not None
        home = self.folder / f"stats-{self.name}"
        write_segment(home, self.name, changed, len(self.sources) + 1)
        self.sources.append(str(home))


@contextmanager
def told(stories: tuple[list[str], ...], new_clock: NewClock) -> Iterator[tuple[Path, list[str]]]:
    """A folder, and the sources that the writers of these stories left there."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        sources = [
            source
            for writer, story in zip(NAMES, stories, strict=True)
            for source in Writer(folder, writer, new_clock()).tell(story)
        ]
        yield folder, list(dict.fromkeys(sources))


def said(seen: Observed) -> object:
    """All that is observed, whatever the order of the pools, exposure to the microsecond."""
    table = seen.table
    order = sorted(range(len(table.pools)), key=lambda i: (table.pools[i], table.origin[i]))
    pools = [
        (
            table.pools[i],
            table.origin[i],
            (table.exposure[i] * 3600).round(5).tolist(),
            table.losses[i].tolist(),
            table.bursts[i].tolist(),
            table.causes[i].tolist(),
            (int(table.spells[i]), int(table.nodes[i]), int(table.left_on_hint[i])),
            [
                (round(float(at), 5), int(size))
                for pool, at, size in zip(table.burst_pool, table.burst_at, table.burst_size, strict=True)
                if pool == i
            ],
        )
        for i in order
    ]
    return table.first_hour, pools, [astuple(launch) for launch in seen.launches]


@st.composite
def orders(draw: st.DrawFn, sources: list[str]) -> list[list[str]]:
    """Merges one after the other: each of some sources, some of them again and again, none left out."""
    every = draw(st.permutations([*sources, *draw(st.lists(st.sampled_from(sources), max_size=4))]))
    goes, group = [], []
    for source in every:
        group.append(source)
        if draw(st.booleans()):
            goes.append(group)
            group = []
    return [*goes, group] if group else goes


@given(STORIES, st.data())
@SLOW
def test_sources_in_any_order_and_number_are_one_table(
    new_clock: NewClock, stories: tuple[list[str], ...], data: st.DataObject
) -> None:
    """Copies of a file from before and after, segments, all of them twice: each spell counts once."""
    with told(stories, new_clock) as (_, sources):
        before = said(observe(sources, NOW))
        again = data.draw(st.permutations(sources + sources[:2]))
        assert said(observe(again, NOW)) == before
        total = count(merge(*(read_rows(Path(s)) for s in sources if s.endswith(".sqlite3"))), NOW).total
        table = observe(sources, NOW).table
        assert table.losses.sum() == total.interruptions
        assert table.exposure.sum() == pytest.approx(total.exposure_hours)


@pytest.mark.parametrize("parquet", [False, True], ids=["file", "parquet"])
@given(stories=STORIES, data=st.data())
@SLOW
def test_merges_in_any_order_and_number_are_one_table(
    parquet: bool, new_clock: NewClock, stories: tuple[list[str], ...], data: st.DataObject
) -> None:
    """Merged one by one or together, older copies after newer ones, again and again: the same table."""
    with told(stories, new_clock) as (folder, sources):
        before = said(observe(sources, NOW))
        into = str(folder / "fleet")
        for group in data.draw(orders(sources)):
            fill(into, read(group), NOW, parquet=parquet)
        assert said(observe([into], NOW)) == before
        assert fill(into, read(sources), NOW, parquet=parquet) == 0, "what is there is not added again"
        assert said(observe([*sources, into, *sources[:1]], NOW)) == before


@given(STORIES, st.data())
@SLOW
def test_merges_of_merges_are_one_table(
    new_clock: NewClock, stories: tuple[list[str], ...], data: st.DataObject
) -> None:
    """Two collectors that each have some of it, a file and a folder, make the same whole either way."""
    with told(stories, new_clock) as (folder, sources):
        before = said(observe(sources, NOW))
        mine = data.draw(st.lists(st.sampled_from(sources), min_size=1, unique=True))
        one, two = str(folder / "one"), str(folder / "two")
        fill(one, read(mine), NOW)
        fill(two, read([s for s in sources if s not in mine] + mine[:1]), NOW, parquet=True)
        assert said(observe([one, two], NOW)) == said(observe([two, one], NOW)) == before
        fill(two, read([one]), NOW)
        assert said(observe([two], NOW)) == before


LOSSES = st.tuples(
    st.lists(st.sampled_from([*STEPS, "lost b"]), min_size=2, max_size=8),
    st.lists(st.sampled_from([*STEPS]), min_size=2, max_size=8),
    st.lists(st.sampled_from([*STEPS, "lost b"]), min_size=2, max_size=8),
)


@pytest.mark.parametrize("parquet", [False, True], ids=["file", "parquet"])
@given(stories=LOSSES, data=st.data())
@SLOW
def test_what_peers_saw_is_one_loss_wherever_it_is_merged(
    parquet: bool, new_clock: NewClock, stories: tuple[list[str], ...], data: st.DataObject
) -> None:
    """The peers' word may come before the victim's own file, after it or twice."""
    with told(stories, new_clock) as (folder, sources):
        before = said(observe(sources, NOW))
        into = str(folder / "fleet")
        for group in data.draw(orders(sources)):
            fill(into, read(group), NOW, parquet=parquet)
        assert said(observe([into], NOW)) == before
        assert said(observe([into, *sources[:2]], NOW)) == before
        assert fill(into, read(sources), NOW, parquet=parquet) == 0, "what is there is not added again"
        total = count(read(sources).rows, NOW).total
        assert observe([into], NOW).table.losses.sum() == total.interruptions
