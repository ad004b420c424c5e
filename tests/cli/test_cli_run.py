"""`outlast run` and those who ask it, as processes: starting, refusing to start, reloading, stopping."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.ops.exit import ExitCode
from outlast.wire.store import verify

if TYPE_CHECKING:
    from tests.cli.conftest import Place


@contextmanager
def trainer(place: Place) -> Iterator[None]:
    """Two scripted ranks as processes, killed at the end."""
    words = [
        sys.executable,
        "-m",
        "outlast.simulations.rank",
        "--socket",
        str(place.folder / "run/trainer.sock"),
    ]
    words += ["--checkpoints", str(place.folder / "ckpt"), "--world", "2", "--step-s", "0.02"]
    ranks = [subprocess.Popen([*words, "--rank", str(n)], stdout=subprocess.DEVNULL) for n in (0, 1)]
    try:
        yield
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait(10)


def sockets(place: Place) -> list[str]:
    return sorted(p.name for p in (place.folder / "run").iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_clean(place: Place, number: signal.Signals) -> None:
    """SIGTERM and SIGINT end it with 0; no socket and no traceback stays."""
    daemon = place.daemon()
    assert sockets(place) == ["control.sock", "trainer.sock"]
    assert daemon.stop(number) == ExitCode.DONE
    assert sockets(place) == []
    assert daemon.events()[-1]["event"] == "stopped"
    assert not [e for e in daemon.events() if e["level"] in {"error", "critical"}]


def test_a_stop_does_not_wait_for_the_trainer(place: Place) -> None:
    """With ranks connected it stops as fast, and they train on: the next life finds them again."""
    daemon = place.daemon()
    with trainer(place):
        daemon.until("resume")
        assert daemon.stop() == ExitCode.DONE
        assert daemon.noise() == []
        again = place.daemon()
        until_ranks(place, 2)
        assert again.stop() == ExitCode.DONE


def until_ranks(place: Place, count: int) -> dict[str, object]:
    """The status once so many ranks are connected."""
    for _ in range(200):
        status = place.outlast("status", "--json").json
        if status["jobs"][0]["trainer"]["ranks"] == count and status["jobs"][0]["trainer"]["step"]:
            job: dict[str, object] = status["jobs"][0]
            return job
    pytest.fail("the ranks did not connect")


def test_status_is_a_stable_object(place: Place) -> None:
    """The documented keys, with and without a trainer; words for people otherwise."""
    place.daemon()
    status = place.outlast("status", "--json")
    assert status.code == ExitCode.DONE
    assert set(status.json) == {"format", "node", "version", "provider", "notices", "history", "room", "jobs"}
    told = {"name", "state", "because", "seen_s_ago", "region", "zone", "instance_type", "spot"}
    assert set(status.json["provider"]) == told
    (job,) = status.json["jobs"]
    assert {"name", "role", "epoch", "because", "trainer", "flush", "held", "newest", "peer"} <= set(job)
    assert {"next_checkpoint_s", "taken_now", "plan"} <= set(job)
    assert (job["name"], job["role"], job["epoch"]) == ("tune", "primary", 1)
    assert (job["newest"], job["peer"], job["flush"], job["held"]) == (None, None, None, False)
    assert job["trainer"]["ranks"] == 0
    words = place.outlast("status").out
    assert "here: no provider, watch off" in words
    assert "tune: primary, epoch 1" in words
    assert "no trainer is connected" in words


def test_a_checkpoint_on_demand(place: Place) -> None:
    """It returns once the checkpoint is committed; the path it prints verifies."""
    place.daemon()
    with trainer(place):
        until_ranks(place, 2)
        done = place.outlast("checkpoint", "--json")
        assert done.code == ExitCode.DONE, done.err
        assert set(done.json) == {"format", "tag", "step", "epoch", "bytes", "path"}
        assert verify(Path(done.json["path"])) == []
        spoken = place.outlast("checkpoint", "--job", "tune")
        assert "committed" in spoken.out
        assert str(place.folder / "ckpt/epoch-1/global_step") in spoken.out
        words = place.outlast("status").out
        assert "2 of 2 ranks, step" in words
        assert "  taken now, you would lose " in words


def test_what_cannot_be_asked(place: Place) -> None:
    """Each refusal is one sentence with its reason, and status 1."""
    place.daemon()
    for words, why in (
        (["checkpoint"], "no checkpoint of job tune: no trainer is connected"),
        (["checkpoint", "--job", "tone"], "This node has: tune"),
        (["takeover"], "this node is primary of job tune: nothing to take over"),
    ):
        done = place.outlast(*words)
        assert done.code == ExitCode.FAILED
        assert why in done.err
        assert done.out == ""


def test_a_bad_configuration_names_every_place(place: Place) -> None:
    """All faults at once as file:line:column, and status 78."""
    place.config.write_text("node: {nane: here}\nprovider:\n  name: ans\njobs: []\n")
    done = place.outlast("run", "-c", place.config)
    assert done.code == ExitCode.BAD_CONFIG
    for where in (":1:8", ":3:9", ":4:"):
        assert f"{place.config}{where}" in done.err
    assert "name" in done.err
    assert "Traceback" not in done.err


def test_a_missing_configuration(place: Place) -> None:
    """The file that was looked for is named; status 78."""
    done = place.outlast("run", OUTLAST_CONFIG=str(place.folder / "gone.yaml"))
    assert done.code == ExitCode.BAD_CONFIG
    assert str(place.folder / "gone.yaml") in done.err


def test_two_daemons_on_one_address(place: Place) -> None:
    """The second one says so and ends with 1; the first one serves on."""
    place.daemon()
    second = place.outlast("run", "-c", place.config)
    assert second.code == ExitCode.FAILED
    assert "another daemon uses" in second.err
    assert "node.state" in second.err
    assert "Traceback" not in second.err
    assert place.outlast("status").code == ExitCode.DONE


@pytest.mark.parametrize("name", ["state", "run"])
@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_file_in_place_of_a_folder(place: Place, name: str, below: str) -> None:
    """State or runtime folder that cannot be made: which, why, which setting; status 1."""
    taken = place.folder / "taken"
    taken.write_text("")
    text = place.config.read_text().replace(f"{place.folder}/{name}", str(taken / below))
    place.config.write_text(text)
    done = place.outlast("run", "-c", place.config)
    assert done.code == ExitCode.FAILED
    assert f"cannot make {taken}" in done.err
    assert "node.state and node.runtime" in done.err
    assert "Traceback" not in done.err


def test_sighup_with_a_broken_file_keeps_serving(place: Place) -> None:
    """The running settings stay, the log says why, and a mended file is said to need a restart."""
    daemon = place.daemon()
    good = place.config.read_text()
    place.config.write_text(good.replace("every: 1h", "evry: 1h"))
    daemon.process.send_signal(signal.SIGHUP)
    refused = daemon.until("config_not_taken")
    assert f"{place.config}:4:" in refused["because"]
    assert "every" in refused["because"]
    assert place.outlast("status").code == ExitCode.DONE
    place.config.write_text(good.replace("every: 1h", "every: 2h"))
    daemon.process.send_signal(signal.SIGHUP)
    checked = daemon.until("config_checked")
    assert checked["changed"] is True
    assert "restart" in checked["hint"]
    assert daemon.stop() == ExitCode.DONE


def test_kill_9_is_followed_by_a_start(place: Place) -> None:
    """Sockets left by a killed daemon do not keep the next one from starting."""
    place.daemon().kill()
    assert sockets(place) == ["control.sock", "trainer.sock"]
    assert place.outlast("status").code == ExitCode.UNREACHABLE
    again = place.daemon()
    assert place.outlast("status").code == ExitCode.DONE
    assert again.stop() == ExitCode.DONE
