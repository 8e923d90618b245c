"""The static edition in a browser, from a plain file server: it decodes, and no request leaves it."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import expect

from kvviz.ui.static_edition.folder import write

pytestmark = pytest.mark.browser


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def address(tmp_path):
    """Serve an edition without its walk, which the engine does not need, as `python -m http.server` does."""
    write(tmp_path / "edition", "mini-gpt2", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "edition"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_an_embedded_page_decodes_its_links_prompt_and_nothing_leaves_it(chromium, address):
    page = chromium.new_page()
    asked, complaints = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.goto(f"{address}?embed&prompt=Once+upon&new_tokens=4")
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("Once upon")
    expect(page.locator("#nav")).to_be_hidden()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_test_id("kv-live")).to_have_attribute("data-state", "done")
    expect(page.get_by_test_id("kv-badge")).to_contain_text("4 of 4 tokens identical")
    page.get_by_role("spinbutton", name="New tokens").fill("1000")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("form")).to_have_count(1)  # the browser's own sentence says what fits
    assert any("model.safetensors" in url for url in asked)
    assert all(url.startswith((address, "data:", "blob:")) for url in asked)
    assert complaints == []
    refused = page.evaluate("fetch('http://127.0.0.1:9/').then(() => '', (error) => error.message)")
    assert refused and any("violates" in said for said in complaints), "the policy refuses it, not the network"
    page.close()
