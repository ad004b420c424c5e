"""Keeps secrets out of everything that is logged.

What leaves :func:`redact` holds only plain values; whatever else was logged has become text and been
searched, so that a renderer cannot bring a secret back by calling ``repr``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from typing import Any

HIDDEN = "[redacted]"
TEXT_LIMIT = 16 * 1024
_DEPTH = 8
_ITEMS = 200

_SECRET_WORDS = frozenset(
    {
        *("token", "secret", "password", "passwd", "passphrase", "apikey"),
        *("credential", "credentials", "authorization", "cookie", "signature"),
    }
)
_OPEN_KEYS = frozenset({"host_key", "public_key", "key_path", "key_file"})
_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")

_PEM = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.S
)
_NAMED = re.compile(
    r"""(?ix)
    ( (?: x-aws-ec2-metadata-token (?!-ttl) | x-amz-security-token | x-amz-signature
        | authorization | proxy-authorization | secretaccesskey
        | aws_secret_access_key | aws_session_token | access_token | refresh_token | id_token
        | client_secret | password | passwd | (?<![a-z_-])token | (?<![a-z])sig )
      ['"]? \s{0,3} [=:] \s{0,3} (?: (?:bearer|basic) \s{1,3} )? ['"]? )
    ( [^\s'",;&}{]{1,8192} )
    """
)
_SHAPED = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bya29\.[\w-]{10,4096}|\beyJ[\w-]{8,4096}\.[\w-]{8,4096}\.[\w-]{0,4096}"
)
_LOGIN = re.compile(r"(?<=://)[^\s/@]{1,512}@")


def redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: the event with every secret replaced by ``[redacted]``."""
    return {str(key): _value(str(key), value, _DEPTH) for key, value in event.items()}


def scrub(text: str) -> str:
    """The text without private keys, tokens, passwords and logins in addresses; cut to 16 KiB."""
    text = _PEM.sub(HIDDEN, text[:TEXT_LIMIT])
    text = _NAMED.sub(lambda match: match.group(1) + HIDDEN, text)
    return _LOGIN.sub(f"{HIDDEN}@", _SHAPED.sub(HIDDEN, text))


def is_secret(key: str) -> bool:
    """Whether what stands under this key is secret whatever it looks like."""
    words = [word.lower() for word in _WORD.findall(key)]
    if "_".join(words) in _OPEN_KEYS:
        return False
    return not _SECRET_WORDS.isdisjoint(words) or words[-1:] == ["key"]


def _value(key: str, value: object, depth: int) -> object:
    if value is None or isinstance(value, bool | int | float):
        return (
            value
            if not (is_secret(key) and isinstance(value, int) and not isinstance(value, bool))
            else HIDDEN
        )
    if is_secret(key):
        return HIDDEN
    if isinstance(value, Mapping) and depth:
        items = list(value.items())[:_ITEMS]
        return {scrub(str(name)): _value(str(name), item, depth - 1) for name, item in items}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [_value(key, item, depth - 1) for item in list(value)[:_ITEMS]]
    return scrub(_as_text(value))


def _as_text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value[:TEXT_LIMIT]).decode("utf-8", "backslashreplace")
    try:
        return str(value)
    except Exception as exc:  # noqa: BLE001 - an object that cannot be shown must not end the program
        return f"<{type(value).__name__}: {type(exc).__name__}>"
