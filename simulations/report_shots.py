"""Pictures of the HTML report of the made-up history: 360 and 1,400 pixels wide, light and dark, and as PDF.

./dev report-shots [FOLDER]
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from zoneinfo import ZoneInfo

from playwright.sync_api import Browser, sync_playwright

from outlast.daemon.advice.recommend import advise
from outlast.daemon.advice.values import Request
from outlast.daemon.rates.study import study
from outlast.daemon.report.html import page
from outlast.simulations import report_sample

WIDTHS = (360, 1400)
_HEIGHT = 900


def main(folder: Path) -> int:
    """Write the page and its pictures into ``folder``. Returns 1 if there is no Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no chromium on PATH: ./dev setup installs it", file=sys.stderr)
        return 1
    folder.mkdir(exist_ok=True)
    file = folder / "report.html"
    file.write_text(sample_page(), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for made in _shots(browser, file):
            print(made)
        browser.close()
    return 0


def sample_page() -> str:
    """The report of the made-up history with a recommendation for a job, for a reader in Berlin."""
    observed = report_sample.observed()
    now = report_sample.now()
    found = study(observed, now)
    request = Request(hours=40.0, gpus=8, gpu_type="a100", deadline=now + 60 * 3600.0)
    advice = advise(found, observed, request, (), (), now)
    return page(found, advice, observed, now, ZoneInfo("Europe/Berlin"))


def _shots(browser: Browser, file: Path) -> list[Path]:
    made = []
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            view = browser.new_page(
                viewport={"width": width, "height": _HEIGHT},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            view.goto(file.resolve().as_uri())
            made.append(file.parent / f"report-{width}-{scheme}.png")
            view.screenshot(path=made[-1], full_page=True)
            view.close()
    view = browser.new_page()
    view.goto(file.resolve().as_uri())
    made.append(file.parent / "report.pdf")
    view.pdf(path=made[-1], format="A4")
    view.close()
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="./dev report-shots", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("report-shots"))
    sys.exit(main(parser.parse_args().folder))
