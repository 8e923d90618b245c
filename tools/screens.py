"""Write the README's pictures: `python -m tools.screens http://127.0.0.1:8501` takes them of a server that runs there.

A fresh server shows the recordings that come with kvviz, so the pictures are of those. The one of a room is made by
hand, since it takes a class. Needs Chromium.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

DOCS = Path(__file__).resolve().parents[1] / "docs"


def _drawn(page: Page) -> None:
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=60_000)


def _replayed(page: Page) -> None:
    page.wait_for_function(
        "() => document.querySelector('[data-testid=kv-chart]')?.data?.some((line) => line.x.length === 192)",
        timeout=60_000,
    )


# picture: page, width, height, what to wait for
SCREENS: dict[str, tuple[str, int, int, Callable[[Page], None]]] = {
    "start": ("", 1440, 960, _replayed),
    "screens/mistakes-1280": ("mistakes", 1280, 1200, _drawn),
    "screens/roofline-1280": ("roofline", 1280, 860, _drawn),
    "screens/memory-1440": ("memory", 1440, 1000, _drawn),
}


def screens(url: str) -> None:
    """Take every picture, on a light page."""
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for name, (path, width, height, wait) in SCREENS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(f"{url}/{path}")
            wait(page)
            page.wait_for_timeout(3_000)  # what fades in has done so
            page.screenshot(path=DOCS / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    screens(sys.argv[1])
