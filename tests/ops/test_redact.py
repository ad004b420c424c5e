"""No secret reaches a log, in whatever shape it comes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.ops.redact import HIDDEN, is_secret, redact, scrub

CANARY = "cAnArY8371"

PEM = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n{CANARY}\n-----END OPENSSH PRIVATE KEY-----"


@dataclass
class Request:
    """An object whose text shows a header, as those of HTTP libraries do."""

    headers: dict[str, str]


class Unshowable:
    """An object whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError(CANARY)


EVENTS: list[dict[str, Any]] = [
    {"token": CANARY},
    {"X-aws-ec2-metadata-token": CANARY},
    {"SecretAccessKey": CANARY},
    {"secret_access_key": CANARY.encode()},
    {"private_key": CANARY},
    {"accountKey": CANARY},
    {"password": 8371, "note": "a number is no less secret"},
    {"body": {"AccessToken": [CANARY, {"x": CANARY}]}},
    {"body": [{"deep": ({"Token": CANARY},)}]},
    {"event": f"got {PEM} from disk"},
    {"error": ValueError(f"bad key {PEM[:60]}")},
    {"raw": PEM.encode()},
    {"request": Request({"X-aws-ec2-metadata-token": CANARY})},
    {"header": f"Authorization: Bearer {CANARY}"},
    {"header": f"x-aws-ec2-metadata-token: {CANARY}=="},
    {"body": "role ASIAQWERTYUIOPAS8371 assumed"},
    {"body": f'{{"SecretAccessKey" : "{CANARY}", "Token":"{CANARY}"}}'},
    {"url": f"https://me:{CANARY}@host/x"},
    {"url": f"https://host/x?sv=1&sig={CANARY}%3D&X-Amz-Signature={CANARY}"},
    {"line": f"password={CANARY} next"},
    {"jwt": f"eyJhbGciOiJFUzI1NiJ9.eyJ{CANARY}.{CANARY}"},
    {"google": f"ya29.{CANARY}-abc"},
    {"nested": {f"token={CANARY}": 1}},
    {"exception": f"Traceback…\nKeyError: 'access_token': '{CANARY}'"},
    {"odd": Unshowable()},
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: next(iter(event)))
def test_secret_is_hidden(event: dict[str, Any]) -> None:
    """A secret is hidden by its name, by its shape, inside objects and inside text."""
    shown = str(redact(None, "info", dict(event)))
    assert CANARY not in shown
    assert "8371" not in shown
    assert HIDDEN in shown or "odd" in event


@pytest.mark.parametrize(
    "event",
    [
        {"event": "saved", "tokens_per_s": 1234.5, "tokens": 10, "step": 3, "ok": True, "nothing": None},
        {"host_key": "ssh-ed25519 AAAA", "key_file": "/etc/outlast/ssh_key", "monkey": "yes", "keys": ["a"]},
        {"url": "http://169.254.169.254/latest/api/token"},
        {"header": "X-aws-ec2-metadata-token-ttl-seconds: 21600"},
        {"event": "token expired, asking for another", "path": "/data/epoch-3/global_step120"},
    ],
)
def test_the_rest_is_kept(event: dict[str, Any]) -> None:
    """What is no secret is logged as it is, numbers as numbers."""
    assert redact(None, "info", dict(event)) == event


def test_values_become_plain() -> None:
    """Only plain values leave, so that no renderer shows an object again."""
    out = redact(None, "info", {"path": Path("/x"), "set": {1}, "error": OSError(28, "No space left")})
    assert out == {"path": "/x", "set": [1], "error": "[Errno 28] No space left"}


def test_size_is_bounded() -> None:
    """Neither long texts nor deep or endless structures blow up a log."""
    nested: dict[str, Any] = {"end": 1}
    for _ in range(100):
        nested = {"x": nested}
    out = redact(None, "info", {"text": "y" * 1_000_000, "many": list(range(10_000)), "nested": nested})
    assert len(str(out)) < 40_000


@given(st.text(max_size=300))
def test_scrubbing_ends_and_is_stable(text: str) -> None:
    """Any text is scrubbed, and scrubbing again changes nothing."""
    once = scrub(text)
    assert scrub(once) == once


@given(st.text(max_size=40))
def test_any_key_can_be_judged(key: str) -> None:
    """Every key is either secret or not; adding a secret word makes it secret."""
    is_secret(key)
    assert is_secret(f"{key}_password")
