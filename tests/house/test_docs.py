"""What the documents tell a reader to type exists, with the options they name."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
_FENCE = re.compile(r"^```(?:sh|bash|console|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ENDS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "<", "2>"})
# What stands before the program in a line: privilege, environment.
_BEFORE = re.compile(r"^(?:\$ |sudo (?:-u \S+ )?|[A-Z_]+=\S+ )*")


def commands(page: str) -> list[list[str]]:
    """The words of each `outlast …` and `./dev …` line in the page's shell blocks, up to a pipe or so."""
    found = []
    for block in _FENCE.findall(page):
        for line in block.replace("\\\n", " ").splitlines():
            command = _BEFORE.sub("", line.strip())
            if command.split(" ")[0] in {"outlast", ".venv/bin/outlast", "./dev"}:
                found.append(_words(command))
    return found


def _words(line: str) -> list[str]:
    words = shlex.split(line, comments=True)
    end = next((i for i, word in enumerate(words) if word in _ENDS), len(words))
    return words[:end]


ALL = sorted({tuple(words) for page in PAGES for words in commands(page.read_text())})


def test_commands_are_found_in_a_page() -> None:
    """The search itself works: prompts, sudo, comments, continued lines and pipes."""
    page = "```sh\n$ outlast run \\\n  --config a.yaml  # comment\nsudo -u x outlast status | jq .\nls\n```\n"
    assert commands(page) == [["outlast", "run", "--config", "a.yaml"], ["outlast", "status"]]


@cache
def help_of(*words: str) -> str:
    """The help text of a command. Fails the test if there is no such command."""
    command = [sys.executable, "-m", "outlast", *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"outlast {' '.join(words)}: {done.stderr}"
    return done.stdout


@pytest.mark.parametrize("words", [w for w in ALL if w[0] == "./dev"], ids=" ".join)
def test_dev_commands_exist(words: tuple[str, ...]) -> None:
    """./dev knows each command that a page names."""
    usage = subprocess.run([str(ROOT / "dev")], capture_output=True, text=True, timeout=30, check=True).stdout
    assert len(words) == 1 or re.search(rf"^  {words[1]}\b", usage, re.MULTILINE)


@pytest.mark.parametrize("words", [w for w in ALL if w[0] != "./dev"], ids=" ".join)
def test_outlast_commands_exist_with_their_options(words: tuple[str, ...]) -> None:
    """Each sub-command answers --help, and its help names each long option that a page uses."""
    path = [word for word in words[1:] if not word.startswith("-")][:1]
    if path in (["config"], ["history"]) and words[2:] and not words[2].startswith("-"):
        path.append(words[2])
    text = help_of(*path)
    for option in (word.split("=")[0] for word in words if word.startswith("--")):
        assert re.search(rf"{re.escape(option)}\b", text), f"{' '.join(words)}: no {option}"
