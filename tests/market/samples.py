"""Answers as hypothesis draws them: everything that a source may say."""

from __future__ import annotations

import string
from typing import get_args

from hypothesis import strategies as st

from outlast.providers.market.base import Answer, Measure, Quote, QuoteKind, Risk
from outlast.providers.market.own_json import MOST_MICRO

WORDS = st.text(string.ascii_letters + string.digits + "_./:+@()-", min_size=1, max_size=128)
TIMES = st.floats(0, 4_000_000_000)
FIGURES = st.floats(-999_999_999_999, 999_999_999_999)
PLACES = st.tuples(WORDS, WORDS | st.just(""), WORDS | st.just(""), WORDS)


def lines(most: int) -> st.SearchStrategy[str]:
    """Text that can be printed in one line."""
    printable = st.text(max_size=most).map(lambda text: "".join(c for c in text if c.isprintable()))
    return printable.map(str.strip)


@st.composite
def quotes(draw: st.DrawFn) -> Quote:
    """A price that may be."""
    place, kind = draw(PLACES), draw(st.sampled_from(get_args(QuoteKind)))
    return Quote(*place, kind, draw(st.integers(1, MOST_MICRO)), draw(TIMES), draw(WORDS))


@st.composite
def risks(draw: st.DrawFn) -> Risk:
    """A figure that may be."""
    place, measure = draw(PLACES), draw(st.sampled_from(get_args(Measure)))
    low, high = sorted((draw(FIGURES), draw(FIGURES)))
    return Risk(*place, measure, low, high, draw(lines(60)), draw(TIMES), draw(WORDS))


ANSWERS = st.builds(
    Answer,
    WORDS,
    TIMES,
    st.lists(quotes(), max_size=4).map(tuple),
    st.lists(risks(), max_size=4).map(tuple),
    st.lists(lines(400), max_size=4).map(tuple),
    st.booleans(),
    st.booleans(),
)
