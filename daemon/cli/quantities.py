"""Amounts as people write them on a command line: parameters, rates, lengths of time."""

from __future__ import annotations

import argparse
import math
import re

_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e\+?[0-9]{1,2})?)"
_COUNT = re.compile(_NUMBER + r"\s*([kmbt]?)", re.IGNORECASE)
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_RATE = re.compile(_NUMBER + r"\s*([kKmMgGtT]?)\s*(bit|b|bps|B)?(?:/s)?")
_AMOUNT = re.compile(_NUMBER + r"\s*([kKmMgGtT]?)B?")
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
LEAST, MOST = 1.0, 1e15


def parameters(text: str) -> float:
    """``7e9``, ``7B``, ``1.3b`` or ``500M``."""
    match = _COUNT.fullmatch(text.strip())
    value = float(match[1]) * _COUNTS[match[2].lower()] if match else 0.0
    if not LEAST <= value <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of parameters such as 7e9 or 7B")
    return value


def amount(text: str) -> int:
    """``2GB``, ``500M`` or ``60000000``: whole bytes, above 0."""
    match = _AMOUNT.fullmatch(text.strip())
    value = float(match[1]) * _PREFIXES[match[2].lower()] if match else 0.0
    if not LEAST <= value <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 2GB or 500MB")
    return int(value)


def bits_rate(text: str) -> float:
    """``10G``, ``10Gbit/s`` or ``1.25GB/s``, in bytes a second; without a unit it is bits."""
    return _rate(text, 1 / 8, "10G (bits a second) or 1.25GB/s")


def bytes_rate(text: str) -> float:
    """``2G``, ``2GB/s`` or ``16Gbit/s``, in bytes a second; without a unit it is bytes."""
    return _rate(text, 1.0, "2G (bytes a second) or 500MB/s")


def _rate(text: str, plain: float, example: str) -> float:
    match = _RATE.fullmatch(text.strip())
    value = 0.0
    if match:
        unit = plain if match[3] is None else 1.0 if match[3] == "B" else 1 / 8
        value = float(match[1]) * _PREFIXES[match[2].lower()] * unit
    if not LEAST <= value <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate such as {example}")
    return value


def length(text: str) -> float:
    """``120s``, ``2m`` or ``0s``, in seconds."""
    from outlast.daemon.config.duration import seconds

    try:
        return seconds(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def positive_length(text: str) -> float:
    """As ``length``, above 0."""
    value = length(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above nothing")
    return value


def whole(text: str) -> int:
    """A whole number from 1 to a million."""
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 10**6):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000000")
    return int(text)


def hourly(text: str) -> float:
    """A rate per hour, above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 1e-9 <= value <= 1e4:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of interruptions an hour such as 0.1")
    return value


def count(value: float) -> str:
    """A number of parameters for people: ``7B``, ``1.3B``, ``40M``."""
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{value / scale:.4g}{unit}"
    return f"{value:g}"


def size(value: float) -> str:
    """Bytes for people: ``98.0 GB``, ``12 bytes``."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value:.0f} bytes"
