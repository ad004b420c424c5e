"""Words from outside, made safe to show: zone names, hosts and notes come from other machines."""

from __future__ import annotations

import unicodedata

# Controls, formats (bidirectional, zero width), surrogates, private use, unassigned, enclosing marks.
_NEVER = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Me"})
_SPACES = frozenset({"Zs", "Zl", "Zp"})
# One mark on a letter is writing; a heap of them paints over the lines above.
_MOST_MARKS = 1
# A spreadsheet takes a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@")


def clean(text: str, most: int = 80) -> str:
    """``text`` on one line of at most ``most`` characters, without anything that a terminal would act on.

    Control and format characters are dropped, runs of white space become one space, and what is too long
    ends in an ellipsis. Markup characters stay: the template escapes them, and rich is given no markup.
    """
    shown: list[str] = []
    marks = 0
    for letter in text[: 8 * most + 64]:
        kind = unicodedata.category(letter)
        if kind in _SPACES or letter in "\t\n\r":
            shown.append(" ")
        elif kind == "Mn":
            marks += 1
            if marks <= _MOST_MARKS:
                shown.append(letter)
            continue
        elif kind not in _NEVER:
            shown.append(letter)
        marks = 0
    line = " ".join("".join(shown).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def elide(text: str, most: int) -> str:
    """``text`` with its middle left out if it is longer than ``most``: zones differ at their ends."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"


def cell(text: str) -> str:
    """``text`` for a CSV file: clean, and no formula where a spreadsheet opens it."""
    safe = clean(text, most=1000)
    return f"'{safe}" if safe.startswith(_FORMULA) else safe
