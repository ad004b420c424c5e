"""Whatever the file holds, loading it ends in settings or in a ConfigError."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.config.conftest import Ground

from outlast.daemon.config import ConfigError, load
from outlast.daemon.config.duration import LONGEST_S, seconds, words

KEYS = [
    *("node", "provider", "jobs", "log", "name", "state", "runtime", "endpoint", "poll", "notice", "role"),
    *(
        "checkpoints",
        "every",
        "peer",
        "replicas",
        "start",
        "command",
        "unit",
        "env",
        "ssh",
        "host_key",
        "key",
    ),
    *("channels", "bulk", "stop_signal", "takeover_after", "level", "format", "when", "folder", "hints"),
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=30),
    st.sampled_from(
        ["aws", "standby", "10m", "/", "a@b", "012", "1:30", "credential:x", "http://[", "http://h:x"]
    ),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=6),
    ),
    max_leaves=30,
)
MARKS = [*":{}[]'\"|#%\t\n", " ", "\n  ", "- ", "? ", "&a", "*a", "!!x", "---"]
FRAGMENTS = st.lists(st.sampled_from([*KEYS, *MARKS]), max_size=40).map("".join)
AS_OFTEN = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def attempt(file: Path) -> None:
    """Load, and let every problem be told."""
    refused: ConfigError | None = None
    try:
        load(file, env={})
    except ConfigError as exc:
        refused = exc
    assert refused is None or len(str(refused).splitlines()) == len(refused.problems) > 0


@AS_OFTEN
@given(tree=TREES)
@example(tree={"jobs": [{"name": "a", "start": {"env": {"": None}}}]})
def test_any_data(ground: Ground, tree: object) -> None:
    """Well-formed YAML of any content is accepted or refused, one line a problem."""
    attempt(ground.write(yaml.safe_dump(tree, allow_unicode=True)))


@AS_OFTEN
@given(text=FRAGMENTS | st.text(max_size=80))
@example(text='"\\U00110000"')
@example(text='"\\ud800": 1')
@example(text="%YAML 99999999999999999999.1\n---\na")
@example(text="[" * 5000)
@example(text="{? {? {? a")
@example(text="a: &x [*x]")
@example(text="- " * 3000)
def test_any_text(ground: Ground, text: str) -> None:
    """Text that merely resembles YAML is accepted or refused."""
    attempt(ground.write(text.encode("utf-8", "replace").decode()))


@AS_OFTEN
@given(raw=st.binary(max_size=200))
def test_any_bytes(ground: Ground, raw: bytes) -> None:
    """Bytes of any kind are accepted or refused."""
    file = ground.folder / "bytes.yaml"
    file.write_bytes(raw)
    attempt(file)


@given(st.integers(min_value=0, max_value=round(LONGEST_S * 1000)))
def test_durations_survive_writing(milliseconds: int) -> None:
    """A duration written in words is read back as the same duration."""
    assert seconds(words(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=1e-9)


@given(st.text(max_size=20) | st.floats() | st.integers() | st.none() | st.lists(st.integers()))
def test_durations_are_bounded(value: object) -> None:
    """A duration is between nothing and 366 days, or is refused."""
    with contextlib.suppress(ValueError):
        assert 0 <= seconds(value) <= LONGEST_S
