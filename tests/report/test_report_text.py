"""Words from other machines: safe in a terminal, a page and a spreadsheet."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.history.rows import Pool
from outlast.daemon.report import text, words

HOSTILE = "\x1b[31mred\x1b[0m \u202eevil\u2066 \u200b<script>alert(1)</script>\x07\x9b1m\r\n"


def test_escape_sequences_and_bidirectional_overrides_are_taken_out() -> None:
    """What is left of a hostile name is its plain letters."""
    assert text.clean(HOSTILE) == "[31mred[0m evil <script>alert(1)</script>1m"


@given(st.text(max_size=400), st.integers(2, 100))
def test_clean_text_is_one_short_line_that_a_terminal_does_not_act_on(found: str, most: int) -> None:
    """Whatever comes in, nothing but printable characters comes out, and not many."""
    safe = text.clean(found, most)
    assert len(safe) <= most
    assert safe.isprintable()
    assert not {unicodedata.category(letter) for letter in safe} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(st.text(max_size=60))
def test_cleaning_twice_changes_nothing_more(found: str) -> None:
    """Text that has been cleaned can be cleaned again on its way."""
    assert text.clean(text.clean(found)) == text.clean(found)


def test_a_heap_of_marks_does_not_paint_over_other_lines() -> None:
    """One accent stays, a hundred do not."""
    assert text.clean("e" + "\u0301" * 100) == "e\u0301"


def test_ten_kilobytes_of_name_become_a_short_one() -> None:
    """Length is no way to fill a screen."""
    assert len(text.clean("x" * 10_000)) == 80
    assert text.elide("us-east-1-atl-1a", 9) == "us-e…l-1a"


def test_a_name_is_no_formula_in_a_spreadsheet() -> None:
    """A cell that a spreadsheet would reckon with is quoted."""
    assert text.cell("=HYPERLINK(1)") == "'=HYPERLINK(1)"
    assert text.cell("us-east-1a") == "us-east-1a"


@given(st.lists(st.text(max_size=50), min_size=2, max_size=8, unique=True), st.integers(12, 40))
def test_pools_keep_names_that_tell_them_apart(zones: list[str], most: int) -> None:
    """However alike or hostile zones are, no two pools are shown under one name."""
    pools = [Pool("aws", "us-east-1", zone, "p3.2xlarge") for zone in zones]
    named = words.names(pools, most)
    assert len(set(named.values())) == len(pools)
    assert all(name and len(name) <= most for name in named.values())
