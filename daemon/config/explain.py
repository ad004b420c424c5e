"""The validator's errors in the words of the person who wrote the file."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from outlast.daemon.config.model import (
    JobSettings,
    LogSettings,
    MetricsSettings,
    NodeSettings,
    PeerSettings,
    PriceSettings,
    ProviderSettings,
    Settings,
    StartSettings,
    StoreSettings,
)
from outlast.daemon.config.problem import Fault, Loc, shown

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_SECTIONS: dict[tuple[str, ...], type[BaseModel]] = {
    (): Settings,
    ("node",): NodeSettings,
    ("provider",): ProviderSettings,
    ("jobs",): JobSettings,
    ("jobs", "peer"): PeerSettings,
    ("jobs", "start"): StartSettings,
    ("jobs", "stores"): StoreSettings,
    ("prices",): PriceSettings,
    ("metrics",): MetricsSettings,
    ("log",): LogSettings,
}


def explain(error: ValidationError) -> Iterator[Fault]:
    """One fault an error; what the validator was given is never repeated unless it is harmless."""
    for detail in error.errors(include_url=False, include_context=True):
        loc: Loc = detail["loc"]
        if detail["type"] == "extra_forbidden":
            yield Fault(loc, _unknown_key(loc), at_key=True)
        else:
            yield Fault(loc, _message(detail))


def _message(detail: ErrorDetails) -> str:
    tell = _MESSAGES.get(detail["type"])
    return tell(detail) if tell is not None else _lower(detail["msg"])


def _literal(detail: ErrorDetails) -> str:
    value = detail["input"]
    expected = str(detail["ctx"]["expected"])
    allowed = [part.strip(" '") for part in expected.replace(" or ", ",").split(",")]
    guess = difflib.get_close_matches(str(value).lower(), allowed, 1) if isinstance(value, str) else []
    advice = f"; did you mean {guess[0]}?" if guess else ""
    return f"must be one of {', '.join(allowed)}, not {shown(value)}{advice}"


def _size(detail: ErrorDetails) -> str:
    bound = detail["ctx"].get("ge", detail["ctx"].get("le"))
    word = "at least" if "ge" in detail["ctx"] else "at most"
    return f"must be {word} {bound}, not {shown(detail['input'])}"


_MESSAGES: dict[str, Callable[[Any], str]] = {
    "missing": lambda _: "required, but missing",
    "value_error": lambda detail: str(detail["ctx"]["error"]),
    "literal_error": _literal,
    "model_type": lambda _: "must hold keys and values",
    "tuple_type": lambda _: "must be a list; begin each item with '- '",
    "bool_type": lambda detail: f"must be true or false, not {shown(detail['input'])}",
    "int_type": lambda detail: f"must be a whole number, not {shown(detail['input'])}",
    "greater_than_equal": _size,
    "less_than_equal": _size,
}


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _unknown_key(loc: Loc) -> str:
    here = tuple(part for part in loc[:-1] if isinstance(part, str))
    said = f"unknown key {shown(loc[-1])}"
    wanted = str(loc[-1])[:40].replace("-", "_").lower()
    near = _near(wanted, here)
    if near is not None:
        return f"{said}; did you mean {near}?"
    for section in _SECTIONS:
        near = _near(wanted, section)
        if near is not None:
            return f"{said}; {near} belongs {'under ' + '.'.join(section) if section else 'at the top'}"
    return said


def _near(wanted: str, section: tuple[str, ...]) -> str | None:
    model = _SECTIONS.get(section)
    guess = difflib.get_close_matches(wanted, _keys(model) if model else [], 1, cutoff=0.7)
    return guess[0] if guess else None


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
