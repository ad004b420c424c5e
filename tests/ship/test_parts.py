"""Parts of a checkpoint at the receiver: in any order, repeated, with kill -9 between any two actions."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ship.deliver import NOTHING, deliver, offer, put

from outlast.daemon.checkpoint.parts import MismatchError, merge, open_parts
from outlast.daemon.checkpoint.recovery import recover
from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.protocol import Commit, HandOver, State, encode, parse_parts
from outlast.daemon.ship.words import RefusedError
from outlast.providers.base import SystemClock
from outlast.simulations.saved import FOUR_RANKS, committed, committed_part
from outlast.wire.manifest import Manifest, Part
from outlast.wire.messages import Layout
from outlast.wire.store import Committed, newest_whole, scan, verify

NODES = ("node-a", "node-b")
THREE = ("node-a", "node-b", "node-c")
SIX_RANKS = Layout(world=6, data=6, zero_stage=2)


def parts_of(
    folder: Path, step: int, nodes: tuple[str, ...] = NODES, layout: Layout = FOUR_RANKS, **how: Any
) -> list[Committed]:
    """What each node has committed on its own disk, of one save."""
    make: Any = partial(committed_part, layout=layout, **how)
    return [make(folder / node, step, Part(index, nodes)) for index, node in enumerate(nodes)]


def staged(replicas: Path) -> list[str]:
    """What lies in the first epoch's staging folder."""
    return sorted(path.name for path in (replicas / "epoch-1" / ".staging").iterdir())


def whole_step(replicas: Path) -> int | None:
    """The step of the newest whole checkpoint."""
    found = newest_whole(replicas)
    return found.step if found else None


