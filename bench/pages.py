"""How soon a page stands: first paint (the live component is on the screen) and a rerun after a click, in Chromium.

python bench/pages.py --json
"""

import argparse
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"live": '[data-testid="kv-status"]'}
ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


def wait_for(url: str) -> None:
    for _ in range(600):
        try:
            if b"ready" in urllib.request.urlopen(url, timeout=5).read():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server did not come up")


def first_paint(page: Page, url: str, selector: str) -> float:
    start = time.perf_counter()
    page.goto(url)
    page.wait_for_selector(selector)
    return time.perf_counter() - start


def rerun(page: Page) -> float:
    """Seconds from a click that changes the form until the page has answered."""
    pill = page.get_by_text("Code", exact=True)
    start = time.perf_counter()
    pill.click()
    page.wait_for_function("() => document.querySelector('textarea').value.startsWith('def ')")
    spent = time.perf_counter() - start
    page.get_by_text("A story", exact=True).click()
    page.wait_for_function("() => document.querySelector('textarea').value.startsWith('Once')")
    return spent


def measure(url: str, visits: int) -> dict[str, dict[str, float]]:
    paints: dict[str, list[float]] = {name: [] for name in PAGES}
    reruns: dict[str, list[float]] = {name: [] for name in PAGES}
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGS)
        for _ in range(visits):
            for name, selector in PAGES.items():
                page = browser.new_context().new_page()  # a cold browser cache each time
                paints[name].append(first_paint(page, f"{url}/{name}", selector))
                page.wait_for_timeout(1000)
                reruns[name].append(rerun(page))
                page.context.close()
        browser.close()
    return {
        "first_paint_s": {name: statistics.median(values) for name, values in paints.items()},
        "rerun_s": {name: statistics.median(values) for name, values in reruns.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document (it always does)")
    parser.add_argument("--visits", type=int, default=5)
    visits = parser.parse_args().visits
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "PORT": str(port), "KVVIZ_HOME": home}
        server = subprocess.Popen(
            [sys.executable, "app.py"], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/kv/health")
            document = measure(f"http://127.0.0.1:{port}", visits)
        finally:
            server.terminate()
            server.wait()
    document["environment"] = {"platform": platform.platform(), "cores": os.cpu_count(), "visits": visits}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
