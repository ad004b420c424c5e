"""Lengths of time as people write them."""

from __future__ import annotations

import math
import re

from outlast.daemon.config.problem import shown

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = r"(?:([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?){})?"
_DURATION = re.compile("".join(_PART.format(unit) for unit in _UNITS))
LONGEST_S = 366 * 86400.0


def seconds(value: object) -> float:
    """``"90s"``, ``"1h30m"``, ``"500ms"`` or a number of seconds, as seconds.

    Raises ValueError for anything else, for what is negative and for more than 366 days.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be a duration such as 90s, 10m, 1h30m or 500ms")
    result = _text(value) if isinstance(value, str) else float(value)
    if not math.isfinite(result) or not 0 <= result <= LONGEST_S:
        raise ValueError(f"must be between 0s and 366d, not {shown(value)}")
    return result


def _text(value: str) -> float:
    match = _DURATION.fullmatch(value.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f"must be a duration such as 90s, 10m, 1h30m or 500ms, not {shown(value)}")
    parts = zip(match.groups(), _UNITS.values(), strict=True)
    return sum(float(number) * unit for number, unit in parts if number)


def words(value_s: float) -> str:
    """Seconds as a short duration: ``90.0`` is ``1m30s``, ``0.5`` is ``500ms``."""
    left_ms = round(value_s * 1000)
    result = ""
    for unit, size in _UNITS.items():
        count, left_ms = divmod(left_ms, round(size * 1000))
        result += f"{count}{unit}" if count else ""
    return result or "0s"
