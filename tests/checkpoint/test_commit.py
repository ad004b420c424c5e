"""Commit, recovery and retention, with kill -9 between any two actions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from outlast.daemon.checkpoint.adopting import AdoptError, adopt
from outlast.daemon.checkpoint.commit import CommitError, commit, prune, recover, sweep
from outlast.daemon.checkpoint.place import prove
from outlast.simulations.saved import FOUR_RANKS, committed, committed_part, order, save_tag
from outlast.wire import manifest
from outlast.wire.manifest import Part
from outlast.wire.messages import Layout
from outlast.wire.store import Committed, newest_whole, scan, verify

DYING = """
import os, sys, time
from pathlib import Path
from outlast.daemon.checkpoint.commit import commit
from outlast.simulations.saved import order

left = int(sys.argv[2])

def step(name):
    global left
    if left == 0:
        os._exit(99)
    left -= 1

commit(Path(sys.argv[1]), order(200), time.time(), step=step)
"""
STEPS = (
    9  # checked, digested, manifest written, manifest named, set aside, renamed, synced, latest, none left
)


def die_in_commit(store: Path, after: int) -> int:
    """Commit step 200 in a process of its own that is gone after that many actions."""
    return subprocess.run([sys.executable, "-c", DYING, str(store), str(after)], check=False).returncode


@pytest.mark.parametrize("after", range(STEPS))
def test_kill_9_at_each_step_of_a_commit(after: int, tmp_path: Path) -> None:
    """Whenever the committer dies, the older checkpoint stays, and repeating leads to the new one."""
    old = committed(tmp_path, 100)
    save_tag(tmp_path / "epoch-1" / "global_step200", seed=7)  # a torn one with the final name
    (tmp_path / "epoch-1" / "global_step200" / "mp_rank_00_model_states.pt").unlink()
    save_tag(tmp_path / "epoch-1" / "global_step200.partial", seed=200)

    assert die_in_commit(tmp_path, after) == (99 if after < STEPS - 1 else 0)

    seen = newest_whole(tmp_path)
    assert seen is not None
    assert seen == old or not verify(seen.path)
    recover(tmp_path)
    after_recovery = newest_whole(tmp_path)
    assert after_recovery is not None
    if after >= 4:  # the manifest has its name: recovery alone completes it
        assert after_recovery.step == 200
    new = commit(tmp_path, order(200), time.time())
    assert newest_whole(tmp_path) == new
    recover(tmp_path)
    assert (tmp_path / "epoch-1" / "latest").read_text() == "global_step200"
    assert old in scan(tmp_path)
    sweep(tmp_path, set())
    assert sorted(path.name for path in (tmp_path / "epoch-1").iterdir() if ".damaged" not in path.name) == [
        "global_step100", "global_step200", "latest",
    ]  # fmt: skip


def test_committing_twice_gives_the_same_checkpoint(tmp_path: Path) -> None:
    """A repeated order is answered with what is committed; nothing is written again."""
    save_tag(tmp_path / "epoch-1" / "global_step200.partial")
    first = commit(tmp_path, order(200), 1.0)
    assert commit(tmp_path, order(200), 2.0) == first


def test_a_damaged_partial_with_a_manifest_is_not_finished(tmp_path: Path) -> None:
    """Recovery checks digests before it gives a folder its name."""
    item = committed(tmp_path, 200)
    item.path.rename(item.folder / "global_step200.partial")
    victim = item.folder / "global_step200.partial" / "outlast_rank_00001.pt"
    victim.write_bytes(b"x" * victim.stat().st_size)
    assert "outlast_rank_00001.pt" in recover(tmp_path)[0]
    assert scan(tmp_path) == []


@pytest.mark.parametrize(
    ("layout", "lacking"),
    [
        (Layout(3, 3, 1, 1, 2), "outlast_rank_00002.pt"),
        (Layout(2, 2, 1, 1, 3), "zero_pp_rank_0_mp_rank_00_model_states.pt"),
        (Layout(2, 1, 2, 1, 1), ""),
        (Layout(2, 2, 1, 1, 0), ""),
    ],
)
def test_what_each_layout_must_have_saved(layout: Layout, lacking: str, tmp_path: Path) -> None:
    """Every rank's own file, every data rank's optimizer shard from ZeRO 1, its model shard in ZeRO 3."""
    save_tag(tmp_path / "epoch-1" / "global_step200.partial")
    if not lacking:
        assert commit(tmp_path, order(200, layout=layout), 1.0).manifest.layout == layout
        return
    with pytest.raises(CommitError) as caught:
        commit(tmp_path, order(200, layout=layout), 1.0)
    assert caught.value.path == lacking


def test_nothing_saved_and_bad_names_are_told(tmp_path: Path) -> None:
    """An order without a folder, or with a name that is a path, is refused with words."""
    with pytest.raises(CommitError, match="nothing was saved"):
        commit(tmp_path, order(200), 1.0)
    with pytest.raises(CommitError, match="not a name"):
        commit(tmp_path, order(200, job="../x"), 1.0)


def _converted(item: Committed, parameters: int) -> Path:
    """What DeepSpeed's converter leaves beside a checkpoint, as far as its names tell."""
    folder = item.folder / f"{item.tag}_universal"
    for number in range(parameters):
        (folder / "zero" / str(number)).mkdir(parents=True)
        (folder / "zero" / str(number) / "fp32.pt").write_bytes(b"x")
    return folder


