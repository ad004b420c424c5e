"""What a drill looks for on both nodes' disks, and what it shows while it runs."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from tests.conftest import ManualClock

from outlast.simulations.drill.display import Live, Plain
from outlast.simulations.drill.losses import StepLine
from outlast.simulations.drill.nodes import PRIMARY, STANDBY
from outlast.simulations.drill.rehearsal import damaged, secret_in, unfinished
from outlast.simulations.drill.scenario import Seen
from outlast.simulations.drill.timeline import Mark, Story
from outlast.simulations.saved import committed, save_tag
from outlast.simulations.sshd import make_key


def test_whole_store_has_nothing_to_tell(tmp_path: Path) -> None:
    """Committed checkpoints and an empty staging folder are as it should be."""
    committed(tmp_path, 10)
    committed(tmp_path, 20, epoch=2)
    (tmp_path / "epoch-2/.staging").mkdir()
    assert (unfinished(tmp_path), damaged(tmp_path)) == ([], [])


def test_half_made_checkpoints_are_found(tmp_path: Path) -> None:
    """A folder under its temporary name, one without manifest under a final name, and staged files."""
    committed(tmp_path, 10)
    save_tag(tmp_path / "epoch-1/global_step20.partial")
    save_tag(tmp_path / "epoch-1/global_step30")
    save_tag(tmp_path / "epoch-1/.staging/global_step40")
    assert [path.name for path in unfinished(tmp_path)] == [
        ".staging",
        "global_step20.partial",
        "global_step30",
    ]


def test_altered_checkpoint_is_found(tmp_path: Path) -> None:
    """One bit of a committed checkpoint that differs is damage."""
    whole = committed(tmp_path, 10)
    file = whole.path / "mp_rank_00_model_states.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert damaged(tmp_path) == [whole.path]


@pytest.mark.blocking  # the test itself reads and writes small files
async def test_key_material_in_a_log_is_found(tmp_path: Path) -> None:
    """A log or a history that holds a line of a private key is named; the key file itself is not."""
    (tmp_path / "sshd").mkdir()
    keys = [await make_key(tmp_path / "sshd" / name) for name in ("client", "host")]
    for name in ("logs/a.log", "us-east-1/state/history.sqlite3", "us-east-1/state/jobs/drill.trainer.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{keys[0].public}\n")
    assert secret_in(tmp_path) == []
    secret = keys[0].private.read_text().splitlines()[3]
    (tmp_path / "us-east-1/state/history.sqlite3").write_text(f'{{"event": "x", "text": "{secret}"}}')
    assert secret_in(tmp_path) == ["us-east-1/state/history.sqlite3"]


def seen(primary: int, standby: int, *marks: Mark) -> Seen:
    """Both nodes at a step, and what they have recorded since the provider's word at 100."""
    steps = {
        PRIMARY: [StepLine(n, "", 0.0) for n in range(1, primary + 1)],
        STANDBY: [StepLine(n, "", 0.0) for n in range(primary + 1, standby + 1)],
    }
    return Seen(steps, Story(100.0 if marks else 0.0, marks))


NOTICE = Mark("notice_seen", PRIMARY, 100.5, fields={"action": "terminate", "seconds_left": 119.5})
TAKEN = Mark("taken_over", STANDBY, 103.0, fields={"tag": "global_step12", "step": 12, "epoch": 2})


def test_plain_progress_tells_each_event_once(manual_clock: ManualClock) -> None:
    """Steps come by tens, events as they are recorded, each with its time since the provider's word."""
    out = io.StringIO()
    watch = Plain(20, manual_clock, out)
    for step in range(13):
        watch.look(seen(step, 0))
    manual_clock.advance(5)
    watch.look(seen(12, 0, NOTICE))
    watch.look(seen(12, 20, NOTICE, TAKEN))
    watch.reference(20)
    assert out.getvalue().splitlines() == [
        "    0.0 s  us-east-1 at step 10 of 20",
        "    5.0 s    +0.50 s us-east-1: notice seen (120 s left)",
        "    5.0 s    +3.00 s us-west-2: taken over (global_step12, epoch 2)",
        "    5.0 s  us-west-2 at step 20 of 20",
        "    5.0 s  uninterrupted at step 20 of 20",
    ]


def test_steps_that_are_not_known_yet_are_not_told(manual_clock: ManualClock) -> None:
    """A run that goes on until a checkpoint has arrived has no last step to count towards."""
    out = io.StringIO()
    watch = Plain(None, manual_clock, out)
    watch.look(seen(75, 0))
    assert out.getvalue().splitlines() == ["    0.0 s  us-east-1 at step 75"]


def test_terminal_progress_ends_with_the_drill(
    manual_clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal sentences stay; brackets in them are no markup, and the moving line goes at the end."""
    with Live(20, manual_clock, color=False) as watch:
        watch.say("[red]starting[/red]")
        watch.look(seen(12, 0, NOTICE))
    said = capsys.readouterr()
    assert said.out == ""
    assert "[red]starting[/red]" in said.err
    assert "us-east-1: notice seen (120 s left)" in said.err


def test_store_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """A node that never received anything has no folder of replicas."""
    shutil.rmtree(tmp_path)
    assert (unfinished(tmp_path), damaged(tmp_path)) == ([], [])
