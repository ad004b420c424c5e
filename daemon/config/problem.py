"""What is wrong with a configuration, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

Loc = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One fault. ``line`` and ``column`` count from 1; both are 0 where the fault is the file itself."""

    line: int
    column: int
    path: str
    message: str

    def text(self, file: Path) -> str:
        """One line: ``file:line:column: path: message``."""
        place = f"{file}:{self.line}:{self.column}" if self.line else str(file)
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ConfigError(Exception):
    """The configuration cannot be used. ``problems`` holds every fault, in the order of the file."""

    def __init__(self, file: Path, problems: tuple[Problem, ...]) -> None:
        self.file = file
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(problem.text(file) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at a place in the data, before that place is looked up in the text.

    ``at_key`` points at the key instead of its value; ``at`` is the position itself, where it is known.
    """

    loc: Loc
    message: str
    at_key: bool = False
    at: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Positions:
    """Where each key and each value of a document begins, as (line, column) from 1."""

    keys: dict[Loc, tuple[int, int]] = field(default_factory=dict)
    values: dict[Loc, tuple[int, int]] = field(default_factory=dict)

    def problem(self, fault: Fault) -> Problem:
        """Place a fault; what is not in the text is placed at the nearest thing around it that is."""
        line, column = self._find(fault)
        return Problem(line, column, dotted(fault.loc), fault.message)

    def _find(self, fault: Fault) -> tuple[int, int]:
        if fault.at is not None:
            return fault.at
        if fault.at_key and fault.loc in self.keys:
            return self.keys[fault.loc]
        for length in range(len(fault.loc), -1, -1):
            if fault.loc[:length] in self.values:
                return self.values[fault.loc[:length]]
        return (1, 1)


def dotted(loc: Loc) -> str:
    """``("jobs", 0, "every")`` as ``jobs.0.every``; every part is printable and bounded."""
    return ".".join(str(part) if _plain(part) else shown(part) for part in loc)


def shown(value: object, limit: int = 40) -> str:
    """A value from outside, fit for a message: quoted, ASCII, at most about ``limit`` characters."""
    text = ascii(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def _plain(part: str | int) -> bool:
    return isinstance(part, int) or (len(part) <= 40 and part.isascii() and part.isprintable() and part != "")
