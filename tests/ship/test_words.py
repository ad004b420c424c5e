"""What a receiver writes for its daemon: read back as written, and hostile until then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.core.standby import _heard
from outlast.daemon.ship import words
from outlast.daemon.ship.protocol import Warn
from outlast.daemon.ship.words import Handover, RefusedError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(["epoch", "tag", "step", "from_epoch", "at", "kind", "deadline_wall"])


def test_a_warning_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The deadline is on this machine's clock, whatever the sender's says."""
    assert words.read_warning(tmp_path) is None
    words.write_warning(tmp_path, Warn("notice", 30.0, 7, 2), now=1_000.0)
    said = words.read_warning(tmp_path)
    assert said is not None
    assert (said.kind, said.deadline_wall, said.step, said.epoch) == ("notice", 1_030.0, 7, 2)
    words.write_warning(tmp_path, Warn("withdrawn", None, 9, 2), now=1_001.0)
    said = words.read_warning(tmp_path)
    assert said is not None
    assert (said.kind, said.deadline_wall) == ("withdrawn", None)


def test_a_takeover_without_the_primary_raises_the_fence(tmp_path: Path) -> None:
    """What the standby records is what the receiver refuses by."""
    words.record(tmp_path, Handover(5, "global_step7", 7, 3, 1_000.0))
    assert words.fence(tmp_path) == 5


@given(body=st.dictionaries(KEYS, JSON) | JSON)
def test_anything_in_the_files_is_a_word_or_no_word(
    tmp_path_factory: pytest.TempPathFactory, body: Any
) -> None:
    """Files of any content never stop the standby: they are read, or they are as if unsaid."""
    store = tmp_path_factory.mktemp("store")
    for name in (words.HANDOVER_NAME, words.WARNING_NAME):
        (store / name).write_text(json.dumps(body))
    _heard(store)


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 50_000, b"\xff", b'{"epoch": 1e999}'])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    """The receiver says which file it is; the standby goes on without it."""
    (tmp_path / words.WARNING_NAME).write_bytes(data)
    with pytest.raises(RefusedError, match=r"warning\.json"):
        words.read_warning(tmp_path)
    assert _heard(tmp_path) == (None, None)