@pytest.mark.parametrize("what", ["files", "tensor", "flush_id"])
def test_what_no_reader_would_take_is_not_called_committed(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More files than a manifest may name, or what a trainer said that cannot stand in one."""
    save_tag(tmp_path / "epoch-1" / "global_step200.partial")
    wanted = order(200)
    if what == "files":
        monkeypatch.setattr(manifest, "MAX_FILES", 3)
    elif what == "flush_id":
        wanted = replace(wanted, flush_id="f" * 5000)
    else:
        wanted = replace(wanted, layout=replace(wanted.layout, tensor=0))
    with pytest.raises(CommitError, match=what):
        commit(tmp_path, wanted, 1.0)
    assert scan(tmp_path) == []


def test_a_universal_checkpoint_of_too_many_files_is_not_called_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The converter makes three files a parameter, which for many experts are more than a manifest names."""
    item = committed(tmp_path, 200)
    folder = _converted(item, 8)
    monkeypatch.setattr(manifest, "MAX_FILES", 7)
    with pytest.raises(AdoptError, match="has 8 files"):
        adopt(folder, 1.0)
    assert not (folder / manifest.MANIFEST_NAME).exists()


def test_retention_keeps_the_newest_two_and_all_that_no_peer_has(tmp_path: Path) -> None:
    """Only what is older than the newest two and than the newest replica goes."""
    for step in (10, 20, 30, 40):
        committed(tmp_path, step)
    assert prune(tmp_path, 2, set()) == []
    assert prune(tmp_path, 2, {(1, 10)}) == []
    assert prune(tmp_path, 0, {(1, 20)}) == ["Deleted epoch-1/global_step10: 2 newer ones are committed."]
    victim = tmp_path / "epoch-1" / "global_step40" / "outlast_rank_00000.pt"
    os.truncate(victim, 3)
    assert prune(tmp_path, 2, {(1, 40)}) == []
    committed(tmp_path, 50, epoch=2)
    assert prune(tmp_path, 2, {(2, 50)}) == ["Deleted epoch-1/global_step20: 2 newer ones are committed."]
    assert [item.step for item in scan(tmp_path)] == [50, 40, 30]


def test_a_universal_checkpoint_is_no_predecessor(tmp_path: Path) -> None:
    """The newest step is here twice, and the one before it stays all the same."""
    items = [committed(tmp_path, step) for step in (10, 20, 30)]
    universal = adopt(_converted(items[-1], 1), time.time())
    assert prune(tmp_path, 2, {(1, 30)}) == ["Deleted epoch-1/global_step10: 2 newer ones are committed."]
    assert {item.tag for item in scan(tmp_path)} == {items[1].tag, items[2].tag, universal.tag}


def test_latest_stays_at_a_part_whose_checkpoint_is_whole(tmp_path: Path) -> None:
    """A node of several that starts anew points DeepSpeed at no older checkpoint than before."""
    committed(tmp_path, 50, layout=FOUR_RANKS)
    part = committed_part(tmp_path, 100, Part(0, ("a", "b")))
    prove(part)
    assert recover(tmp_path) == []
    assert (tmp_path / "epoch-1" / "latest").read_text() == part.tag
