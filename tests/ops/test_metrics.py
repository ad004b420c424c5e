"""The metrics: from a status to what Prometheus reads, without secrets, ids or made-up figures."""

from __future__ import annotations

import asyncio
import copy
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import ManualClock

from outlast.daemon.core.exposition import MetricsFile
from outlast.daemon.core.facts import Role
from outlast.daemon.core.job import Job
from outlast.daemon.core.notices import Live
from outlast.daemon.core.state import JobState
from outlast.daemon.ops.metrics import text

NOW = 1_800_000_000.0
SHIPPED = {"bytes": 5_000, "count": 3, "failures": 1, "last_s": 1.25}
PEER = {
    "name": "10.8.0.2:22",
    "kind": "peer",
    "reachable": True,
    "because": "",
    "newest": {"epoch": 2, "tag": "global_step90", "step": 90},
    "lag": {"steps": 10, "bytes": 700, "seconds": 4.5},
    "shipping": None,
    "shipped": SHIPPED,
}
STORE = {
    **PEER,
    "name": "s3://bucket/outlast",
    "kind": "s3",
    "because": "SecretAccessKey AKIA-refused (credentials)",
    "lag": None,
    "newest": None,
    "shipped": {"bytes": 0, "count": 0, "failures": 0, "last_s": None},
}
JOB: dict[str, Any] = {
    "name": "tune",
    "role": "primary",
    "epoch": 2,
    "because": "all quiet",
    "trainer": {"ranks": 2, "step": 110, "step_s": 0.5},
    "held": False,
    "newest": {"epoch": 2, "tag": "global_step100", "step": 100, "bytes": 900, "created": NOW - 60},
    "next_checkpoint_s": 30.0,
    "interval": {"seconds": 90.0, "auto": True, "because": "…"},
    "destinations": [PEER, STORE],
    "taken_now": {"step": 110, "peer_step": 90, "lost_steps": 20, "lost_s": 10.0, "sentence": "…"},
    "measured": {"flush_s": 0.25, "flushes": {"committed": 4, "failed": 1}},
}
STATUS: dict[str, Any] = {
    "version": "1.2",
    "provider": {"name": "aws", "state": "blind", "because": "token sesame", "seen_s_ago": 12.5},
    "notices": [{"id": "i-0abc", "seconds_left": 110.0}, {"id": "i-0abd", "seconds_left": 90.0}],
    "history": {"path": "/x", "waiting": 3, "trouble": None},
    "room": [
        {"folder": "state", "job": None, "state": "ok", "fits": 9, "free_bytes": 10, "free_inodes": None},
        {
            "folder": "checkpoints",
            "job": "tune",
            "state": "low",
            "fits": 1,
            "free_bytes": 7,
            "free_inodes": 5,
        },
    ],
    "jobs": [JOB],
}


