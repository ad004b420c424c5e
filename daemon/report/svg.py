"""matplotlib's SVG made fit for one page: colours by the page's own variables, ids apart, nothing outside."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from html import escape
from io import StringIO

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# What a chart is drawn in, and the variable of the page's style sheet that each stands for.
INK, SOFT, LINE, BAND, HOT = "#010101", "#020202", "#030303", "#040404", "#050505"
VARIABLES = {INK: "--ink", SOFT: "--rule", LINE: "--line", BAND: "--band", HOT: "--hot"}
FONT = 11
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
_DROPPED = (
    re.compile(r"^.*?(?=<svg\b)", re.DOTALL),
    re.compile(r"<metadata>.*?</metadata>\s*", re.DOTALL),
    re.compile(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>\s*", re.DOTALL),
    re.compile(r"<!--.*?-->\s*", re.DOTALL),
    re.compile(r'\sxmlns(?::xlink)?="[^"]*"'),
)
_ID = re.compile(r'\sid="([^"]*)"')
_REFERENCE = re.compile(r'(?:xlink:href="#|url\(#)([^")]+)')
_OPENING = re.compile(r"<svg\b[^>]*?(viewBox=\"[^\"]*\")[^>]*>")
_ATTRIBUTE = re.compile(r'="[^"]*"')
_DIGITS = re.compile(r"(\d+\.\d{2})\d+")


def style() -> AbstractContextManager[None]:
    """The settings under which charts are drawn and rendered."""
    return mpl.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "outlast",
            "font.size": FONT,
            "axes.edgecolor": SOFT,
            "axes.labelcolor": INK,
            "axes.linewidth": 1.0,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.xmargin": 0.02,
            "text.color": INK,
            "text.parse_math": False,
            "xtick.color": SOFT,
            "xtick.labelcolor": INK,
            "ytick.color": SOFT,
            "ytick.labelcolor": INK,
            "path.simplify_threshold": 0.5,
        }
    )


def new_figure(width: int, height: int) -> Figure:
    """An empty figure of so many CSS pixels, not known to pyplot."""
    figure = Figure(figsize=(width / 72, height / 72))
    FigureCanvasSVG(figure)
    return figure


def render(figure: Figure, key: str, label: str) -> str:
    """``figure`` as an ``<svg>`` element for an HTML page. ``key`` tells its ids from those of other charts.

    ``label`` is its text alternative. Whatever the figure says comes escaped.
    """
    held = StringIO()
    with style():
        figure.savefig(held, format="svg", transparent=True, metadata=_NO_METADATA)
    return clean(held.getvalue(), key, label)


def clean(text: str, key: str, label: str) -> str:
    """What the SVG backend wrote, without what a page must not have: prolog, metadata, foreign ids."""
    for pattern in _DROPPED:
        text = pattern.sub("", text)
    used = {name: f"{key}-{number}" for number, name in enumerate(dict.fromkeys(_REFERENCE.findall(text)))}
    text = _ID.sub(lambda match: f' id="{used[match[1]]}"' if match[1] in used else "", text)
    for name, short in used.items():
        text = text.replace(f'xlink:href="#{name}"', f'href="#{short}"').replace(f"#{name})", f"#{short})")
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    text = _ATTRIBUTE.sub(lambda match: _DIGITS.sub(r"\1", match[0]), text)
    opening = _OPENING.match(text)
    assert opening is not None
    return f'<svg {opening[1]} role="img" aria-label="{escape(label, quote=True)}">{text[opening.end() :]}'
