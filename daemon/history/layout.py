"""Where segments lie and how large they may be: what their writer, a receiver and a reader agree on."""

from __future__ import annotations

from typing import Final

FOLDER: Final = "stats"
SUFFIX: Final = ".jsonl.gz"
# A segment of ours is a few hundred bytes; a first one, of years, a megabyte.
MOST_BYTES: Final = 4 * 1024 * 1024
MOST_SEQ: Final = 99_999_999
_MOST_NODE = 100


def node_folder(node: str, writer: str) -> str:
    """The folder's name of one node's file: a machine of the same name with a new disk has its own."""
    return f"{node[:_MOST_NODE].lstrip('.-') or 'node'}.{writer}"


def file_name(seq: int) -> str:
    """The name of segment ``seq``; names are in the order of their numbers."""
    return f"{seq:08d}{SUFFIX}"


def number_of(name: str) -> int | None:
    """The number in a segment's name; None for any other name."""
    digits = name.removesuffix(SUFFIX)
    if digits == name or len(digits) != 8 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)