def read(status: dict[str, Any]) -> dict[str, float]:
    """Every sample as `name{label="value",…}`, as Prometheus' own parser reads it."""
    found = {}
    for family in text_string_to_metric_families(text(status, NOW).decode()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            assert sample.timestamp is None
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_what_is_told() -> None:
    """What a loss now would cost, how far each destination is behind, and what ends when."""
    found = read(STATUS)
    peer = "destination=10.8.0.2:22,job=tune,kind=peer"
    store = "destination=s3://bucket/outlast,job=tune,kind=s3"
    expected = {
        "outlast_build_info{version=1.2}": 1,
        "outlast_watch_state{state=blind}": 1,
        "outlast_watch_state{state=ok}": 0,
        "outlast_watch_seen_timestamp_seconds": NOW - 12.5,
        "outlast_notice_present": 1,
        "outlast_notice_deadline_timestamp_seconds": NOW + 90,
        "outlast_history_trouble": 0,
        "outlast_job_role{job=tune,role=primary}": 1,
        "outlast_job_role{job=tune,role=fenced}": 0,
        "outlast_job_epoch{job=tune}": 2,
        "outlast_job_step{job=tune}": 110,
        "outlast_job_lost_steps{job=tune}": 20,
        "outlast_job_lost_seconds{job=tune}": 10,
        "outlast_peer_newest_step{job=tune}": 90,
        "outlast_checkpoint_interval_seconds{job=tune}": 90,
        "outlast_checkpoint_newest_timestamp_seconds{job=tune}": NOW - 60,
        "outlast_checkpoint_due_timestamp_seconds{job=tune}": NOW + 30,
        "outlast_flush_last_seconds{job=tune}": 0.25,
        "outlast_flushes_total{job=tune,outcome=failed}": 1,
        f"outlast_destination_reachable{{{peer}}}": 1,
        f"outlast_destination_healthy{{{peer}}}": 1,
        f"outlast_destination_healthy{{{store}}}": 0,
        f"outlast_destination_lag_steps{{{peer}}}": 10,
        f"outlast_destination_lag_bytes{{{peer}}}": 700,
        f"outlast_destination_lag_seconds{{{peer}}}": 4.5,
        f"outlast_shipped_bytes_total{{{peer}}}": 5000,
        f"outlast_shipped_bytes_total{{{store}}}": 0,
        f"outlast_ship_failures_total{{{peer}}}": 1,
        f"outlast_ship_last_seconds{{{peer}}}": 1.25,
        "outlast_room_checkpoints{folder=checkpoints,job=tune}": 1,
        "outlast_room_free_inodes{folder=checkpoints,job=tune}": 5,
        "outlast_room_state{folder=checkpoints,job=tune,state=low}": 1,
        "outlast_room_free_bytes{folder=state,job=}": 10,
    }
    assert {key: found.get(key) for key in expected} == expected


def test_what_is_not_known_is_not_made_up() -> None:
    """No notice, no deadline; nobody to lose to, no loss; a store that has nothing, no step."""
    quiet = copy.deepcopy(STATUS)
    quiet["notices"] = []
    quiet["provider"] = {"name": "none", "state": "off"}
    quiet["jobs"][0] |= {"taken_now": None, "newest": None, "interval": None, "next_checkpoint_s": None}
    quiet["jobs"][0]["destinations"][0] |= {"reachable": None, "lag": None}
    found = read(quiet)
    assert found["outlast_notice_present"] == 0
    left = (
        "deadline",
        "lost",
        "newest_timestamp",
        "interval",
        "due",
        "reachable{destination=10",
        "lag",
        "seen",
    )
    assert not [key for key in found if any(word in key for word in left)]
    assert not [key for key in found if "free_inodes{folder=state" in key]


def test_names_are_those_of_prometheus_and_nothing_secret_is_told() -> None:
    """Prefix, base units, counters by their ending; no text of an error, no id, no path."""
    page = text(STATUS, NOW).decode()
    for family in text_string_to_metric_families(page):
        assert family.name.startswith("outlast_")
        assert family.documentation
        assert not re.search(r"_(ms|milliseconds|kb|mb|percent|age)\b", family.name)
    for secret in ("AKIA", "sesame", "i-0abc", "all quiet", "/x"):
        assert secret not in page


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_name_survives(job: str, place: str) -> None:
    """Quotes, backslashes and newlines in a label are read back as they were."""
    status = copy.deepcopy(STATUS)
    status["jobs"][0]["name"], status["jobs"][0]["destinations"][0]["name"] = job, place
    text_ = text(status, NOW).decode()
    seen = [s.labels for f in text_string_to_metric_families(text_) for s in f.samples]
    assert {"job": job, "destination": place, "kind": "peer"} in seen


def test_promtool_finds_no_fault() -> None:
    """Prometheus' own judge of names and help texts, where it is installed."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    command = [promtool, "check", "metrics"]
    done = subprocess.run(command, input=text(STATUS, NOW), capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


async def test_the_file_is_written_at_once_when_a_notice_comes(
    tmp_path: Path, manual_clock: ManualClock
) -> None:
    """Before the next scrape the node may be gone; a reader never sees half a file, nor another beside it."""
    file = tmp_path / "outlast.prom"
    state = JobState(1, Role.PRIMARY, 1, "")
    job = await asyncio.to_thread(Job, "tune", None, None, state, manual_clock, None)  # type: ignore[arg-type]  # nothing is recorded here
    status = copy.deepcopy(STATUS)

    def render() -> bytes:
        status["notices"] = [{"seconds_left": 90.0}] if job.notice else []
        status["jobs"][0]["role"] = job.state.role.value
        return text(status, NOW)

    async def until(words: bytes) -> None:
        async with asyncio.timeout(10.0):
            while not file.exists() or words not in await asyncio.to_thread(file.read_bytes):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.01)

    task = asyncio.create_task(MetricsFile(file, [job], render, every_s=3600.0).run())
    try:
        await until(b"outlast_notice_present 0.0")
        job.noticed(Live("i", "i@1", "terminate", "test", NOW, manual_clock.mono + 90, NOW + 90, "boot"))
        await until(b"outlast_notice_present 1.0")
        job.became(JobState(2, Role.FENCED, 1, ""))
        await until(b'outlast_job_role{job="tune",role="fenced"} 1.0')
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.to_thread(os.listdir, tmp_path) == ["outlast.prom"]
