"""The trainer protocol's lines: what is said is heard, and nothing else is."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import fields
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.wire.messages import (
    MAX_LINE,
    Ask,
    FromHook,
    Hello,
    Layout,
    Message,
    Progress,
    StandDown,
    ToHook,
    WireError,
    decode_from_hook,
    decode_to_hook,
    encode,
)

WORDS = st.text(max_size=40)
FROM_HOOK: tuple[Any, ...] = get_args(FromHook)
TO_HOOK: tuple[Any, ...] = get_args(ToHook)
NUMBERS = st.floats(allow_nan=False)
FINITE: dict[Any, Any] = {float: NUMBERS, float | None: st.none() | NUMBERS}


def any_of(kinds: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """A message of any of these kinds, every field drawn (defaults are not relied on)."""
    return st.one_of(*(st.builds(kind, **_fields(kind)) for kind in kinds))


def _fields(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {item.name: FINITE.get(hints[item.name], ...) for item in fields(kind)}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
HELLO = {
    "type": "hello",
    "job": "tune",
    "rank": 0,
    "pid": 7,
    "checkpoints": "/ckpt",
    "layout": {"world": 2},
}


def line(body: object) -> bytes:
    return json.dumps(body).encode()


def heard(data: bytes) -> list[Message]:
    """What either side makes of a line; anything raised but WireError is a fault."""
    messages: list[Message] = []
    for decode in (decode_from_hook, decode_to_hook):
        with suppress(WireError):
            messages.append(decode(data))
    return messages


@given(any_of(FROM_HOOK))
def test_a_rank_is_heard_as_it_spoke(message: FromHook) -> None:
    """Every message of a rank is one line, and comes back equal."""
    data = encode(message)
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    assert decode_from_hook(data) == message


@given(any_of(TO_HOOK))
def test_the_daemon_is_heard_as_it_spoke(message: ToHook) -> None:
    """Every message of the daemon is one line, and comes back equal."""
    assert decode_to_hook(encode(message)) == message


@given(any_of(TO_HOOK))
def test_nobody_speaks_for_the_other_side(message: ToHook) -> None:
    """A rank cannot say what only the daemon says."""
    with pytest.raises(WireError, match="unknown message type"):
        decode_from_hook(encode(message))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    """Nothing but WireError comes of arbitrary bytes."""
    heard(data)


@given(
    st.sampled_from([kind.type for kind in (*FROM_HOOK, *TO_HOOK)]),
    st.dictionaries(
        st.sampled_from(
            [
                "job",
                "rank",
                "pid",
                "layout",
                "step",
                "id",
                "tag",
                "seconds",
                "hold",
                "step_s",
                "then",
                "epoch",
            ]
        ),
        JSON,
    ),
)
def test_any_object_is_a_message_or_refused(kind: str, body: dict[str, Any]) -> None:
    """Known types with fields of any shape: a message whose fields have their types, or WireError."""
    for message in heard(line({**body, "type": kind})):
        assert message.type == kind
        assert type(getattr(message, "step", 0)) is int
        assert type(getattr(message, "hold", False)) is bool


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (HELLO | {"rank": "0"}, "rank is str"),
        (HELLO | {"rank": True}, "rank must not be a boolean"),
        (HELLO | {"rank": 0.5}, "rank is float"),
        (HELLO | {"rank": None}, "rank is NoneType"),
        (HELLO | {"layout": [2]}, "layout is not an object"),
        (HELLO | {"layout": {}}, "world"),
        ({"type": "hello"}, "job"),
        ({"type": "flush", "id": "f", "reason": "r", "hold": 1}, "unknown message type 'flush'"),
        ({"type": "progress", "step": 1, "step_s": 10**400}, "step_s"),
        ({"type": None}, "unknown message type None"),
        ({"type": ["hello"]}, "unknown message type"),
        ([], "not a JSON object"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(body: object, why: str) -> None:
    """The refusal names the field or the type."""
    with pytest.raises(WireError) as refused:
        decode_from_hook(line(body))
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"{", b"\xff\xfe", b"[" * 30_000, b'{"type":"ask","reason":"' + b"9" * 5], ids=repr
)
def test_what_is_not_json_is_refused(data: bytes) -> None:
    """Cut lines, other encodings and towers of brackets end in WireError."""
    with pytest.raises(WireError, match="not JSON"):
        decode_from_hook(data[:MAX_LINE])


def test_a_line_has_a_bound() -> None:
    """One byte more than allowed is refused before it is parsed."""
    most = encode(Ask("")).rstrip(b"\n")
    fits = most.replace(b'""', b'"' + b"x" * (MAX_LINE - len(most)) + b'"')
    assert len(fits) == MAX_LINE
    assert isinstance(decode_from_hook(fits), Ask)
    with pytest.raises(WireError, match="at most 65536"):
        decode_from_hook(fits + b" ")


def test_newer_hooks_may_say_more() -> None:
    """Unknown keys are ignored, so the protocol can grow; whole numbers may stand for seconds."""
    hello = decode_from_hook(line(HELLO | {"mood": "good", "layout": {"world": 2, "expert": 4}}))
    assert hello == Hello("tune", 0, 7, "/ckpt", Layout(2))
    assert decode_from_hook(line({"type": "progress", "step": 3, "step_s": 2})) == Progress(3, 2.0)
    said = decode_to_hook(b'{"type":"stand_down","reason":"r","then":"train","later":[1]}')
    assert said == StandDown("r", "train")


def test_a_loss_that_is_not_a_number_is_a_loss() -> None:
    """A diverged run says NaN; its progress is heard all the same."""
    said = decode_from_hook(encode(Progress(4, 0.1, loss=float("nan"))))
    assert isinstance(said, Progress)
    assert said.loss is not None
    assert said.loss != said.loss
