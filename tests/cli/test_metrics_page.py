"""Metrics of a daemon as a scraper and node_exporter find them, and where neither can have them."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.conftest import until

from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from tests.cli.conftest import Place


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def configure(place: Place, port: int, file: Path) -> str:
    """Switch both on. Returns the page's address."""
    listen = f"metrics: {{listen: '127.0.0.1:{port}', textfile: {file}}}\n"
    place.config.write_text(place.config.read_text() + listen)
    return f"http://127.0.0.1:{port}/metrics"


def get(url: str) -> tuple[str, str]:
    """The page and its type."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def test_both_tell_what_status_tells(place: Place, tmp_path: Path) -> None:
    """The page and the file hold the same families; nothing else is served, and a stop is clean."""
    file = tmp_path / "outlast.prom"
    url = configure(place, free_port(), file)
    daemon = place.daemon()
    daemon.until("metrics_served")
    page, kind = get(url)
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(page)}
    status = place.outlast("status", "--json").json
    (epoch,) = families["outlast_job_epoch"].samples
    assert (epoch.labels, epoch.value) == ({"job": "tune"}, status["jobs"][0]["epoch"])
    assert {s.labels["state"]: s.value for s in families["outlast_watch_state"].samples}["off"] == 1
    until(file.exists)
    assert {f.name for f in text_string_to_metric_families(file.read_text())} == set(families)
    assert file.stat().st_mode & 0o444 == 0o444
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(url.replace("/metrics", "/"))
    assert daemon.stop() == ExitCode.DONE
    assert daemon.noise() == []


def test_the_file_is_for_others_to_read(place: Place, tmp_path: Path) -> None:
    """Under the umask of the unit, which keeps all else from others, node_exporter can read it."""
    file = tmp_path / "outlast.prom"
    configure(place, free_port(), file)
    before = os.umask(0o027)
    try:
        daemon = place.daemon()
    finally:
        os.umask(before)
    until(file.exists)
    assert file.stat().st_mode & 0o777 == 0o644
    assert (place.folder / "state/history.sqlite3").stat().st_mode & 0o007 == 0
    assert daemon.stop() == ExitCode.DONE


def test_an_address_that_is_taken_and_a_folder_that_is_not_there(place: Place, tmp_path: Path) -> None:
    """Each is one line in the log with what to do; the daemon serves its jobs all the same."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        configure(place, int(taken.getsockname()[1]), tmp_path / "missing/outlast.prom")
        daemon = place.daemon()
        assert "metrics.listen" in daemon.until("metrics_not_served")["hint"]
        assert "ReadWritePaths" in daemon.until("metrics_not_written")["hint"]
        assert place.outlast("status", "--json").code == ExitCode.DONE
        assert daemon.stop() == ExitCode.DONE
    assert len([e for e in daemon.events() if e["level"] == "error"]) == 2
