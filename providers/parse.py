"""Reading what an endpoint sent: each function takes hostile input and answers None, or says why not."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any

from outlast.providers.base import ProviderError

_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_RFC_1123 = re.compile(r"([A-Z][a-z]{2}, )?\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", re.ASCII)
_NAME = re.compile(r"[\w./:+@()-]{1,256}", re.ASCII)


def utc(text: str) -> float | None:
    """UTC epoch seconds of an ISO 8601 time with zone or an RFC 1123 time; None for anything else."""
    try:
        if _ISO.fullmatch(text):
            return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
        if _RFC_1123.fullmatch(text):
            day = text.rpartition(", ")[2]
            return datetime.strptime(day, "%d %b %Y %H:%M:%S GMT").replace(tzinfo=timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return None
    return None


def json_value(body: bytes, what: str) -> Any:
    """Whatever JSON ``body`` holds. Raises ProviderError naming ``what``."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise ProviderError(f"{what}: the answer is not JSON ({printable(body[:40])})") from exc


def json_object(body: bytes, what: str) -> dict[str, Any]:
    """The JSON object in ``body``. Raises ProviderError naming ``what``."""
    value = json_value(body, what)
    if not isinstance(value, dict):
        raise ProviderError(f"{what}: the answer is not a JSON object ({printable(body[:40])})")
    return value


def text_of(body: dict[str, Any], key: str) -> str:
    """The text at ``key``, stripped; empty where there is none or it is no text."""
    value = body.get(key)
    return value.strip() if isinstance(value, str) else ""


def name(text: str, what: str) -> str:
    """``text`` if it can be the name of a zone, type or instance. Raises ProviderError naming ``what``."""
    if not _NAME.fullmatch(text):
        raise ProviderError(f"{what}: {printable(text)!r} is not a name")
    return text


def printable(value: str | bytes, limit: int = 200) -> str:
    """Text from outside made fit for one line of a log: printable characters, at most ``limit``."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return "".join(c if c.isprintable() else " " for c in text[:limit]).strip()
