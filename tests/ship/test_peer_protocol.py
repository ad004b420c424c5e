"""The peer protocol: what one side writes the other reads, and garbage is refused by either."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.ship.protocol import (
    Chunk,
    Commit,
    Digests,
    HandOver,
    Offer,
    ProtocolError,
    Refusal,
    Request,
    State,
    Stats,
    Wanted,
    Warn,
    encode,
    parse_answer,
    parse_digests,
    parse_request,
    parse_state,
    parse_wanted,
    refusal_body,
    request_body,
)
from outlast.wire.manifest import FileEntry, Manifest
from outlast.wire.messages import Layout

SHA = "0" * 64
MANIFEST = Manifest("gpt", "t1", 1, 2, "f", "r", 3.0, Layout(1), (FileEntry("a.pt", 5, SHA),))
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@pytest.mark.parametrize(
    "request_",
    [
        State(),
        Offer(MANIFEST),
        Chunk(2, "t1", "a.pt", 3, 5, SHA),
        Digests(2, "t1", "a.pt", 3),
        Commit(2, "t1"),
        Warn("notice", 29.5, 1, 2),
        Warn("withdrawn", None, 1, 2),
        HandOver(2, "t1", 1),
        HandOver(2, "t1", 1, 4),
        Stats("node-1.5f3a", 7, 300, SHA),
    ],
)
def test_a_request_reads_back_as_it_was_written(request_: Request) -> None:
    """Every request survives the line."""
    assert parse_request(encode(request_body(request_))) == request_


@given(line=st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()))
def test_garbage_raises_protocol_error_and_nothing_else(line: bytes) -> None:
    """Whatever comes in, either side says so and nothing worse happens."""
    with pytest.raises(ProtocolError):
        parse_request(line)
    try:
        answer = parse_answer(line)
    except ProtocolError:
        return
    assert isinstance(answer, Refusal) or answer["ok"] is True


@given(
    op=st.sampled_from(["state", "offer", "chunk", "digests", "commit", "warn", "handover", "stats"]),
    values=st.dictionaries(
        st.sampled_from(
            [
                "epoch",
                "tag",
                "path",
                "size",
                "sha256",
                "index",
                "first",
                "kind",
                "seconds_left",
                "step",
                "node",
                "seq",
            ]
        ),
        st.sampled_from([SHA, "notice", [], {}])
        | st.integers()
        | st.text(max_size=8)
        | st.floats()
        | st.none(),
    ),
)
def test_a_request_of_any_values_is_in_bounds_or_refused(op: str, values: dict[str, Any]) -> None:
    """A request that is accepted is one that we could have written."""
    try:
        request = parse_request(json.dumps({"op": op, **values}).encode())
    except ProtocolError:
        return
    assert parse_request(encode(request_body(request))) == request


@given(body=st.dictionaries(st.sampled_from(["fence", "newest", "want", "digests", "epoch", "ok"]), JSON))
def test_answers_of_any_values_are_in_bounds_or_refused(body: dict[str, Any]) -> None:
    """A hostile peer's answers give values in bounds or a ProtocolError."""
    for read in (parse_state, parse_digests, lambda values: parse_wanted(values, MANIFEST)):
        try:
            read(body)
        except ProtocolError:
            continue


@pytest.mark.parametrize(
    "want",
    [
        [{"path": "b.pt", "missing": []}],
        [{"path": "a.pt", "missing": [[1, 1]]}],
        [{"path": "a.pt", "missing": [[0, 2]]}],
        [{"path": "a.pt", "missing": [[0, -1]]}],
        [{"path": "a.pt", "missing": [0]}],
        [{"path": "a.pt", "missing": [[0, 1]] * 2}],
        [{"path": "a.pt"}],
        [{"path": "a.pt", "missing": []}] * 2,
        {},
        ["a.pt"],
    ],
)
def test_a_peer_cannot_want_what_was_not_offered(want: object) -> None:
    """Only offered files are sent, once each and not beyond their end."""
    with pytest.raises(ProtocolError):
        parse_wanted({"want": want}, MANIFEST)
    good = {"want": [{"path": "a.pt", "missing": [[0, 1]]}]}
    assert parse_wanted(good, MANIFEST) == (Wanted("a.pt", ((0, 1),)),)


def test_a_refusal_is_one_bounded_line() -> None:
    """A reason with line breaks cannot be mistaken for another answer."""
    line = encode(refusal_body(Refusal("io", "a\nb" * 5000)))
    assert line.count(b"\n") == 1
    answer = parse_answer(line)
    assert isinstance(answer, Refusal)
    assert answer.because.startswith("a ba b")


@pytest.mark.parametrize(
    "line",
    [
        b'{"ok":false,"code":"made_up","because":"x"}',
        b'{"ok":false,"code":[],"because":"x"}',
        b'{"ok":1}',
        b"{}",
        b"[]",
    ],
)
def test_an_answer_that_is_neither_yes_nor_no_is_refused(line: bytes) -> None:
    """Only a true `ok` or a known refusal counts."""
    with pytest.raises(ProtocolError):
        parse_answer(line)
