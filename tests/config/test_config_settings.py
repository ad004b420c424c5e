"""Right configurations and what the code sees of them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError
from tests.config.conftest import Ground

from outlast.daemon.config import ConfigError, Settings, load

MINIMAL = """\
jobs:
  - name: tune
    checkpoints: CKPT
    every: 10m
    peer: {ssh: outlast@10.8.0.2, host_key: PUB, key: KEY}
"""

FULL = """\
node: {name: us-east-1, state: /srv/state, runtime: /srv/run}
provider:
  name: gcp
  endpoint: http://127.0.0.1:8080/
  poll: 500ms
  notice: 2m
  hints: false
jobs:
  - name: tune
    role: standby
    checkpoints: CKPT
    replicas: /var/lib/outlast/replicas
    takeover_after: 0
    stop_signal: SIGUSR1
    start:
      command: python -m train --name 'a b'
      folder: /srv
      env: {OMP_NUM_THREADS: 2, NAME: "on"}
      when: takeover
  - name: other.1
    role: standby
    replicas: /var/lib/outlast/replicas
    start: {unit: outlast-trainer@other.service}
prices: {every: 1h}
metrics: {listen: '[::1]:9464', textfile: /srv/text/outlast.prom}
log: {level: debug, format: json}
"""

Load = Callable[[str], Settings]


def test_minimal_configuration(load_text: Load, ground: Ground) -> None:
    """Five lines are enough for a primary that ships; everything else has its default."""
    settings = load_text(MINIMAL)
    assert settings.node.name == socket.gethostname()
    assert settings.node.state == Path("/var/lib/outlast")
    assert settings.node.trainer_socket == Path("/run/outlast/trainer.sock")
    assert settings.node.control_socket == Path("/run/outlast/control.sock")
    provider = settings.provider
    assert (provider.name, provider.endpoint, provider.poll_s, provider.notice_s) == ("auto", None, 1.0, None)
    assert (provider.acknowledge, provider.hints, provider.own_name) == (False, True, None)
    (job,) = settings.jobs
    assert (job.name, job.role, job.checkpoints) == ("tune", "primary", ground.checkpoints)
    assert (job.every_s, job.takeover_after_s, job.stop_signal) == (600.0, 5.0, None)
    assert (job.replicas, job.start) == (None, None)
    peer = job.peer
    assert peer is not None
    assert (peer.user, peer.host, peer.port) == ("outlast", "10.8.0.2", 22)
    assert (peer.host_key, peer.key, peer.bulk, peer.channels) == (ground.host_key, ground.key, "auto", 8)
    assert (settings.log.level, settings.log.format) == ("info", "auto")
    assert settings.prices.every_s is None
    assert (settings.metrics.listen, settings.metrics.textfile, peer.keep) == (None, None, 2)


def test_full_configuration(load_text: Load) -> None:
    """Every option arrives in the unit and the form that the code uses."""
    settings = load_text(FULL)
    assert settings.node.control_socket == Path("/srv/run/control.sock")
    assert settings.metrics.listen == ("::1", 9464)
    assert settings.metrics.textfile == Path("/srv/text/outlast.prom")
    assert settings.provider.endpoint == "http://127.0.0.1:8080"
    assert (settings.provider.poll_s, settings.provider.notice_s) == (0.5, 120.0)
    assert settings.prices.every_s == 3600.0
    first, second = settings.jobs
    assert (first.takeover_after_s, first.stop_signal) == (0.0, "USR1")
    assert first.start is not None
    assert first.start.command == ("python", "-m", "train", "--name", "a b")
    assert first.start.env == {"OMP_NUM_THREADS": "2", "NAME": "on"}
    assert (first.start.folder, first.start.when, first.start.unit) == (Path("/srv"), "takeover", None)
    assert second.start is not None
    assert (second.start.command, second.start.unit) == (None, "outlast-trainer@other.service")
    assert (second.start.when, dict(second.start.env)) == ("warning", {})


def test_snapshots_compare(load_text: Load) -> None:
    """The same text gives an equal snapshot, however it is written; one changed value gives another."""
    assert load_text(FULL) == load_text(FULL)
    assert load_text(FULL) == load_text(FULL.replace("poll: 500ms", "poll: 0.5"))
    assert load_text(FULL) != load_text(FULL.replace("poll: 500ms", "poll: 501ms"))
    assert load_text(FULL) != load_text(FULL.replace("OMP_NUM_THREADS: 2", "OMP_NUM_THREADS: 3"))


def test_snapshot_cannot_change(load_text: Load) -> None:
    """Neither a value nor a variable of the environment can be changed after loading."""
    settings = load_text(FULL)
    with pytest.raises(ValidationError, match="frozen"):
        settings.node.name = "other"
    start = settings.jobs[0].start
    assert start is not None
    with pytest.raises(TypeError):
        start.env["A"] = "b"  # type: ignore[index]  # the refusal is the test


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        *(
            ("90s", 90.0),
            ("10m", 600.0),
            ("1h30m", 5400.0),
            ("500ms", 0.5),
            ("1.5h", 5400.0),
            ("2d", 172800.0),
        ),
        *(("45", 45.0), ("0.25", 0.25), ("1e3", 1000.0), ("1.5e1", 15.0), ("1m0.5s", 60.5), ('"90s"', 90.0)),
    ],
)
def test_durations(load_text: Load, text: str, expected_s: float) -> None:
    """A duration is read in every form that a person would write."""
    settings = load_text(MINIMAL.replace("10m", text))
    assert settings.jobs[0].every_s == pytest.approx(expected_s)


def test_the_interval_may_be_left_to_the_daemon(load_text: Load) -> None:
    """`auto` is a value of its own, not a duration."""
    assert load_text(MINIMAL.replace("10m", "auto")).jobs[0].every_s == "auto"


def test_empty_sections_are_defaults(load_text: Load) -> None:
    """A section whose lines are all commented out is the same as none."""
    assert load_text(MINIMAL + "provider:\n  # name: aws\nlog:\n") == load_text(MINIMAL)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("me@peer.example:2222", ("me", "peer.example", 2222)),
        ("'me@[fd00::2]:2222'", ("me", "fd00::2", 2222)),
        ("'me@[fe80::2%eth0]'", ("me", "fe80::2%eth0", 22)),
    ],
)
def test_peer_addresses(load_text: Load, address: str, expected: tuple[str, str, int]) -> None:
    """User, host and port are taken apart, IPv6 in brackets."""
    peer = load_text(MINIMAL.replace("outlast@10.8.0.2", address)).jobs[0].peer
    assert peer is not None
    assert (peer.user, peer.host, peer.port) == expected


@pytest.mark.parametrize(
    "address", ["10.8.0.2", "a@b@c", "a@b:0", "a@b:65536", "a@-oProxyCommand=x", "-x@b", "'a@b c'"]
)
def test_bad_peer_addresses(load_text: Load, address: str) -> None:
    """What is not user@host, or would be an option to a program, is refused."""
    with pytest.raises(ConfigError, match=r"peer\.ssh: must be user@host or user@host:port"):
        load_text(MINIMAL.replace("outlast@10.8.0.2", address))


def test_file_with_byte_order_mark(ground: Ground) -> None:
    """A byte order mark, as some editors write it, does no harm."""
    file = ground.write("\ufeff" + MINIMAL)
    assert load(file, env={}).jobs[0].name == "tune"


def test_command_as_a_list(load_text: Load, ground: Ground) -> None:
    """The words of a command may be given one by one; numbers count as words."""
    text = f"jobs: [{{name: a, checkpoints: {ground.checkpoints}, start: {{command: [run, --n, 2]}}}}]\n"
    start = load_text(text).jobs[0].start
    assert start is not None
    assert start.command == ("run", "--n", "2")
