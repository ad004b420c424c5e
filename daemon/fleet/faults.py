"""What is wrong with a file from outside: each fault with its place and what to do, several at once."""

from __future__ import annotations

from pathlib import Path

MOST_FAULTS = 20
MOST_BYTES = 4 << 30


class ImportFaultError(Exception):
    """A file cannot be imported. The text has one line a fault, each with its place and what to do."""


class Faults:
    """Gathers faults of one file, so that all of them are told at once; gives up after ``MOST_FAULTS``."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines: list[str] = []

    def add(self, line: int | str, because: str) -> None:
        """One more fault. Raises ImportFaultError once there are too many to read."""
        self._lines.append(f"{shown(str(self._file))}:{line}: {because}")
        if len(self._lines) >= MOST_FAULTS:
            self._lines.append(
                f"{shown(str(self._file))}: and maybe more; these were the first {MOST_FAULTS}."
            )
            self.settle()

    def settle(self) -> None:
        """Raise ImportFaultError if there was a fault."""
        if self._lines:
            raise ImportFaultError("\n".join(self._lines))


def fault(file: Path, line: int | str, because: str) -> ImportFaultError:
    """One fault, to be raised."""
    return ImportFaultError(f"{shown(str(file))}:{line}: {because}")


def shown(text: str, most: int = 80) -> str:
    """Text from outside on one line: without control characters, and short."""
    text = text if len(text) <= most else f"{text[:most]}…"
    return text if text.isprintable() else repr(text)[1:-1]
