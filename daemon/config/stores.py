"""The values of a job's stores: where they are, and how many destinations must have a checkpoint."""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

from outlast.daemon.config.problem import shown
from outlast.daemon.config.values import text
from outlast.daemon.store.address import Address, parse

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def address(value: object) -> Address:
    """A store's URL or a folder's absolute path."""
    return value if isinstance(value, Address) else parse(text(value))


def endpoint(value: object) -> str | None:
    """The address of a server that speaks a cloud's protocol; without the last slash."""
    if value is None:
        return None
    url = text(value)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname is not None and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"[\s@?#\\]", url):
        safe = shown(re.sub(r"//[^/]*@", "//...@", url))
        raise ValueError(f"must be an address such as https://minio.example:9000, not {safe}")
    return url.rstrip("/")


def word(value: object) -> str | None:
    """The name of a region or an account."""
    if value is not None and _WORD.fullmatch(text(value)) is None:
        raise ValueError(f"may hold letters, digits, '.', '_' and '-', not {shown(value)}")
    return None if value is None else text(value)


def require(value: object) -> Literal["any", "all"] | int:
    """How many destinations must have a newer checkpoint before an old one may go here."""
    if value == "any" or value == "all":
        return "any" if value == "any" else "all"
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be any, all or a number of destinations, not {shown(value)}")
    return value
