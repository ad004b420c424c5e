"""The receiver's store: fence, offers, resumption, space, and what a hostile sender cannot do."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ship.deliver import NOTHING, chunk_of, deliver, offer, put

from outlast.daemon.checkpoint.recovery import recover, sweep
from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.protocol import (
    Commit,
    HandOver,
    Offer,
    State,
    Warn,
    encode,
    request_body,
)
from outlast.daemon.ship.words import RefusedError, fence, read_handover
from outlast.providers.base import Clock, SystemClock
from outlast.simulations.saved import committed
from outlast.simulations.sshd import receive_command
from outlast.wire.digests import chunks_in
from outlast.wire.manifest import MANIFEST_NAME
from outlast.wire.store import Committed, newest_whole, scan, verify


def test_a_delivered_checkpoint_is_whole_and_deepspeed_finds_it(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """What was sent is committed here with the sender's own manifest, and `latest` names it."""
    item = committed(tmp_path / "store", 100)
    deliver(landing, item)
    found = newest_whole(replicas)
    assert found is not None
    assert found.manifest == item.manifest
    assert (replicas / "epoch-1" / "latest").read_text() == item.tag
    assert list((replicas / "epoch-1" / ".staging").iterdir()) == []
    assert offer(landing, item) == {}
    assert landing.answer(Commit(1, item.tag), NOTHING)["bytes"] == item.manifest.total_bytes
    assert landing.answer(State(), NOTHING)["newest"] == {"epoch": 1, "tag": item.tag, "step": 100}


