"""The exported page in a real browser: it draws, saves and zooms with no network, and runs nothing that a text says."""

import json

import pytest

from kvviz import compare
from kvviz.store.files import reading, webpage

pytestmark = pytest.mark.browser

EVIL = "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = compare("tiny-qwen3", prompt=EVIL, new_tokens=6, repeats=2)
    document = {**made.document, "model": EVIL}
    file = tmp_path_factory.mktemp("shared") / "page.html"
    file.write_text(webpage.to_html(document, made.records), encoding="utf-8")
    return file, document


def test_it_opens_from_disk(chromium, shared):
    file, document = shared
    context = chromium.new_context(color_scheme="light", offline=True, viewport={"width": 1280, "height": 900})
    page, asked, complaints = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    page.wait_for_selector("#charts .cartesianlayer .xy")
    assert page.locator("#charts .cartesianlayer > .subplot").count() == 4
    assert page.locator("h1").inner_text() == EVIL
    assert page.evaluate("window.pwned") is None
    page.click("#log")
    assert page.evaluate("document.getElementById('charts')._fullLayout.yaxis.type") == "log"
    with page.expect_download() as saved:
        page.click("#save")
    assert reading.read(saved.value.path().read_text()).document == json.loads(json.dumps(document))
    with page.expect_download() as saved:
        page.evaluate("document.querySelector('[data-title*=SVG]').click()")
    assert saved.value.path().read_text().startswith("<svg")
    page.emulate_media(color_scheme="dark")
    page.reload()
    page.wait_for_selector("#charts .cartesianlayer .xy")
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
    assert complaints == []
    context.close()
