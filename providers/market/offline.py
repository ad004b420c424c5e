"""Prices and risk figures from files: Outlast's own JSON, a CSV of prices, or a source's answer as saved.

Known answers: Spot Advisor's file; `aws ec2 describe-spot-price-history`; Azure retail prices, Resource
Graph rows and placement scores; Google's SKUs; Vast.ai offers. Several of them, pages for instance, may
stand in one JSON list. A saved answer counts from the time at which the file was written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from outlast.providers.base import ProviderError
from outlast.providers.market import plain_csv, saved
from outlast.providers.market.base import Answer
from outlast.providers.market.own_json import FORMAT, own_answers
from outlast.providers.market.reading import decode
from outlast.providers.parse import printable

MAX_FILE = 256 * 1024 * 1024


class OfflineError(Exception):
    """A file that cannot be used; the text names it and says why and what to do."""


def read_answers(path: Path) -> tuple[Answer, ...]:
    """All answers of a file. Raises OfflineError. Blocks: run it in a thread beside an event loop."""
    try:
        size, at = path.stat().st_size, path.stat().st_mtime
        if size > MAX_FILE:
            raise ProviderError(f"it has more than {MAX_FILE} bytes; save fewer types or regions")
        content = path.read_bytes()
        return _answers(content, at, path)
    except OSError as exc:
        raise OfflineError(f"{_shown(path)} cannot be read: {exc.strerror or type(exc).__name__}") from exc
    except ProviderError as exc:
        raise OfflineError(f"{_shown(path)} cannot be used: {exc}") from exc


def dump_answers(answers: Iterable[Answer]) -> str:
    """Outlast's own JSON of ``answers``, in one line; ``read_answers`` gives the same back."""
    return json.dumps(body_of(answers))


def body_of(answers: Iterable[Answer]) -> dict[str, Any]:
    """What ``outlast prices --json`` prints, as plain values."""
    return {"format": FORMAT, "answers": [asdict(answer) for answer in answers]}


def _answers(content: bytes, at: float, path: Path) -> tuple[Answer, ...]:
    start = content[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start not in {b"{", b"["}:
        name = re.sub(r"[^\w.-]", "_", path.name[:60], flags=re.ASCII)
        return (plain_csv.read(content, at, f"file:{name}"),)
    body = decode(content, "the file")
    documents = body if isinstance(body, list) else [body]
    found: list[Answer] = []
    for document in documents:
        if not isinstance(document, dict):
            raise ProviderError("its JSON list holds something that is no object")
        if "answers" in document:
            found += own_answers(document)
        else:
            found.append(saved.read(document, at))
    if not found:
        raise ProviderError("it holds no answer")
    return tuple(found)


def _shown(path: Path) -> str:
    return printable(str(path), 300)
