"""How soon a page is painted and answers a click, and a run shows its curves: in Chromium, 1,000 comparisons kept.

python bench/pages.py --json
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

if not __package__:
    import checkout  # noqa: F401

from bench.served import Server

ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
KEPT = 1000  # comparisons in the store
LONG = 10_000  # tokens of the longest of them


@dataclass(frozen=True)
class Visit:
    """A page's address, what it has to show, and a click with what it has to change."""

    path: str
    painted: str
    click: Callable[[Page], None]
    answered: str  # a JavaScript condition


def _search(page: Page) -> None:
    field = page.get_by_role("textbox", name="Search titles, prompts, models and tags")
    field.fill("nothing of the kind")
    field.press("Enter")


def _take_code(page: Page) -> None:
    page.get_by_role("button", name="Prompt: a story").click()
    page.get_by_text("Code", exact=True).click()


CHART = "document.querySelector('.js-plotly-plot')"
VISITS = {
    "live": Visit(
        "live",
        '[data-testid="kv-status"]',
        _take_code,
        "() => document.querySelector('textarea').value.startsWith('def ')",
    ),
    "memory": Visit(
        "memory",
        ".js-plotly-plot",
        lambda page: page.get_by_text("A cache to work out by hand", exact=True).click(),
        "() => document.querySelector('[data-testid=stMetricValue]').innerText.includes('28.0 KiB')",
    ),
    "cost": Visit(
        "cost",
        ".js-plotly-plot",
        lambda page: page.get_by_text("GPT-3's cache", exact=True).click(),
        "() => document.body.innerText.includes('9,663,676,416 B')",
    ),
    "compare": Visit(
        "compare?runs=long-uncached,long-cached",
        ".js-plotly-plot",
        lambda page: page.get_by_text("Logarithmic", exact=True).click(),
        f"() => {CHART} && {CHART}._fullLayout && {CHART}._fullLayout.yaxis.type === 'log'",
    ),
    "compare_list": Visit(
        "compare", '[data-testid="stDataFrame"]', _search, "() => document.body.innerText.includes('Nothing fits.')"
    ),
    "sweep": Visit(
        "sweep",
        '[data-testid="stCaptionContainer"]',
        lambda page: page.get_by_text("Batch: 1 to 16 sequences", exact=True).click(),
        "() => document.body.innerText.includes('reads the weights once')",
    ),
}


def fill(home: Path) -> None:
    """Fill a store as a busy term does: a real comparison of a tiny model many times, and a very long one."""
    from kvviz.notebook.compare import compare
    from kvviz.store.db.store import Store

    done = compare("tiny-gpt2", prompt="Once upon a time", new_tokens=16, repeats=2)
    texts = [json.dumps(record) for record in done.records]
    store = Store(home / "kvviz.sqlite")
    for number in range(KEPT):
        store.begin(f"kept{number}", {"model": "tiny-gpt2"}, title=f"Run {number}")
        store.append(f"kept{number}", texts)
        store.finish(f"kept{number}", "done", done.document)
    store.begin("long", {"model": "tiny-gpt2"}, title="A long one")
    store.finish("long", "done", {**done.document, "runs": [_lengthened(run) for run in done.document["runs"]]})
    store.close()


def _lengthened(run: dict) -> dict:
    """Repeat all that a run has of each step until it has as many steps as a long run."""
    steps = len(run["step_s"])
    return {
        name: (value * LONG)[:LONG] if isinstance(value, list) and len(value) == steps else value
        for name, value in run.items()
    }


def seconds(page: Page, url: str, visit: Visit) -> tuple[float, float]:
    """Seconds until the page is painted, and from a click until it has answered."""
    start = time.perf_counter()
    page.goto(f"{url}/{visit.path}")
    page.wait_for_selector(visit.painted)
    painted = time.perf_counter() - start
    page.wait_for_timeout(1500)
    start = time.perf_counter()
    visit.click(page)
    page.wait_for_function(visit.answered)
    return painted, time.perf_counter() - start


LOOK = "document.querySelector('[data-testid=kv-live]').kvState().modes.map((mode) => mode.look)"
MOMENTS = {  # of a run with the form as it opens: what is true of the screen then
    "first_point": f"() => {LOOK}.some((look) => look.length)",
    "parted": f"() => {LOOK}[0].at(-1) > 2 * {LOOK}[1].at(-1)",
    "done": "() => document.querySelector('[data-testid=kv-live]').dataset.state === 'done'",
}


def run_moments(page: Page, url: str) -> dict[str, float]:
    """Seconds from Run until the first point, until the curves have visibly parted, and until the end."""
    page.goto(f"{url}/live")
    page.wait_for_selector('[data-testid="kv-status"]')
    page.wait_for_timeout(1500)
    start, found = time.perf_counter(), {}
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**comparison=*")
    for name, reached in MOMENTS.items():
        page.wait_for_function(reached, polling=20, timeout=120_000)
        found[name] = time.perf_counter() - start
    return found


def measure(url: str, visits: int) -> dict[str, dict[str, float]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in VISITS}
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS)
        for _ in range(visits):
            for name, visit in VISITS.items():
                page = browser.new_context().new_page()  # a cold browser cache each time
                found[name].append(seconds(page, url, visit))
                page.context.close()
        runs = []
        for _ in range(visits):
            page = browser.new_context().new_page()
            runs.append(run_moments(page, url))
            page.context.close()
        browser.close()
    return {
        "run_s": {name: statistics.median(run[name] for run in runs) for name in MOMENTS},
        "first_paint_s": {name: statistics.median(paint for paint, _ in pairs) for name, pairs in found.items()},
        "rerun_s": {name: statistics.median(rerun for _, rerun in pairs) for name, pairs in found.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--visits", type=int, default=5)
    visits = parser.parse_args().visits
    with tempfile.TemporaryDirectory() as home:
        fill(Path(home))
        with Server(Path(home)) as server:
            document = measure(server.url, visits)
    document["kept"] = {"comparisons": KEPT + 1, "longest_tokens": LONG}
    document["environment"] = {"platform": platform.platform(), "cores": os.cpu_count(), "visits": visits}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
