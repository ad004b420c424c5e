"""Wrong configurations and the exact lines that the user sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.config.conftest import Ground

from outlast.daemon.config import ConfigError, Settings, load

FAULTS = (Path(__file__).parent / "faults.txt").read_text(encoding="utf-8")


def cases() -> list[tuple[str, str, list[str]]]:
    """Name, text and problems of each block of faults.txt."""
    result = []
    for block in FAULTS.split("=== ")[1:]:
        name, _, rest = block.partition("\n")
        text, _, lines = rest.rpartition("---\n")
        result.append((name, text, lines.split("\n")))
    return [(name, text, [line for line in lines if line]) for name, text, lines in result]


@pytest.mark.parametrize(("text", "lines"), [case[1:] for case in cases()], ids=[case[0] for case in cases()])
def test_fault_is_named_with_its_place(ground: Ground, text: str, lines: list[str]) -> None:
    """Each wrong configuration yields exactly its problems, each with file, line, column and key."""
    file = ground.write(text)
    with pytest.raises(ConfigError) as caught:
        load(file, env={})
    said = str(caught.value).replace(str(ground.checkpoints), "CKPT").replace(str(ground.key), "KEY")
    assert said.splitlines() == [f"{file}:{line}" for line in lines]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("jobs: \x07\n", "1:7: character U+0007 is not allowed"),
        ('jobs: "\\U00110000"\n', "1:10: impossible escape or number"),
        ('node: {name: "a\\0b"}\njobs: []\n', "1:14: node.name: control characters are not allowed"),
        (
            "jobs:\n\t- name: x\n",
            r"2:1: not valid YAML: while scanning for the next token found character '\t'",
        ),
    ],
)
def test_invisible_faults(ground: Ground, text: str, line: str) -> None:
    """Characters that an editor does not show are reported where they stand."""
    file = ground.write(text)
    with pytest.raises(ConfigError) as caught:
        load(file, env={})
    assert str(caught.value).startswith(f"{file}:{line}")


def test_all_faults_at_once(load_text: Callable[[str], Settings]) -> None:
    """Faults of every kind are reported together, in the order of the file."""
    text = (
        "node: {nam: x}\nprovider:\n  poll: 1:30\n  name: gpc\njobs:\n  - name: a\n    every: soon\n  - 3\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    found = [(problem.line, problem.column, problem.path) for problem in caught.value.problems]
    assert found == [
        (1, 8, "node.nam"),
        (3, 9, "provider.poll"),
        (4, 9, "provider.name"),
        (6, 5, "jobs.0.checkpoints"),
        (7, 12, "jobs.0.every"),
        (8, 5, "jobs.1"),
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "does not exist; write one, or name another in $OUTLAST_CONFIG"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (
            lambda path: path.write_bytes(b"#" * 300_000),
            "is larger than 256 KiB, so it is no configuration of Outlast",
        ),
    ],
    ids=["missing", "folder", "huge"],
)
def test_unusable_file(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    """A file that cannot be read at all is one problem without a position."""
    file = tmp_path / "outlast.yaml"
    make(file)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == f"{file}: {message}"


def test_file_that_is_not_text(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are reported where they stand."""
    file = tmp_path / "outlast.yaml"
    file.write_bytes(b"node:\n  name: \xff\n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == f"{file}:2:9: is not UTF-8 text"


def test_file_below_a_file(ground: Ground) -> None:
    """A path that cannot be followed is named with the reason."""
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        load(ground.key / "outlast.yaml")
