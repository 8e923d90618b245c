"""How soon a page is painted, how far it shifts and how soon it answers a click; the moments of a run: in Chromium.

A click is on one typical control of the page, and answered when the last element that it changes has changed. 1,000
comparisons are kept.

python bench/pages.py --json                     every page and ten runs of the default form: about fifteen minutes
python bench/pages.py --only live --visits 1 --runs 0
python bench/pages.py --visits 0 --runs 1        the first run of a fresh server, pressed as soon as its page is there
"""

import argparse
import json
import math
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

from playwright.sync_api import BrowserContext, Page, sync_playwright

if not __package__:
    import checkout  # noqa: F401

from bench.served import Server
from kvviz.experiments.comparison.figures import nearest_rank

ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
KEPT = 1000  # comparisons in the store
LONG = 10_000  # tokens of the longest of them


PLOT = ".js-plotly-plot"
STILL_MS = 300  # without a change, after which a page is drawn
APART_MS, LONGEST_MS = 1000, 5000  # of the layout shifts that count as one: https://web.dev/articles/cls
WATCH = """() => {
const unsent = { sent: 0, messages: 0, bytes: 0 }
const seen = window.kvSeen = { ...unsent, event: 0, received: 0, changed: 0, runs: 0, largest: 0, shifts: [] }
for (const kind of ["pointerdown", "keydown"]) {
  addEventListener(kind, ({ timeStamp }) => Object.assign(seen, unsent, { event: timeStamp }), true)
}
const Socket = window.WebSocket
window.WebSocket = class extends Socket {
  constructor(...asked) {
    super(...asked)
    this.ofStreamlit = String(asked[0]).includes("_stcore/stream")
    if (this.ofStreamlit) this.addEventListener("message", ({ data }) => {
      seen.messages += 1
      seen.bytes += data.byteLength ?? data.size
      seen.received = performance.now()
    })
  }
  send(data) {
    if (this.ofStreamlit) seen.sent ||= performance.now()
    super.send(data)
  }
}
// The frame looks at the page once a second and makes buttons of the field's words. The text before such a word becomes
// a shorter node: a change of its own, for which nobody waits. All changes of such a look are passed over. It is a task
// of its own, so that they come together, without any of the page's.
const later = ".kv-term"
const ofLook = ({ addedNodes }) => [...addedNodes].some((added) => added.matches?.(later))
new MutationObserver((changes) => {
  if (changes.some(ofLook)) return
  for (const { target, type, attributeName, oldValue } of changes) {
    if (attributeName === "data-test-script-state") {
      if (oldValue !== "running" || target.dataset.testScriptState !== "notRunning") continue
      seen.runs += 1
    } else {
      const node = type === "characterData" ? target.parentElement : target
      if (!node?.closest("[data-testid=stMain]") || node.closest(".kv-live")) continue
    }
    seen.changed = performance.now()
  }
}).observe(document, {
  subtree: true, childList: true, characterData: true, attributeOldValue: true,
  attributeFilter: ["data-test-script-state", "class", "style", "d", "transform", "aria-checked", "aria-selected"],
})
new PerformanceObserver((list) => { for (const { startTime } of list.getEntries()) seen.largest = startTime })
  .observe({ type: "largest-contentful-paint", buffered: true })
new PerformanceObserver((list) => {
  for (const { startTime, value, sources, hadRecentInput } of list.getEntries()) {
    if (hadRecentInput) continue
    const moved = sources.map(({ node }) => {
      const named = (node?.nodeType === 1 ? node : node?.parentElement)?.closest("[class*=st-key-], [data-testid]")
      return named?.className.match?.(/st-key-\\w+/)?.[0] ?? named?.dataset.testid ?? "?"
    })
    seen.shifts.push([startTime, value, [...new Set(moved)].join(" ")])
  }
}).observe({ type: "layout-shift", buffered: true })
}"""
DRAWN = f"() => kvSeen.runs && performance.now() - Math.max(kvSeen.changed, kvSeen.received) > {STILL_MS}"
ANSWERED = f"""() => kvSeen.sent > kvSeen.event && kvSeen.received > kvSeen.sent
  && !document.querySelector("[data-test-script-state=running], [data-test-script-state=rerunRequested]")
  && performance.now() - Math.max(kvSeen.changed, kvSeen.received) > {STILL_MS}"""
