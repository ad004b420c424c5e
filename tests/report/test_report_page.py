"""The HTML report in a real browser: Chromium without a window."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, sync_playwright

from outlast.daemon.advice.values import Advice
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import Study
from outlast.daemon.report.html import page
from outlast.providers.market.base import Quote, Risk

# Playwright keeps a loop of its own running in this thread, in which nothing of ours runs.
pytestmark = pytest.mark.blocking

BERLIN = ZoneInfo("Europe/Berlin")
MEASURE = Path(__file__).with_name("measure.js").read_text(encoding="utf-8")
HOSTILE = (
    "\x1b[31m\u202e</title></style></svg><script>document.title='owned'</script>"
    "<img src=//x.invalid onerror=alert(1)>{{ 7*7 }}"
)
# A sheet of A4 less its margins.
PAPER = 688
Make = Callable[..., tuple[Study, Observed]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests here: its start is slow."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("Chromium is not on PATH, and the report is tested in it: ./dev setup installs it")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@dataclass
class Seen:
    """What came of opening a page."""

    measured: dict[str, Any]
    title: str
    requests: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


@pytest.fixture
def look(browser: Browser, tmp_path: Path) -> Callable[..., Seen]:
    """Opens a page and measures it; collects requests, console lines, errors and dialogs."""

    def opened(
        text: str, width: int = 1400, scheme: Literal["light", "dark"] = "light", *, printed: bool = False
    ) -> Seen:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        seen = Seen({}, "")
        view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        view.on("request", lambda request: seen.requests.append(request.url))
        view.on("console", lambda line: seen.said.append(line.text))
        view.on("pageerror", lambda error: seen.said.append(str(error)))
        view.on("dialog", lambda dialog: seen.said.append(dialog.message))
        view.goto(file.as_uri())
        if printed:
            view.emulate_media(media="print")
        seen.measured, seen.title = view.evaluate(MEASURE), view.title()
        view.close()
        seen.requests.remove(file.as_uri())
        return seen

    return opened


def _market() -> dict[str, Any]:
    place = ("aws", "us-east-1", "", "p3.2xlarge")
    return {
        "quotes": (Quote(*place, "on_demand", 3_060_000, 1.0, "a list"),),
        "risks": (
            Risk(*place, "reclaimed-per-month", 0.2, 1.0, ">20 %", 1.0, "Spot Advisor"),
            Risk(*place, "placement-score", 3.0, 3.0, "3 of 10", 1.0, "AWS"),
        ),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1400])
def test_the_page_can_be_read(
    history: Make, advice: Advice, look: Callable[..., Seen], width: int, scheme: str
) -> None:
    """Nothing is fetched or complained of; nothing overlaps, sticks out or is faint, on a phone or a desk."""
    study, observed = history()
    seen = look(page(study, advice, observed, study.now, BERLIN, **_market()), width, scheme)
    assert seen.requests == []
    assert seen.said == []
    measured = seen.measured
    assert measured["texts"] > 300
    for complaint in ("overflow", "overlaps", "faint", "unnamed"):
        assert measured[complaint] == [], complaint
    assert measured["active"] == 0


def test_complaints_are_found_where_there_is_reason(history: Make, look: Callable[..., Seen]) -> None:
    """The measure itself: a faint, a wide and an overlapping text are each seen, and a request is."""
    study, observed = history()
    bad = (
        '<p style="color:#bbb">faint</p><div style="width:3000px">wide</div><svg></svg>'
        '<div style="height:0">over</div><div>laps</div><img src="http://x.invalid/a.png"></main>'
    )
    text = page(study, None, observed, study.now, BERLIN).replace("</main>", bad)
    seen = look(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text))
    for complaint in ("overflow", "overlaps", "faint", "unnamed"):
        assert seen.measured[complaint] != [], complaint
    assert seen.measured["active"] == 1
    assert seen.requests == ["http://x.invalid/a.png"]


def test_hostile_names_do_nothing_in_the_page(
    history: Make, advice: Advice, look: Callable[..., Seen]
) -> None:
    """Markup, escape sequences, overrides and templates in names are letters, and not too many."""
    pools = [Pool(HOSTILE, HOSTILE, f"{HOSTILE}{i}" + "x" * 10_000, HOSTILE) for i in range(3)]
    study, observed = history(*pools)
    study = replace(
        study, notes=(HOSTILE,), patterns=tuple(replace(p, sentence=HOSTILE) for p in study.patterns)
    )
    observed = replace(observed, sources=(HOSTILE,))
    told = replace(advice, sentence=HOSTILE, reasons=(HOSTILE,), window=HOSTILE, cap=HOSTILE)
    text = page(study, told, observed, study.now, BERLIN)
    for width in (360, 1400):
        seen = look(text, width)
        assert seen.requests == []
        assert seen.said == []
        assert seen.measured["active"] == 0
        assert seen.measured["overflow"] == []
        assert seen.title != "owned"
    assert not set(text) & {"\x1b", "\u202e", "\x07"}
    assert "{{ 7*7 }}" in text
    assert "x" * 200 not in text


def test_the_page_prints(history: Make, advice: Advice, browser: Browser, look: Callable[..., Seen]) -> None:
    """As PDF it has pages; on paper nothing sticks out or is faint, also for a reader of the dark scheme."""
    study, observed = history()
    text = page(study, advice, observed, study.now, BERLIN, **_market())
    for scheme in ("light", "dark"):
        seen = look(text, PAPER, scheme, printed=True)
        for complaint in ("overflow", "overlaps", "faint"):
            assert seen.measured[complaint] == [], complaint
    view = browser.new_page()
    view.set_content(text)
    printed = view.pdf(format="A4")
    view.close()
    assert printed.startswith(b"%PDF-")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12


def test_an_empty_history_makes_a_page_that_says_so(history: Make, look: Callable[..., Seen]) -> None:
    """It is not mistaken for a calm one."""
    study, observed = history()
    empty = replace(study, pools=(), ages=(), weekends=(), patterns=(), trends=(), coverage=None, notes=())
    text = page(empty, None, observed, study.now, BERLIN)
    assert "No history yet" in text
    seen = look(text, 360)
    assert seen.said == []
    assert seen.measured["overflow"] == []


def test_hundreds_of_pools_stay_one_small_page(history: Make, look: Callable[..., Seen]) -> None:
    """Five hundred pools are in the table, the twelve most seen are drawn, and that is said."""
    pools = [Pool("aws", f"region-{i % 20}", f"region-{i % 20}-{i}", "p3.2xlarge") for i in range(500)]
    study, observed = history(*pools, prices=False)
    begins = time.monotonic()
    text = page(study, None, observed, study.now, BERLIN)
    assert time.monotonic() - begins < 10
    assert len(text) < 2_000_000
    assert text.count("<svg") == 13
    assert "Drawn are the 12 of 500 pools" in text
    seen = look(text, 360)
    assert seen.measured["overflow"] == []
    assert seen.measured["unnamed"] == []


def test_one_history_makes_one_page(history: Make, advice: Advice) -> None:
    """The same figures give the same bytes, so that pages can be compared."""
    study, observed = history()
    assert page(study, advice, observed, study.now, BERLIN) == page(
        study, advice, observed, study.now, BERLIN
    )


def test_published_figures_keep_to_their_columns(history: Make, advice: Advice) -> None:
    """Each measure has a column with its own unit; a pool without it has a dash there."""
    study, observed = history()
    text = page(study, advice, observed, study.now, BERLIN, **_market())
    assert "reclaimed in a month (AWS Spot Advisor)" in text
    assert text.count("&gt;20 %") == 1
    assert text.count(">3 of 10<") == 1
    assert "on demand: AWS p3.2xlarge, us-east-1" in text
    assert "evicted in an hour" not in text
