"""T7: a torn or damaged checkpoint is named for what it is and never taken for a whole one."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast.daemon.checkpoint.commit import CommitError, commit, recover, sweep
from outlast.daemon.checkpoint.recovery import left_behind
from outlast.daemon.checkpoint.retention import prune
from outlast.daemon.cli import verify as command
from outlast.simulations.saved import FOUR_RANKS, committed, order, save_tag
from outlast.wire.manifest import MANIFEST_NAME
from outlast.wire.store import newest_whole, scan, verify, walk

VICTIM = "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"


def _missing(file: Path) -> None:
    file.unlink()


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _temporary(file: Path) -> None:
    file.rename(file.with_name(file.name + ".tmp"))


def _link(file: Path) -> None:
    shutil.move(file, file.parent.parent / "elsewhere.pt")
    file.symlink_to(file.parent.parent / "elsewhere.pt")


DAMAGE = [_missing, _empty, _short, _flipped, _temporary, _link]
damaged_by = pytest.mark.parametrize("damage", DAMAGE, ids=[item.__name__[1:] for item in DAMAGE])


def run_verify(folder: Path) -> int:
    """`outlast verify --json FOLDER`."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["verify", str(folder), "--json"])
    return int(args.run(args))


@damaged_by
def test_t7_torn_before_commit(
    damage: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tag that DeepSpeed's `latest` names but that was never committed: named, passed over, replaced."""
    whole = committed(tmp_path, 100, layout=FOUR_RANKS)
    torn = save_tag(tmp_path / "epoch-1" / "global_step200", FOUR_RANKS, seed=200)
    (tmp_path / "epoch-1" / "latest").write_text("global_step200")
    damage(torn / VICTIM)

    problems = verify(torn)
    assert {problem.path for problem in problems} > {MANIFEST_NAME}
    assert VICTIM in {problem.path for problem in problems}
    assert run_verify(tmp_path) == 1
    assert VICTIM in capsys.readouterr().out
    assert newest_whole(tmp_path) == whole
    assert recover(tmp_path) == ["Pointed epoch-1/latest at global_step100."]
    assert prune(tmp_path, 2, {(1, 100)}) == []

    save_tag(torn.with_name("global_step200.partial"), FOUR_RANKS, seed=200)
    good = commit(tmp_path, order(200, layout=FOUR_RANKS), time.time())
    assert newest_whole(tmp_path) == good
    assert torn.with_name("global_step200.damaged-1").is_dir()
    assert run_verify(tmp_path) == 0


@damaged_by
def test_t7_damaged_after_commit(
    damage: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A committed checkpoint that lost a byte: the manifest tells, the one before counts and is kept."""
    whole = committed(tmp_path, 100, layout=FOUR_RANKS)
    hurt = committed(tmp_path, 200, layout=FOUR_RANKS)
    damage(hurt.path / VICTIM)

    assert VICTIM in {problem.path for problem in verify(hurt.path)}
    assert run_verify(tmp_path) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["newest"] == {"epoch": 1, "tag": "global_step100", "step": 100}
    assert newest_whole(tmp_path) == whole
    assert prune(tmp_path, 2, {(1, 200)}) == []

    save_tag(tmp_path / "epoch-1" / "global_step200.partial", FOUR_RANKS, seed=201)
    good = commit(tmp_path, order(200, layout=FOUR_RANKS), time.time())
    assert newest_whole(tmp_path) == good
    assert good.manifest != hurt.manifest


@pytest.mark.parametrize("damage", [_missing, _empty, _temporary, _link])
def test_t7_torn_save_is_not_committed(damage: Callable[[Path], None], tmp_path: Path) -> None:
    """A rank's file that is not there, empty or not a file: nobody commits, and the file is named."""
    partial = save_tag(tmp_path / "epoch-1" / "global_step200.partial", FOUR_RANKS)
    damage(partial / VICTIM)
    with pytest.raises(CommitError) as caught:
        commit(tmp_path, order(200, layout=FOUR_RANKS), time.time())
    assert "zero_pp_rank_3_mp_rank_00_optim_states.pt" in str(caught.value)
    assert "zero_pp_rank_3_mp_rank_00_optim_states.pt" in caught.value.path
    assert scan(tmp_path) == []
    assert run_verify(partial) == 1


def test_t7_whole_folder_under_its_temporary_name(tmp_path: Path) -> None:
    """A complete save that was not committed is not whole, and a sweep clears it away."""
    whole = committed(tmp_path, 100)
    partial = save_tag(tmp_path / "epoch-1" / "global_step200.partial")
    assert "temporary name" in verify(partial)[0].what
    assert newest_whole(tmp_path) == whole
    assert recover(tmp_path) == []
    assert sweep(tmp_path, {"global_step200"}) == []
    assert sweep(tmp_path, set()) == ["Deleted epoch-1/global_step200.partial: it was never finished."]
    assert not partial.exists()
    assert newest_whole(tmp_path) == whole


def test_last_rank_missing_is_told_by_what_the_model_file_noted(tmp_path: Path) -> None:
    """The highest rank leaves no gap in the names; the world size noted by DeepSpeed gives it away."""
    torn = save_tag(tmp_path / "tag", FOUR_RANKS)
    (torn / VICTIM).unlink()
    (torn / "outlast_rank_00003.pt").unlink()
    assert VICTIM in {problem.path for problem in verify(torn)}


@pytest.mark.parametrize("hostile", [b"", b"PK\x03\x04", b"\x80\x04.", b"PK\x05\x06" + b"\0" * 18])
def test_archives_that_are_none_do_not_stop_a_check(hostile: bytes, tmp_path: Path) -> None:
    """Whatever lies in a model file, verify reports and ends."""
    torn = save_tag(tmp_path / "tag", FOUR_RANKS)
    (torn / "mp_rank_00_model_states.pt").write_bytes(hostile)
    assert verify(torn)


def test_links_in_a_store_lead_nowhere(tmp_path: Path) -> None:
    """A linked epoch, tag or sub-folder is not looked into."""
    outside = committed(tmp_path / "outside", 5)
    store = tmp_path / "store"
    (store / "epoch-1").mkdir(parents=True)
    (store / "epoch-1" / "global_step5").symlink_to(outside.path)
    (store / "epoch-2").symlink_to(outside.folder)
    assert scan(store) == []
    hurt = committed(store, 6)
    (hurt.path / "more").symlink_to(outside.path)
    assert [problem.path for problem in verify(hurt.path)] == ["more"]


def test_a_manifest_of_another_place_does_not_count(tmp_path: Path) -> None:
    """A checkpoint copied under another tag or epoch is not taken for one of there."""
    item = committed(tmp_path, 5)
    shutil.copytree(item.path, item.folder / "global_step6")
    shutil.copytree(item.folder, tmp_path / "epoch-2")
    assert [(found.epoch, found.tag) for found in scan(tmp_path)] == [(1, "global_step5")]
    assert verify(tmp_path / "epoch-2" / "global_step5")[0].what == "is of epoch 1, not of epoch-2"


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_verify_of_nothing_is_a_usage_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing folder and one without a checkpoint are not called whole."""
    (tmp_path / "empty").mkdir()
    assert run_verify(tmp_path / name) == 2
    assert str(tmp_path / name) in capsys.readouterr().err


def test_verify_says_in_words_what_is_whole_and_what_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person reads one line a checkpoint, the files at fault, and which one would be resumed from."""
    committed(tmp_path, 100, layout=FOUR_RANKS)
    hurt = committed(tmp_path, 200, layout=FOUR_RANKS)
    _flipped(hurt.path / VICTIM)
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["verify", str(tmp_path)])
    assert args.run(args) == 1
    assert capsys.readouterr().out.splitlines() == [
        "epoch-1/global_step100: whole, step 100, 9 files, 23.9 kB",
        "epoch-1/global_step200: DAMAGED",
        f"  {VICTIM}: contents differ from the manifest's digest",
        "epoch-1/latest: names 'global_step200', which is not a whole checkpoint",
        "newest whole: epoch-1/global_step100",
    ]


def test_a_file_deleted_under_the_reader_is_left_out(tmp_path: Path) -> None:
    """Retention may look at a folder that someone else is deleting: that is damage, not an error."""
    tag = save_tag(tmp_path / "global_step4", FOUR_RANKS)
    names = [name for name, _ in walk(tag)]
    seen = walk(tag)
    first, _ = next(seen)
    (tag / names[1]).unlink()
    assert [first, *(name for name, _ in seen)] == [names[0], *names[2:]]


def test_saves_that_the_ranks_have_gone_past_do_not_fill_the_disk(tmp_path: Path) -> None:
    """What a trainer left that died while it saved goes; what may be being saved now stays."""
    for step, epoch in ((300, 1), (150, 2), (250, 2)):
        save_tag(tmp_path / f"epoch-{epoch}" / f"global_step{step}.partial")
    (tmp_path / "epoch-1" / "global_step100.1.deleted").mkdir()
    item = committed(tmp_path, 200, epoch=2)
    gone = left_behind(tmp_path, (2, 200))
    assert [sentence.split(":")[0] for sentence in gone] == [
        "Deleted epoch-2/global_step150.partial",
        "Deleted epoch-1/global_step100.1.deleted",
        "Deleted epoch-1/global_step300.partial",
    ]
    left = [path.name for path in (tmp_path / "epoch-2").iterdir() if path.is_dir()]
    assert sorted(left) == [item.tag, "global_step250.partial"]
