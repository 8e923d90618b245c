"""How soon a page is painted and answers a click, and a run shows its curves: in Chromium, 1,000 comparisons kept.

python bench/pages.py --json                     every page and ten runs of the default form: about twelve minutes
python bench/pages.py --only live --visits 2 --runs 0
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

if not __package__:
    import checkout  # noqa: F401

from bench.served import Server
from kvviz.experiments.comparison.figures import nearest_rank

ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
KEPT = 1000  # comparisons in the store
LONG = 10_000  # tokens of the longest of them


PLOT = ".js-plotly-plot"
QUIET_MS = 800  # after a page is painted, until it is clicked
RERUNS = """window.kvReruns = 0
new MutationObserver((changes) => {
  for (const { target, oldValue } of changes) {
    if (oldValue === "running" && target.dataset.testScriptState === "notRunning") window.kvReruns += 1
  }
}).observe(document, { subtree: true, attributeFilter: ["data-test-script-state"], attributeOldValue: true })"""
RAN = "() => window.kvReruns > 0"  # the page's script has run to its end and is drawn


@dataclass(frozen=True)
class Visit:
    """A page's address, what it has to show, a click if it has a form, and what that has to change."""

    path: str
    painted: str
    click: Callable[[Page], None] | None = None
    answered: str = RAN  # a JavaScript condition


def _search(page: Page) -> None:
    page.get_by_text("Pick runs to compare", exact=True).click()
    field = page.get_by_role("textbox", name="Search titles, prompts, models and tags")
    field.fill("nothing of the kind")
    field.press("Enter")


def _take_code(page: Page) -> None:
    page.get_by_role("button", name="Prompt: a story").click()
    page.get_by_text("Code", exact=True).click()


def _next_of(role: str, name: str, key: str = "ArrowRight") -> Callable[[Page], None]:
    """Take the next value of a slider or a list."""

    def click(page: Page) -> None:
        page.get_by_role(role, name=name).first.press(key)
        if role == "combobox":
            page.keyboard.press("Enter")

    return click


def _click(selector: str, number: int = 0) -> Callable[[Page], None]:
    return lambda page: page.locator(selector).nth(number).click()


def _press(words: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_text(words, exact=True).first.click()


_MORE = _click('[data-testid="stNumberInputStepUp"]')
_SECOND = _click('[data-testid="stButtonGroup"] button', 1)
_SAYS = "() => document.body.innerText.includes({!r})"
VISITS = {
    "start": Visit("", '[data-testid="kv-speedup"]'),
    "live": Visit(
        "live",
        '[data-testid="kv-speedup"]',
        _take_code,
        "() => document.querySelector('textarea').value.startsWith('def ')",
    ),
    "anatomy": Visit("anatomy", '[data-testid="kv-scene"]', _SECOND),
    "mistakes": Visit("mistakes", '[data-testid="kv-source"]', _SECOND),
    "compare": Visit("compare", PLOT),
    "compare_list": Visit("compare", PLOT, _search, _SAYS.format("Nothing fits.")),
    "compare_long": Visit(
        "compare?runs=long-uncached,long-cached", PLOT, _press("time so far"), _SAYS.format("The whole run takes")
    ),
    "sweep": Visit("sweep", PLOT, _next_of("combobox", "Experiment", "ArrowDown")),
    "roofline": Visit("roofline", PLOT, _next_of("combobox", "Largest batch", "ArrowUp")),
    "caches": Visit("caches", PLOT, _next_of("combobox", "Sequences", "ArrowDown")),
    "serving": Visit("serving", '[data-testid="stSlider"]', _next_of("slider", "Requests a second")),
    "memory": Visit("memory", PLOT, _MORE),
    "cost": Visit("cost", PLOT, _MORE),
    "quiz": Visit("quiz", '[role="radiogroup"]'),
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


def seconds(page: Page, url: str, visit: Visit) -> tuple[float, float | None]:
    """Seconds until the page is painted, and from a click until it has answered, if it has one."""
    start = time.perf_counter()
    page.goto(f"{url}/{visit.path}")
    page.wait_for_selector(visit.painted)
    painted = time.perf_counter() - start
    if visit.click is None:
        return painted, None
    page.wait_for_function("() => window.kvReruns > 0")  # the page's first run
    page.wait_for_timeout(QUIET_MS)
    page.evaluate("() => { window.kvReruns = 0 }")
    start = time.perf_counter()
    visit.click(page)
    page.wait_for_function(visit.answered, polling=10)
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


def measure(url: str, visits: int, runs: int, names: Sequence[str]) -> dict[str, Any]:
    """Seconds of first paint and rerun of each page, and of the moments of a run: the median, and all of them."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    paints: dict[str, list[float]] = {name: [] for name in names}
    reruns: dict[str, list[float]] = {name: [] for name in names if VISITS[name].click}
    moments: dict[str, list[float]] = {name: [] for name in MOMENTS}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS)

        def cold() -> Page:  # a browser cache without anything in it
            page = browser.new_context().new_page()
            page.set_default_timeout(90_000)
            page.add_init_script(RERUNS)
            return page

        for _ in range(visits):
            for name in names:
                page = cold()
                painted, answered = seconds(page, url, VISITS[name])
                print(f"{name}: painted {painted:.2f} s, answered {answered}", file=sys.stderr, flush=True)
                paints[name].append(painted)
                if answered is not None:
                    reruns[name].append(answered)
                page.context.close()
        for _ in range(runs):
            page = cold()
            for name, at in run_moments(page, url).items():
                moments[name].append(at)
            page.context.close()
        browser.close()
    every = sorted(value for row in reruns.values() for value in row)
    return {
        "run_s": _medians(moments),
        "first_paint_s": _medians(paints),
        "rerun_s": _medians(reruns),
        "rerun_p95_s": nearest_rank(every, 95) if every else None,
        "each": {"run_s": moments, "first_paint_s": paints, "rerun_s": reruns},
    }


def _medians(found: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(row) for name, row in found.items() if row}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--visits", type=int, default=10, help="of each page")
    parser.add_argument("--runs", type=int, default=10, help="of the live page's form as it opens")
    parser.add_argument("--only", default=",".join(VISITS), help="these pages, separated by commas")
    parser.add_argument("--home", type=Path, help="a folder for the store, filled at its first use and kept")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = asked.home or Path(temporary)
        if not (home / "kvviz.sqlite").exists():
            home.mkdir(exist_ok=True)
            fill(home)
        with Server(home) as server:
            document = measure(server.url, asked.visits, asked.runs, list(filter(None, asked.only.split(","))))
    document["kept"] = {"comparisons": KEPT + 1, "longest_tokens": LONG}
    document["environment"] = {"platform": platform.platform(), "cores": os.cpu_count()}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
