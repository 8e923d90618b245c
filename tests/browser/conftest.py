"""A real server and a real browser. The console and the server's log are held to be clean after every test."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, expect

expect.set_options(timeout=20_000)  # a machine that is busy measuring draws late

ROOT = Path(__file__).resolve().parents[2]
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--process-per-site",  # so a context's pages share what V8 has compiled
    # Each new window would load two pages of Chromium's own for its address bar. The last list of features counts, so
    # the others, which no page here needs either, are some of Playwright's.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,HttpsUpgrades,MediaRouter,OptimizationHints,PaintHolding,"
    "RenderDocument,Translate",
]
# Streamlit asks for its own endpoints below the page's path first, and takes the 404 as an answer.
EXPECTED = "Failed to load resource: the server responded with a status of 404"
VIEWPORT = {"width": 1280, "height": 900}
WORKER_START = os.pathsep.join(map(str, (ROOT / "tests" / "worker_start", ROOT)))


class Server:
    """`python app.py` on a free port, or a given one, with a home of its own."""

    def __init__(self, home: Path, port: int = 0) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            self.port = probe.getsockname()[1]
        self.home = home
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / "server.log"
        env = {**os.environ, "PORT": str(self.port), "KVVIZ_HOME": str(home), "PYTHONPATH": WORKER_START}
        with self.log.open("w") as log:
            self.process = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=env, stdout=log, stderr=log)

    def health(self) -> str:
        with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
            return answer.read().decode()

    def wait(self) -> None:
        end = time.monotonic() + 180  # on a fresh machine Python compiles all that is imported, beside other tests
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if '"ready"' in self.health():
                    return
            except OSError:
                pass
            time.sleep(0.1)
        self.close()
        raise AssertionError(f"the server did not come up:\n{self.log.read_text()}")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


@contextlib.contextmanager
def serving(home):
    """A server that is ready, until the end of `with`."""
    server = Server(home)
    server.wait()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="package")
def chromium():
    """The system's Chromium, else Playwright's own; without either the browser tests are skipped, but never in CI.

    Playwright keeps an event loop in this process until the last of these tests is over.
    """
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=found, args=ARGS)
        except Error as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"no browser for this test: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


class Browsers:
    """Browsers that know nothing of one another, taken and given back without cookies or storage.

    One that is given back keeps the scripts that it has compiled, in a page that stays open: half the work of the next.
    They ask for less motion, because a recording that replays by itself takes up to half of a core; a test that is
    about the replay asks for it.
    """

    def __init__(self, chromium: Browser, server: Server) -> None:
        self.chromium, self.url, self.free = chromium, server.url, []

    def take(self) -> BrowserContext:
        if not self.free:
            context = self.chromium.new_context(viewport=VIEWPORT, reduced_motion="reduce")
            context.new_page().goto(self.url + "/healthz")
            self.free.append(context)
        return self.free.pop()

    def give_back(self, context: BrowserContext) -> None:
        kept, *others = context.pages
        for page in others:
            page.close()
        context.clear_cookies()
        kept.evaluate("() => { localStorage.clear(); sessionStorage.clear() }")
        self.free.append(context)


@pytest.fixture(scope="package")
def browsers(chromium, server):
    return Browsers(chromium, server)


def _pages(browsers, server):
    """Yield what opens a page of its own; at the end all their consoles have to be clean, and the server's log."""
    contexts, complaints = [], []

    def open_page(path="/live", **media):
        contexts.append(browsers.take())
        page = contexts[-1].new_page()
        page.emulate_media(**media)
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda m: complaints.append(m.text) if m.type in ("error", "warning") and EXPECTED not in m.text else None,
        )
        page.goto(server.url + path)
        return page

    before = len(server.log.read_text())
    yield open_page
    for context in reversed(contexts):  # the first is the next one's first
        for page in context.pages[1:]:  # a test that failed must not keep the device from the next
            stop = page.get_by_test_id("stMainBlockContainer").get_by_role("button", name="Stop", exact=True)
            if stop.count() and stop.is_enabled():
                with contextlib.suppress(Error):  # it may just have ended, and Streamlit's own Stop goes as it comes
                    stop.click(timeout=2_000)
                page.wait_for_timeout(500)
        browsers.give_back(context)
    assert complaints == []
    log = server.log.read_text()[before:]
    assert "Traceback" not in log
    assert "Error" not in log and '"error"' not in log


@pytest.fixture
def open_page(browsers, server):
    """`open_page("/live")` is a page for one test."""
    yield from _pages(browsers, server)


@pytest.fixture(scope="module")
def opening(browsers, server):
    """`opening("/live")` is a page for the tests of a file that only look at it."""
    yield from _pages(browsers, server)


@pytest.fixture(scope="package")
def measured(browsers, server):
    """`measured("tiny-gpt2")` is the path of a finished comparison of 16 new tokens, measured once on the live page."""
    paths = {}

    def path(model):
        if model not in paths:
            context = browsers.take()
            page = context.new_page()
            page.set_default_timeout(60_000)
            page.goto(f"{server.url}/live?model={model}&new_tokens=16")
            page.get_by_role("button", name="Run", exact=True).click()
            page.wait_for_url("**/live?comparison=*")
            # until it shows this run, it shows the recording, which is done
            expect(page.get_by_test_id("kv-live")).to_have_attribute("data-comparison", page.url.rpartition("=")[2])
            expect(page.get_by_test_id("kv-live")).to_have_attribute("data-state", "done", timeout=180_000)
            paths[model] = page.url.removeprefix(server.url)
            browsers.give_back(context)
        return paths[model]

    return path
