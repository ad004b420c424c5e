"""Where a store is, from what its user wrote. Nothing is asked and no client is needed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

EXAMPLES = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a folder such as /mnt/nfs"
CLOUDS = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure Blob Storage"}
KINDS = {**CLOUDS, "file": "a folder"}

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=-]{0,127}")


@dataclass(frozen=True, slots=True)
class Address:
    """A place for checkpoints. ``bucket`` is empty for a folder, whose path is ``prefix`` from the root."""

    scheme: str
    bucket: str
    prefix: str

    def __str__(self) -> str:
        if self.scheme == "file":
            return f"/{self.prefix}"
        return "/".join(part for part in (f"{self.scheme}://{self.bucket}", self.prefix) if part)

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return KINDS[self.scheme]

    @property
    def folder(self) -> Path | None:
        """The folder, where it is one."""
        return Path(f"/{self.prefix}") if self.scheme == "file" else None


def parse(text: str) -> Address:
    """The address that a URL or an absolute path names. Raises ValueError with what would do."""
    if text.startswith("/"):
        return _folder(text)
    try:
        parts = urlsplit(text)
        plain = not (parts.username or parts.password or parts.query or parts.fragment or parts.port)
    except ValueError:
        raise ValueError(f"is no URL of a store; write {EXAMPLES}") from None
    if parts.scheme == "file" and parts.netloc == "" and plain:
        return _folder(parts.path)
    if parts.scheme not in CLOUDS:
        raise ValueError(f"must be {EXAMPLES}")
    if not plain:
        raise ValueError(f"holds more than a bucket and a prefix; write {EXAMPLES}, without credentials")
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise ValueError(f"names no bucket that {CLOUDS[parts.scheme]} could have; write {EXAMPLES}")
    prefix = parts.path.strip("/")
    if prefix and not all(_PART.fullmatch(part) for part in prefix.split("/")):
        raise ValueError("has a prefix of other than letters, digits, '.', '_', '=', '-' between its slashes")
    return Address(parts.scheme, parts.netloc, prefix)


def _folder(path: str) -> Address:
    clean = os.path.normpath(path).strip("/")
    if not path.startswith("/") or not clean or not path.isprintable():
        raise ValueError(f"is no absolute path of a folder; write {EXAMPLES}")
    return Address("file", "", clean)