def test_a_commit_before_all_is_there_names_what_is_missing(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """An incomplete or altered transfer never gets its name."""
    item = committed(tmp_path / "store", 100)
    offer(landing, item)
    with pytest.raises(RefusedError, match=r"missing and \d+ more"):
        landing.answer(Commit(1, item.tag), NOTHING)
    assert scan(replicas) == []


def test_altered_bytes_are_refused_and_only_that_chunk_is_wanted(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """A byte altered on the way is found on arrival; a file put there by rsync is read in the commit."""
    item = committed(tmp_path / "store", 100)
    wanted, entry = offer(landing, item), item.manifest.files[0]
    chunk, data = chunk_of(item, entry, 0)
    with pytest.raises(RefusedError, match="altered"):
        landing.answer(chunk, io.BytesIO(b"x" * len(data)))
    assert offer(landing, item) == wanted
    for each in item.manifest.files[1:]:
        put(landing, item, each)
    staged = replicas / "epoch-1" / ".staging" / item.tag / entry.path
    staged.write_bytes(b"x" * entry.size)
    with pytest.raises(RefusedError, match=entry.path):
        landing.answer(Commit(1, item.tag), NOTHING)
    assert offer(landing, item) == {entry.path: [(0, 1)]}
    put(landing, item, entry)
    landing.answer(Commit(1, item.tag), NOTHING)
    assert verify(replicas / "epoch-1" / item.tag) == []


def test_files_that_did_not_change_are_not_wanted(landing: Landing, tmp_path: Path) -> None:
    """A file with the digest of one that is here already does not travel again."""
    item = committed(tmp_path / "store", 100)
    deliver(landing, item)
    again = replace(item.manifest, tag="global_step101", step=101)
    assert landing.answer(Offer(again), NOTHING)["want"] == []
    landing.answer(Commit(1, "global_step101"), NOTHING)
    assert landing.answer(State(), NOTHING)["newest"]["step"] == 101


def test_another_job_is_refused(landing: Landing, tmp_path: Path) -> None:
    """One key delivers one job."""
    item = committed(tmp_path / "store", 100, job="other")
    with pytest.raises(RefusedError) as caught:
        offer(landing, item)
    assert caught.value.code == "wrong_job"


def test_no_space_is_told_before_a_byte_is_sent(replicas: Path, tmp_path: Path) -> None:
    """A receiver that cannot hold the checkpoint says so with numbers; what it has stays."""
    before = committed(tmp_path / "store", 100)
    deliver(Landing(replicas, "gpt", SystemClock()), before)
    full = Landing(replicas, "gpt", SystemClock(), free=lambda _: 1000)
    item = committed(tmp_path / "store", 200)
    with pytest.raises(
        RefusedError, match=r"needs \d+ bytes more and 64 MiB to spare, 1000 are free"
    ) as caught:
        offer(full, item)
    assert caught.value.code == "no_space"
    found = newest_whole(replicas)
    assert found is not None
    assert found.manifest == before.manifest


def test_a_lower_epoch_is_fenced(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """Once an epoch was committed or handed over into, nothing older is accepted in any way."""
    old = committed(tmp_path / "store", 100, epoch=1)
    other = committed(tmp_path / "store", 101, epoch=1)
    offer(landing, other)
    new = committed(tmp_path / "store", 90, epoch=2)
    deliver(landing, new)
    assert fence(replicas) == 2
    entry = other.manifest.files[0]
    for attempt in (
        lambda: offer(landing, old),
        lambda: put(landing, other, entry),
        lambda: landing.answer(Commit(1, other.tag), NOTHING),
        lambda: landing.answer(HandOver(1, old.tag, 100), NOTHING),
        lambda: landing.answer(Warn("notice", 1.0, 100, 1), NOTHING),
    ):
        with pytest.raises(RefusedError) as caught:
            attempt()
        assert caught.value.code == "fenced"


def test_handover_moves_the_fence_once(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """A handover needs its checkpoint here, gives epoch + 1, can be repeated, and fences the giver."""
    item = committed(tmp_path / "store", 100, epoch=3)
    request = HandOver(3, item.tag, 100)
    with pytest.raises(RefusedError, match="ship it first"):
        landing.answer(request, NOTHING)
    deliver(landing, item)
    assert landing.answer(request, NOTHING) == landing.answer(request, NOTHING) == {"ok": True, "epoch": 4}
    written = read_handover(replicas)
    assert written is not None
    assert (written.epoch, written.tag, written.step, written.from_epoch) == (4, item.tag, 100, 3)
    later = committed(tmp_path / "store", 110, epoch=3)
    with pytest.raises(RefusedError, match="epoch 3 is over"):
        offer(landing, later)


def test_a_warning_is_written_with_its_deadline(replicas: Path, manual_clock: Clock, tmp_path: Path) -> None:
    """The standby's daemon reads a deadline in wall-clock seconds."""
    Landing(replicas, "gpt", manual_clock).answer(Warn("notice", 30.0, 7, 1), NOTHING)
    body: dict[str, Any] = json.loads((replicas / "warning.json").read_text())
    now = manual_clock.wall()
    assert body == {"kind": "notice", "deadline_wall": now + 30.0, "step": 7, "epoch": 1, "at": now}


def test_a_transfer_under_way_is_not_swept(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """The standby's daemon clears stale transfers only."""
    item = committed(tmp_path / "store", 100)
    offer(landing, item)
    assert sweep(replicas, set()) == []
    landing.close()
    assert len(sweep(replicas, set())) == 1
    assert set(offer(landing, item)) == {entry.path for entry in item.manifest.files}


def test_replicas_do_not_pile_up(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """The newest two replicas stay, older ones go."""
    for step in (10, 20, 30):
        deliver(landing, committed(tmp_path / "store", step))
        landing.tidy()
    assert [item.step for item in scan(replicas)] == [30, 20]


@pytest.mark.parametrize("limit", [1000, 100_000])
def test_a_disk_that_fills_up_in_mid_file(limit: int, tmp_path: Path, replicas: Path) -> None:
    """Running out of space while bytes arrive is told as such, and the half file is gone."""
    item = committed(tmp_path / "store", 100, shard_bytes=200_000)
    script = (
        "import resource, sys; from outlast.daemon.ship import receive;"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); sys.exit(receive.main(sys.argv[1:]))"
    )
    entry = max(item.manifest.files, key=lambda each: each.size)
    lines: list[dict[str, Any]] = [{"op": "offer", "manifest": item.manifest.as_dict()}]
    chunk, data = chunk_of(item, entry, 0)
    lines.append(request_body(chunk))
    sent = "".join(json.dumps(line) + "\n" for line in lines).encode() + data
    command = [sys.executable, "-c", script, "--root", str(tmp_path / "replicas"), "--job", "gpt"]
    done = subprocess.run(command, input=sent, capture_output=True, check=False)
    refusals = [answer for answer in map(json.loads, done.stdout.splitlines()) if not answer["ok"]]
    assert refusals[0]["code"] == "no_space"
    assert not list(replicas.rglob("*.outlast-part"))


DYING = """
import os, sys
from pathlib import Path
from outlast.daemon.ship.landing import Landing
from outlast.daemon.ship.receive import Wire, serve
from outlast.providers.base import SystemClock

left = int(sys.argv[2])

def step(name):
    global left
    if left == 0:
        os._exit(99)
    left -= 1

sys.exit(serve(Landing(Path(sys.argv[1]), "gpt", SystemClock(), step=step), Wire(0), 1))
"""


def transcript(item: Committed, *, handover: bool = True) -> bytes:
    """Everything a sender says in one go."""
    place = {"epoch": item.epoch, "tag": item.tag}
    out = json.dumps({"op": "offer", "manifest": item.manifest.as_dict()}).encode() + b"\n"
    for entry in item.manifest.files:
        for index in range(chunks_in(entry.size)):
            chunk, data = chunk_of(item, entry, index)
            out += encode(request_body(chunk)) + data
    out += json.dumps({"op": "commit", **place}).encode() + b"\n"
    if handover:
        out += json.dumps({"op": "handover", **place, "step": item.step}).encode() + b"\n"
    return out


def test_kill_9_of_the_receiver_at_each_of_its_steps(tmp_path: Path) -> None:
    """Wherever the receiver dies, nothing half is taken for whole, and offering again completes it."""
    item = committed(tmp_path / "store", 100)
    deaths = 0
    while True:
        replicas = tmp_path / f"replicas-{deaths}" / "gpt"
        command = [sys.executable, "-c", DYING, str(replicas), str(deaths)]
        done = subprocess.run(command, input=transcript(item), capture_output=True, check=False)
        if done.returncode == 0:
            break
        assert done.returncode == 99, done.stderr
        found = scan(replicas)
        assert all(not verify(each.path) for each in found)
        before = read_handover(replicas)
        assert before is None or found
        recover(replicas)
        landing = Landing(replicas, "gpt", SystemClock())
        if before is None:
            for path, runs in offer(landing, item).items():
                entry = next(entry for entry in item.manifest.files if entry.path == path)
                put(landing, item, entry, (i for first, many in runs for i in range(first, first + many)))
            landing.answer(Commit(1, item.tag), NOTHING)
        assert landing.answer(HandOver(1, item.tag, 100), NOTHING)["epoch"] == 2
        assert verify(replicas / "epoch-1" / item.tag) == []
        landing.close()
        deaths += 1
    assert deaths >= 3 * len(item.manifest.files) + 7


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\n",
        b'{"op":"chunk","epoch":1,"tag":"t","path":"../../x","index":0,"size":1,"sha256":"'
        + b"0" * 64
        + b'"}\nx',
        b'{"op":"commit","epoch":1,"tag":"../x"}\n',
        b'{"op":"exec"}\n',
        b"x" * 2000 + b"\n",
    ],
)
def test_a_hostile_sender_gets_a_refusal_and_writes_nothing(line: bytes, tmp_path: Path) -> None:
    """Requests that are none end the session with one refusal."""
    command = receive_command(tmp_path / "r", "gpt")
    done = subprocess.run(command, input=line, capture_output=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["code"] == "bad_request"
    assert not (tmp_path / "r").exists() or not any((tmp_path / "r").rglob("*.pt"))


def test_a_manifest_that_leads_out_is_refused_over_the_wire(tmp_path: Path) -> None:
    """An offer with a path out of the folder is not an offer."""
    item = committed(tmp_path / "store", 100)
    body = item.manifest.as_dict()
    body["files"][0]["path"] = "../../../etc/cron.d/x"
    line = json.dumps({"op": "offer", "manifest": body}).encode() + b"\n"
    command = receive_command(tmp_path / "r", "gpt")
    done = subprocess.run(command, input=line, capture_output=True, check=False)
    assert json.loads(done.stdout)["code"] == "bad_request"
    assert "etc/cron.d" in json.loads(done.stdout)["because"]
    assert not (tmp_path / "r" / "gpt" / "epoch-1").exists()


def test_a_silent_sender_does_not_keep_the_receiver(tmp_path: Path) -> None:
    """After the idle time without a byte the session ends by itself."""
    from outlast.daemon.ship.receive import Wire, serve

    reader, writer = os.pipe()
    try:
        assert serve(Landing(tmp_path, "gpt", SystemClock()), Wire(reader, idle_s=0.05), 1) == 1
    finally:
        os.close(reader)
        os.close(writer)


def test_what_the_client_asks_to_run_is_ignored(tmp_path: Path) -> None:
    """The forced command answers the protocol, whatever command came with the session."""
    command = receive_command(tmp_path / "r", "gpt")
    for asked in ("touch /x", "rsync --server . /", "outlast-rsync"):
        env = {**os.environ, "SSH_ORIGINAL_COMMAND": asked}
        done = subprocess.run(command, input=b'{"op":"state"}\n', capture_output=True, check=False, env=env)
        assert json.loads(done.stdout) == {"ok": True, "fence": 0, "newest": None}


@pytest.mark.parametrize("words", ["1 ../x", "1 t", "x t", "-1 t", "1 t --daemon", "1"])
def test_rsync_is_not_started_without_an_offer(words: str, tmp_path: Path) -> None:
    """The bulk form names an epoch and a tag that were offered, and carries no option."""
    command = receive_command(tmp_path / "r", "gpt")
    env = {**os.environ, "SSH_ORIGINAL_COMMAND": f"outlast-rsync {words}"}
    done = subprocess.run(command, input=b"", capture_output=True, check=False, env=env)
    assert done.returncode == 1
    assert done.stderr.startswith(b"bad_request: ")


def test_manifest_of_a_replica_is_the_senders(landing: Landing, replicas: Path, tmp_path: Path) -> None:
    """The bytes of the manifest are the same on both sides, so either verifies the other."""
    item = committed(tmp_path / "store", 100)
    deliver(landing, item)
    here = (replicas / "epoch-1" / item.tag / MANIFEST_NAME).read_bytes()
    assert here == (item.path / MANIFEST_NAME).read_bytes()


def test_the_receiver_starts_with_the_standard_library_alone() -> None:
    """A session starts fast, and with nothing installed but Outlast itself."""
    script = (
        "import sys, outlast.daemon.ship.receive;"
        "heavy = {'asyncio', 'asyncssh', 'aiohttp', 'pydantic', 'structlog', 'yaml'} & set(sys.modules);"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_job_that_has_moved_on_is_never_handed_over_into_its_own_epoch(
    landing: Landing, replicas: Path, tmp_path: Path
) -> None:
    """Whoever took over into epoch 3, and gives the job on before it has committed there, says so."""
    item = committed(tmp_path / "store", 100, epoch=1)
    deliver(landing, item)
    request = HandOver(1, item.tag, 100, current=3)
    assert [landing.answer(request, NOTHING)["epoch"] for _ in range(2)] == [4, 4]
    assert fence(replicas) == 4
    with pytest.raises(RefusedError, match="epoch 3 is over"):
        landing.answer(HandOver(1, item.tag, 101, current=3), NOTHING)


def test_a_bad_request_of_a_sender_that_is_gone_is_no_error_here(tmp_path: Path) -> None:
    """Nobody is there to be told: the receiver ends without a word in the log."""
    command = receive_command(tmp_path / "replicas", "gpt")
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write('{"op":"nonsense"}\n')
    process.stdin.close()
    assert process.wait(20) == 1
    assert process.stderr.read() == ""
    process.stderr.close()
