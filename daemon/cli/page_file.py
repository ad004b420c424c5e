"""Writing a page where the user asked for it: whole or not at all."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


class WriteError(Exception):
    """The page cannot be written. The text says where, why and what to do."""


def write(name: str, text: str, who: str) -> None:
    """Write ``text`` to the file ``name``, or to standard output for ``-``. Raises WriteError."""
    if name == "-":
        print(text)
        return
    file = Path(name)
    try:
        _replace(file, text)
    except OSError as exc:
        message = (
            f"cannot write {file}: {exc.strerror or exc}; name a file in a folder that may be written to"
        )
        raise WriteError(message) from exc
    print(f"{who}: written to {file}", file=sys.stderr)


def _replace(file: Path, text: str) -> None:
    """Write beside and rename: a page that was there before is whole until the new one is."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as held:
        new = Path(held.name)
        try:
            held.write(text)
            held.close()
            new.chmod(0o644)
            new.replace(file)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
