"""How far long work has come, told to whoever wants to know."""

from __future__ import annotations

from collections.abc import Callable

# What is being done, how many parts are done, of how many.
Tell = Callable[[str, int, int], None]


def nothing(what: str, done: int, of: int) -> None:
    """Tell nobody how far it is."""
    del what, done, of
