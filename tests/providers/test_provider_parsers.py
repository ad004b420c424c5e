"""Bodies from outside, as hostile as they come: a ProviderError or a value, never anything else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ManualClock

from outlast.providers import aws, azure, gcp, parse
from outlast.providers.base import Notice, ProviderError
from outlast.providers.http import MetadataClient, Reply

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KEYS = ["EventId", "EventType", "Resources", "EventStatus", "NotBefore", "Description"]
EVENTS = st.dictionaries(
    st.sampled_from(KEYS), JSON | st.sampled_from(["Preempt", "Started", ["vm"], ["vm", 1], ""])
)
BODIES = st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode())


@given(BODIES)
def test_arbitrary_bodies_are_no_aws_notice(body: bytes) -> None:
    """Whatever bytes stand in place of a notice are refused with a reason of one line."""
    with pytest.raises(ProviderError) as caught:
        aws.instance_action(body)
    assert "\n" not in str(caught.value)


@given(BODIES, st.sampled_from([aws.REBALANCE, aws.MAINTENANCE, aws.LIFECYCLE]))
def test_arbitrary_bodies_in_place_of_hints(body: bytes, key: str) -> None:
    """Hints are read or refused."""
    with suppress(ProviderError):
        assert all(hint.detail.isprintable() for hint in aws.hints_in(key, body))


@given(st.lists(st.dictionaries(st.sampled_from(["State", "Code", "EventId", "NotBefore"]), JSON)))
def test_arbitrary_maintenance_events(events: list[dict[str, Any]]) -> None:
    """Maintenance events with members of any type are read as hints or left out."""
    for hint in aws.hints_in(aws.MAINTENANCE, json.dumps(events).encode()):
        assert hint.kind == "maintenance"


@given(BODIES)
def test_arbitrary_bodies_in_place_of_events(body: bytes) -> None:
    """A document of Azure is a list of events or refused."""
    with suppress(ProviderError):
        assert isinstance(azure.events_in(body), list)


@given(EVENTS | JSON)
def test_arbitrary_events(event: Any) -> None:
    """An event with members of any type is a notice, a hint, nothing, or refused."""
    with suppress(ProviderError):
        seen = azure.about(event, "vm", 100.0, 1e9, 30.0)
        if isinstance(seen, Notice):
            assert seen.deadline >= 100.0
            assert event["EventType"].strip() in {"Preempt", "Terminate"}


@given(st.binary(max_size=60), st.sampled_from([gcp.PREEMPTED, gcp.MAINTENANCE]), st.integers(100, 599))
def test_arbitrary_values_of_google(body: bytes, key: str, status: int) -> None:
    """A value is one of the known ones or refused."""
    with suppress(ProviderError):
        assert gcp._value(key, Reply(status, {}, body, 0.0)) in {*gcp._VALUES[key]}


@given(st.text() | st.from_regex(parse._ISO, fullmatch=True) | st.from_regex(parse._RFC_1123, fullmatch=True))
def test_arbitrary_times(text: str) -> None:
    """A time is seconds or None."""
    assert isinstance(parse.utc(text), float | None)


@pytest.mark.parametrize(
    ("text", "wall"),
    [
        ("2017-09-18T08:22:00Z", 1505722920.0),
        ("2017-09-18T08:22:00.5Z", 1505722920.5),
        ("2017-09-18T10:22:00+02:00", 1505722920.0),
        ("Mon, 19 Sep 2016 18:29:47 GMT", 1474309787.0),
        ("21 Jan 2019 09:00:43 GMT", 1548061243.0),
        ("2017-09-18T08:22:00", None),
        ("2017-13-18T08:22:00Z", None),
        ("now", None),
        ("", None),
    ],
)
def test_times_of_the_providers(text: str, wall: float | None) -> None:
    """The forms the providers use are read exactly; a time without zone is none."""
    assert parse.utc(text) == wall


@given(st.text(max_size=300))
def test_names_and_log_lines_are_clean(text: str) -> None:
    """Text for a log is printable and short; a name has only letters that names have."""
    assert parse.printable(text).isprintable()
    with suppress(ProviderError):
        assert "\n" not in parse.name(text, "zone")


@pytest.mark.parametrize("endpoint", ["ftp://x", "http://", "nonsense", "http://[::1", "http://x:99999999"])
def test_a_bad_endpoint_is_refused(endpoint: str) -> None:
    """An endpoint that is no HTTP address is refused with what to do."""
    with pytest.raises(ProviderError, match="correct it"):
        MetadataClient(endpoint, ManualClock())
