"""YAML text to plain data with a position for every key and value.

Stricter than YAML 1.1: a scalar is a number, ``true``, ``false``, null or text. The forms that other
readers turn into something else (``on``, ``012``, ``1:30``) are faults; so are duplicate keys. Tags and
aliases are refused, which also rules out documents that grow when they are expanded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import yaml

from outlast.daemon.config.problem import Fault, Loc, Positions, Problem, shown

MAX_BYTES = 256 * 1024

_NULL = re.compile(r"|~|null|Null|NULL")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(
    r"[-+]?([0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|[0-9]{1,18}(?=e))(e[-+]?[0-9]{1,3})?", re.I
)
_BOOL_WORD = re.compile(r"yes|no|on|off", re.IGNORECASE)
_CLOCK = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?")
_BASED = re.compile(r"[-+]?0([0-9_]+|o[0-7_]+|x[0-9a-fA-F_]+|b[01_]+)")
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Document:
    """What a text says. ``faults`` are places whose value must not be trusted."""

    data: object
    positions: Positions
    faults: tuple[Fault, ...]


class YamlError(Exception):
    """The text is not YAML as it is read here, so nothing can be said about its content."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _Loader(yaml.SafeLoader):
    """Composes nodes only; every plain scalar stays text until ``_scalar`` reads it."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the name and the type are PyYAML's

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it out
        refusal = None
        if isinstance(event, yaml.AliasEvent):
            refusal = "aliases are not supported; write the value out"
        elif getattr(event, "tag", None) is not None:
            refusal = "tags (!...) are not supported; quote the value to make it text"
        if refusal is not None and event.start_mark is not None:
            mark = event.start_mark
            raise YamlError(Problem(mark.line + 1, mark.column + 1, "", refusal))
        return super().compose_node(parent, index)


def read(text: str) -> Document:
    """Parse a text. Raises YamlError with a position."""
    root = _compose(text)
    build = _Build()
    data = None if root is None else build.value(root, ())
    return Document(data, build.positions, tuple(build.faults))


def _compose(text: str) -> yaml.Node | None:
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as exc:
        line, column = _count(text, exc.position)
        message = f"character U+{exc.character:04X} is not allowed"
        raise YamlError(Problem(line, column, "", message)) from exc
    try:
        return loader.get_single_node()
    except yaml.MarkedYAMLError as exc:
        raise YamlError(_syntax(exc)) from exc
    except RecursionError as exc:
        raise YamlError(Problem(1, 1, "", "nested too deeply")) from exc
    except (ValueError, OverflowError) as exc:  # PyYAML: "\U00110000" and the like
        mark = loader.get_mark()
        problem = Problem(mark.line + 1, mark.column + 1, "", "impossible escape or number")
        raise YamlError(problem) from exc


def _syntax(exc: yaml.MarkedYAMLError) -> Problem:
    mark = exc.problem_mark or exc.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    reason = " ".join(str(part) for part in (exc.context, exc.problem) if part) or "cannot be read"
    reason = reason.encode("ascii", "backslashreplace").decode()
    advice = "; indent with spaces, not tabs" if "\\t" in reason else ""
    return Problem(line, column, "", f"not valid YAML: {reason}{advice}")


def _count(text: str, index: int) -> tuple[int, int]:
    before = text[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1


@dataclass(slots=True)
class _Build:
    positions: Positions = field(default_factory=Positions)
    faults: list[Fault] = field(default_factory=list)

    def value(self, node: yaml.Node, loc: Loc) -> object:
        self.positions.values[loc] = (node.start_mark.line + 1, node.start_mark.column + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*loc, index)) for index, child in enumerate(node.value)]
        return self._scalar(node, loc)

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, object]:
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            place = (*loc, str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?")
            mark = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if place in self.positions.keys:
                self._duplicate(place, mark)
                continue
            self.positions.keys[place] = mark
            if not isinstance(key_node, yaml.ScalarNode) or key_node.value == "":
                self.faults.append(Fault(place, "a key must be a word", at_key=True))
                continue
            value = self.value(value_node, place)
            if value is not None:  # `peer:` with all its lines commented out is the same as no `peer`
                result[key_node.value] = value
        return result

    def _duplicate(self, place: Loc, mark: tuple[int, int]) -> None:
        first = self.positions.keys[place]
        message = f"key {shown(place[-1])} is given twice; the first is on line {first[0]}"
        self.faults.append(Fault(place, message, at=mark))

    def _scalar(self, node: yaml.Node, loc: Loc) -> object:
        text = str(node.value)
        if _FORBIDDEN.search(text):
            self.faults.append(Fault(loc, "control characters are not allowed"))
            return ""
        if getattr(node, "style", None) is not None:
            return text
        trap = _trap(text)
        if trap is not None:
            self.faults.append(Fault(loc, trap))
            return text
        return _plain_value(text)


def _trap(text: str) -> str | None:
    if _BOOL_WORD.fullmatch(text):
        return f"{text} is text to some YAML readers and a boolean to others; write true, false or '{text}'"
    if _CLOCK.fullmatch(text):
        return f"{shown(text)} is a number in base 60 to some YAML readers; write a duration such as 1m30s"
    if _BASED.fullmatch(text):
        return f"{shown(text)} is not decimal to some YAML readers; drop the leading 0, or quote it"
    return None


def _plain_value(text: str) -> object:
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
