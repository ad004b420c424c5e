"""Outlast's own JSON of answers, read back strictly: a wrong value is refused with where it stands."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeVar, get_args

from outlast.providers.base import ProviderError
from outlast.providers.market.base import Answer, Measure, Quote, QuoteKind, Risk
from outlast.providers.market.reading import MOST_USD, YEAR_10000, word
from outlast.providers.parse import printable

FORMAT = 1
MOST_MICRO = int(MOST_USD) * 1_000_000
T = TypeVar("T")


def own_answers(body: dict[str, Any]) -> tuple[Answer, ...]:
    """The answers of a body {"format", "answers"}. Raises ProviderError."""
    if body.get("format") != FORMAT:
        raise ProviderError(f"its format is not {FORMAT}; it is from another version of Outlast")
    return tuple(_answer(row, f"answers[{i}]") for i, row in enumerate(_list(body, "answers", "")))


def _answer(row: Any, where: str) -> Answer:
    if not isinstance(row, dict):
        raise ProviderError(f"{where} is no object")
    source = _text(row, "source", where)
    quotes = tuple(_quote(q, f"{where}.quotes[{i}]") for i, q in enumerate(_list(row, "quotes", where)))
    risks = tuple(_risk(r, f"{where}.risks[{i}]") for i, r in enumerate(_list(row, "risks", where)))
    lacks = tuple(printable(text, 400) for text in _list(row, "lacks", where) if isinstance(text, str))
    flags = (row.get("cached", False) is True, row.get("complete", True) is True)
    return Answer(source, _at(row, where), quotes, risks, lacks, *flags)


def _quote(row: Any, where: str) -> Quote:
    place = _place(row, where)
    kind = _choice(row, "kind", get_args(QuoteKind), where)
    micro = row.get("micro_usd")
    if not isinstance(micro, int) or isinstance(micro, bool) or not 0 < micro <= MOST_MICRO:
        raise ProviderError(f"{where}.micro_usd is no whole number of millionths of a dollar")
    return Quote(*place, kind, micro, _at(row, where), _text(row, "source", where))


def _risk(row: Any, where: str) -> Risk:
    place = _place(row, where)
    measure: Measure = _choice(row, "measure", get_args(Measure), where)
    low, high = _number(row, "low", where), _number(row, "high", where)
    if low > high:
        raise ProviderError(f"{where}: low is above high")
    text = row.get("text")
    shown = printable(text, 60) if isinstance(text, str) else ""
    return Risk(*place, measure, low, high, shown, _at(row, where), _text(row, "source", where))


def _place(row: Any, where: str) -> tuple[str, str, str, str]:
    if not isinstance(row, dict):
        raise ProviderError(f"{where} is no object")
    zone = "" if row.get("zone") == "" else _text(row, "zone", where)
    region = "" if row.get("region") == "" else _text(row, "region", where)
    return (_text(row, "provider", where), region, zone, _text(row, "instance_type", where))


def _text(row: dict[str, Any], key: str, where: str) -> str:
    found = word(row.get(key))
    if found is None:
        raise ProviderError(f"{where}.{key} is no name")
    return found


def _at(row: dict[str, Any], where: str) -> float:
    seconds = _number(row, "at", where)
    if not 0 <= seconds < YEAR_10000:
        raise ProviderError(f"{where}.at is no time in UTC epoch seconds")
    return seconds


def _number(row: dict[str, Any], key: str, where: str) -> float:
    value = row.get(key)
    if isinstance(value, int | Decimal) and not isinstance(value, bool) and -(10**12) < value < 10**12:
        return float(value)
    raise ProviderError(f"{where}.{key} is no number")


def _choice(row: dict[str, Any], key: str, known: tuple[T, ...], where: str) -> T:
    for choice in known:
        if row.get(key) == choice:
            return choice
    raise ProviderError(f"{where}.{key} is not one of {', '.join(map(str, known))}")


def _list(row: dict[str, Any], key: str, where: str) -> list[Any]:
    value = row.get(key, [])
    if not isinstance(value, list):
        raise ProviderError(f"{f'{where}.{key}'.lstrip('.')} is no list")
    return value