def test_the_last_part_makes_the_checkpoint(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """Earlier ones are kept and answered with who is missing; the whole has every file and verifies."""
    one, other = parts_of(tmp_path, 100, everywhere=True)
    assert deliver(landing, other) == ["node-a"]
    assert deliver(landing, other) == ["node-a"]
    assert scan(replicas) == []
    assert newest_whole(replicas) is None
    assert deliver(landing, one) == []
    found = newest_whole(replicas)
    assert found is not None
    assert {e.path for e in found.manifest.files} == {
        e.path for e in (*one.manifest.files, *other.manifest.files)
    }
    assert found.manifest.part is None
    assert verify(found.path) == []
    assert (replicas / "epoch-1" / "latest").read_text() == found.tag
    assert staged(replicas) == []
    for again in (one, other):
        assert offer(landing, again) == {}
        assert deliver(landing, again) == []
    assert landing.answer(HandOver(1, found.tag, 100), NOTHING)["epoch"] == 2


def test_a_part_is_told_from_a_checkpoint_at_its_node(tmp_path: Path) -> None:
    """It is committed and durable there, but nobody resumes from it, and `verify` names what it is."""
    item = committed_part(tmp_path, 100, Part(1, NODES))
    assert [found.whole for found in scan(tmp_path)] == [False]
    assert newest_whole(tmp_path) is None
    assert [problem.what for problem in verify(item.path)] == ["the part of node-b, one of 2 nodes"]
    assert verify(item.path, parts=True) == []
    assert recover(tmp_path) == []
    assert not (tmp_path / "epoch-1" / "latest").exists()


def test_the_parts_of_two_saves_of_one_step_never_meet(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """After a restart the same step was saved anew: what one node had delivered before is not mixed in."""
    first = parts_of(tmp_path / "1", 100)
    again = parts_of(tmp_path / "2", 100, seed=7, flush_id="flush-again")
    assert deliver(landing, first[0]) == ["node-b"]
    assert deliver(landing, again[1]) == ["node-a"]
    assert newest_whole(replicas) is None
    assert deliver(landing, again[0]) == []
    found = newest_whole(replicas)
    assert found is not None
    assert found.manifest.flush_id == "flush-again"


def test_the_older_checkpoint_stays_until_the_newer_is_whole(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """Neither retention nor a full disk takes the last whole one, or parts of what may still become whole."""
    for item in parts_of(tmp_path, 100):
        deliver(landing, item)
    later = parts_of(tmp_path, 200)
    assert deliver(landing, later[0]) == ["node-b"]
    newest = parts_of(tmp_path, 300)
    full = Landing(replicas, "gpt", SystemClock(), free=lambda _: 66 << 20)
    offer(full, newest[1])
    landing.tidy(1)
    assert whole_step(replicas) == 100
    assert deliver(landing, later[1]) == []
    landing.tidy(1, (1, "global_step200"))
    assert whole_step(replicas) == 200
    assert [item.step for item in scan(replicas)] == [200]
    assert staged(replicas)[0].startswith("global_step300.part-1")
    for item in parts_of(tmp_path, 400):
        deliver(landing, item)
    full.close()
    landing.tidy(1, (1, "global_step400"))
    assert staged(replicas) == []


@pytest.mark.parametrize(
    ("spoil", "because"),
    [
        (lambda m: replace(m, layout=Layout(4, 2, 2)), "other layouts"),
        (lambda m: replace(m, part=Part(1, ("node-a", "node-z"))), "other nodes"),
        (lambda m: replace(m, step=101), "other steps"),
        (lambda m: replace(m, files=m.files[1:]), "not every rank has saved"),
        (lambda m: replace(m, files=(replace(m.files[0], path="mp_rank_00_model_states.pt"),)), "differ"),
        (lambda m: replace(m, files=(*m.files, replace(m.files[0], path="outlast_rank_00000.pt/x"))), "lies"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(
    tmp_path: Path, spoil: Callable[[Manifest], Manifest], because: str
) -> None:
    """Layouts, steps, nodes and files have to agree, and together they have to be complete."""
    one, other = (item.manifest for item in parts_of(tmp_path, 100))
    with pytest.raises(MismatchError, match=because):
        merge([one, spoil(other)])


def test_a_commit_of_parts_that_do_not_fit_is_refused_with_the_reason(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """Nothing is committed, what is there stays, and both nodes hear why."""
    one = committed_part(tmp_path / "a", 100, Part(0, NODES))
    other = committed_part(tmp_path / "b", 100, Part(1, NODES), seed=9, everywhere=True)
    deliver(landing, one)
    for item in (other, one):
        with pytest.raises(RefusedError, match=r"mp_rank_00_model_states.pt of node-a and of node-b differ"):
            deliver(landing, item)
    assert newest_whole(replicas) is None


def test_the_state_tells_whose_part_is_missing(landing: Landing, tmp_path: Path) -> None:
    """So that a node sends the part that others wait for, before its own newest."""
    parts = parts_of(tmp_path, 100, THREE, SIX_RANKS)
    deliver(landing, parts[2])
    offer(landing, parts[0])
    (seen,) = parse_parts(json.loads(encode(landing.answer(State(), NOTHING))))
    assert (seen.tag, seen.step) == ("global_step100", 100)
    assert seen.there == ("node-a", "node-c")
    assert seen.lacks == ("node-a", "node-b")
    for item in parts:
        deliver(landing, item)
    assert "parts" not in landing.answer(State(), NOTHING)


class Killed(BaseException):
    """kill -9, as far as one process can play it: nothing more is done."""


class Clockwork:
    """Ends the receiver after so many actions."""

    def __init__(self, left: int) -> None:
        self.left = left

    def __call__(self, _name: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


def send(replicas: Path, item: Committed, after: int) -> list[str] | None:
    """Deliver in a life of the receiver that ends after so many actions: None if it did."""
    landing = Landing(replicas, "gpt", SystemClock(), step=Clockwork(after))
    try:
        waiting = deliver(landing, item)
        landing.tidy(2, (item.epoch, item.tag))
    except Killed:
        return None
    finally:
        landing.close()
    return waiting


tries = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 40)), max_size=12)


@given(tries=tries, last=st.permutations(range(3)))
@settings(max_examples=40, deadline=None)
def test_any_order_of_deliveries_and_kills_ends_in_one_whole_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, tries: list[tuple[int, int, int]], last: list[int]
) -> None:
    """Whatever came before, a delivery of each node gives the newer one, and only what is whole counts."""
    folder = tmp_path_factory.mktemp("parts")
    old = parts_of(folder, 100, THREE, SIX_RANKS, shard_bytes=300)
    new = parts_of(folder, 200, THREE, SIX_RANKS, shard_bytes=300)
    replicas, best = folder / "replicas", 0
    for node, which, after in tries:
        send(replicas, (old, new)[which][node], after)
        found = newest_whole(replicas)
        assert (found.step if found else 0) >= best
        best = found.step if found else 0
        assert all(item.whole for item in scan(replicas))
    answers = [send(replicas, new[node], 10_000) for node in last]
    assert answers[-1] == []
    assert whole_step(replicas) == 200
    assert not list(replicas.rglob("*damaged*"))
    shutil.rmtree(folder)


@pytest.mark.parametrize("after", range(40))
def test_a_merge_cut_off_anywhere_is_finished_at_the_next_start(tmp_path: Path, after: int) -> None:
    """The standby needs no sender for it: all bytes are there."""
    replicas, parts = tmp_path / "replicas", parts_of(tmp_path, 100)
    send(replicas, parts[0], 10_000)
    landing = Landing(replicas, "gpt", SystemClock())
    wanted = offer(landing, parts[1])
    for entry in parts[1].manifest.files:
        if entry.path in wanted:
            put(landing, parts[1], entry)
    landing.close()
    dying = Landing(replicas, "gpt", SystemClock(), step=Clockwork(after))
    try:
        dying.answer(Commit(1, parts[1].manifest.staged), NOTHING)
    except Killed:
        named = (replicas / "epoch-1/.staging/global_step100.part-1/outlast.manifest.json").exists()
        recover(replicas)
        # Until its own manifest is there, the part has not arrived, and its sender has to say commit again.
        assert whole_step(replicas) == 100 or not named
        assert send(replicas, parts[1], 10_000) == []
    finally:
        dying.close()
    assert whole_step(replicas) == 100
    assert staged(replicas) == []
    assert not list(replicas.rglob("*damaged*"))


def test_two_connections_that_commit_at_once_make_one(tmp_path: Path) -> None:
    """Each node's last word may come at the same instant; one hears that it is whole, in the end both."""
    replicas, parts = tmp_path / "replicas", parts_of(tmp_path, 100)
    heard: list[list[str]] = []
    start = threading.Barrier(2)

    def node(item: Committed) -> None:
        landing = Landing(replicas, "gpt", SystemClock())
        start.wait()
        heard.append(deliver(landing, item))
        landing.close()

    threads = [threading.Thread(target=node, args=(item,)) for item in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, heard)) == [0, 1]
    assert whole_step(replicas) == 100
    landing = Landing(replicas, "gpt", SystemClock())
    assert [deliver(landing, item) for item in parts] == [[], []]


def test_a_part_goes_on_where_another_sender_of_the_node_broke_off(tmp_path: Path) -> None:
    """A daemon that was restarted does not send again what has arrived."""
    replicas, (item, _) = tmp_path / "replicas", parts_of(tmp_path, 100)
    first = Landing(replicas, "gpt", SystemClock())
    before = offer(first, item)
    put(first, item, item.manifest.files[0])
    first.close()
    second = Landing(replicas, "gpt", SystemClock())
    assert set(before) - set(offer(second, item)) == {item.manifest.files[0].path}
    assert deliver(second, item) == ["node-b"]


def test_files_of_an_older_checkpoint_are_linked_into_a_part(landing: Landing, tmp_path: Path) -> None:
    """What did not change does not travel, and the older checkpoint stays as it is."""
    whole = committed(tmp_path / "old", 100, layout=FOUR_RANKS)
    deliver(landing, whole)
    item = committed_part(tmp_path / "a", 200, Part(1, NODES), seed=100)
    assert offer(landing, item) == {}
    assert deliver(landing, item) == ["node-a"]
    other = committed_part(tmp_path / "b", 200, Part(0, NODES), seed=100)
    assert deliver(landing, other) == []
    landing.tidy()


def test_what_lies_open_is_bounded_and_older_ones_are_not_told(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """Parts that a newer whole checkpoint has overtaken are nobody's business."""
    deliver(landing, parts_of(tmp_path, 100)[0])
    assert [item.step for item in open_parts(replicas, None)] == [100]
    assert open_parts(replicas, (1, 100)) == []
    assert [path.name for path in (replicas / "epoch-1").iterdir()] == [".staging"]