VISIBLE = "(selector) => document.querySelector(selector)?.checkVisibility()"
FIRST_CONTENT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


Click = Callable[[Page, int], None]


@dataclass(frozen=True)
class Visit:
    """A page's address, what it has to show, and a click, if it has a control: the number says which of several."""

    path: str
    painted: str
    click: Click | None = None
    before: Callable[[Page], None] = lambda page: None  # what opens the part where the control is


def _search(page: Page, number: int) -> None:
    field = page.get_by_role("textbox", name="Search titles, prompts, models and tags")
    field.fill(f"nothing of kind {number}")
    field.press("Enter")


def _next_of(name: str, *keys: str) -> Click:
    """Take the next value of a list, two forth and two back."""

    def click(page: Page, number: int) -> None:
        page.get_by_role("combobox", name=name).first.press(keys[number // 2 % 2])
        page.keyboard.press("Enter")

    return click


def _in_turn(selector: str, count: int = 2, first: int = 1) -> Click:
    """Click each of these in turn."""
    return lambda page, number: page.locator(selector).nth((first + number) % count).click()


def _press(*words: str) -> Click:
    return lambda page, number: page.get_by_text(words[number % len(words)], exact=True).first.click()


def _open(words: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_text(words, exact=True).first.click()


_MORE = _in_turn('[data-testid="stNumberInputStepUp"]', 1)
_CHOICES = '[data-testid="stButtonGroup"] button'
VISITS = {
    "start": Visit("", '[data-testid="kv-speedup"]'),
    "live": Visit("live", '[data-testid="kv-speedup"]', _press("Code", "A story"), _open("Prompt: a story")),
    "anatomy": Visit("anatomy", '[data-testid="kv-scene"]', _in_turn(_CHOICES)),
    "mistakes": Visit("mistakes", '[data-testid="kv-source"]', _in_turn(_CHOICES, 5)),
    "compare": Visit("compare", PLOT),
    "compare_list": Visit("compare", PLOT, _search, _open("Pick runs to compare")),
    "compare_long": Visit("compare?runs=long-uncached,long-cached", PLOT, _press("time so far", "time per token")),
    "sweep": Visit("sweep", PLOT, _next_of("Experiment", "ArrowDown", "ArrowUp")),
    "roofline": Visit("roofline", PLOT, _next_of("Largest batch", "ArrowUp", "ArrowDown"), _open("More")),
    "caches": Visit("caches", ".st-key-tabs_k_part button", _in_turn(".st-key-tabs_k_part button", 4)),
    "serving": Visit("serving", ".st-key-tabs_v_part button", _in_turn(".st-key-tabs_v_part button", 4)),
    "memory": Visit("memory", PLOT, _MORE),
    "cost": Visit("cost", PLOT, _MORE),
    "quiz": Visit("quiz", '[role="radiogroup"]', _in_turn(".st-key-q_question button", 12)),
    "lesson": Visit("lesson", _CHOICES, _in_turn(_CHOICES, 6)),
    "glossary": Visit("glossary", "h2"),
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


def opened(page: Page, url: str, visit: Visit) -> dict[str, Any]:
    """Seconds until a page shows what it is about, and what the browser tells of its painting."""
    start = time.perf_counter()
    page.goto(f"{url}/{visit.path}")
    page.wait_for_function(VISIBLE, arg=visit.painted)  # asked in each frame; wait_for_selector looks twice a second
    painted = time.perf_counter() - start
    page.wait_for_function(DRAWN)
    seen = page.evaluate("() => kvSeen")
    return {
        "painted_s": painted,
        "first_content_s": page.evaluate(FIRST_CONTENT) / 1000,
        "largest_content_s": seen["largest"] / 1000,
        "drawn_s": seen["changed"] / 1000,
        "layout_shift": layout_shift([(at, value) for at, value, _ in seen["shifts"]]),
        "moved": [[round(value, 4), moved] for _, value, moved in seen["shifts"] if value >= 0.005],
    }


def layout_shift(shifts: Sequence[tuple[float, float]]) -> float:
    """The cumulative layout shift: the sum of the worst window, from (milliseconds, value) of each shift."""
    worst, window, begin, last = 0.0, 0.0, -math.inf, -math.inf
    for at, value in shifts:
        if at - last > APART_MS or at - begin > LONGEST_MS:
            window, begin = 0.0, at
        window, last = window + value, at
        worst = max(worst, window)
    return worst


def clicked(page: Page, click: Click, number: int) -> dict[str, float]:
    """Seconds from a click to the last change that it led to, and what it took."""
    click(page, number)
    page.wait_for_function(ANSWERED)
    seen = page.evaluate("() => kvSeen")
    return {
        "answered_s": (max(seen["changed"], seen["received"]) - seen["event"]) / 1000,
        "until_sent_s": (seen["sent"] - seen["event"]) / 1000,
        "until_received_s": (seen["received"] - seen["sent"]) / 1000,
        "messages": seen["messages"],
        "bytes": seen["bytes"],
    }


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


def measure(server: Server, visits: int, clicks: int, runs: int, names: Sequence[str]) -> dict[str, Any]:
    """How each page was painted and answered clicks, and the moments of a run: the median or p95, and all of them."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    pages: dict[str, dict[str, Any]] = {name: {"first": [], "later": [], "clicks": []} for name in names}
    moments: dict[str, list[float]] = {name: [] for name in MOMENTS}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGS)

        def cold() -> BrowserContext:  # a browser cache without anything in it
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            context.set_default_timeout(30_000)
            context.add_init_script(f"({WATCH})()")
            return context

        for name in [name for _ in range(visits) for name in names]:
            visit, row, context = VISITS[name], pages[name], cold()
            for when in ("first", "later"):
                page = context.new_page()
                row[when].append(opened(page, server.url, visit))
                print(name, when, row[when][-1], file=sys.stderr, flush=True)
                if when == "first":
                    page.close()
            if visit.click:
                visit.before(page)
                page.wait_for_timeout(2 * STILL_MS)
                begin = server.cpu_seconds()
                found = [clicked(page, visit.click, number) for number in range(clicks)]
                row["clicks"] += found
                row.setdefault("server_cpu_s", []).append((server.cpu_seconds() - begin) / clicks)
                print(name, sorted(round(one["answered_s"], 3) for one in found), file=sys.stderr, flush=True)
            context.close()
        for _ in range(runs):
            context = cold()
            for name, at in run_moments(context.new_page(), server.url).items():
                moments[name].append(at)
            context.close()
        browser.close()
    return {
        "pages": {name: _summary(row) for name, row in pages.items() if row["first"]},
        "run_s": {name: statistics.median(row) for name, row in moments.items() if row},
        "first_run_s": {name: row[0] for name, row in moments.items() if row and not visits},  # of a fresh server
        "each": {"pages": pages, "run_s": moments},
    }


def _summary(row: Mapping[str, Any]) -> dict[str, Any]:
    """The medians of a page's visits, and the p50 and p95 of its clicks."""
    figures = ("painted_s", "first_content_s", "largest_content_s", "drawn_s", "layout_shift")
    found: dict[str, Any] = {
        when: {name: statistics.median(visit[name] for visit in row[when]) for name in figures}
        for when in ("first", "later")
    }
    if clicks := row["clicks"]:
        answered = sorted(click["answered_s"] for click in clicks)
        found["rerun"] = {
            "clicks": len(clicks),
            **{f"p{share}_s": nearest_rank(answered, share) for share in (50, 95)},
            **{name: statistics.median(click[name] for click in clicks) for name in clicks[0] if name != "answered_s"},
            "server_cpu_s": statistics.median(row["server_cpu_s"]),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--visits", type=int, default=3, help="of each page, each by a new browser and then again")
    parser.add_argument("--clicks", type=int, default=20, help="on a page's control, in each of these visits")
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
            document = measure(
                server, asked.visits, asked.clicks, asked.runs, list(filter(None, asked.only.split(",")))
            )
    document["kept"] = {"comparisons": KEPT + 1, "longest_tokens": LONG}
    document["environment"] = {"platform": platform.platform(), "cores": os.cpu_count()}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
