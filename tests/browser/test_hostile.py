"""Script in everything that people write, in a real browser: no dialog opens, nothing is fetched, the text is there."""

import json
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from playwright.sync_api import expect

from kvviz import compare
from kvviz.memory.calculator import pack
from kvviz.store.files import reading
from tests.browser.test_live import handed_on, open_more

pytestmark = pytest.mark.browser


SHORT = "<img src=x onerror='alert(1)'>"
EVIL = (
    f"{SHORT}<script>alert(2)</script><a href='javascript:alert(3)'>go</a> [l](javascript:alert(4)) "
    "![p](https://evil.example/p.png) https://evil.example/l {{7*7}} ${alert(5)} </textarea></title><svg onload=a(6)>"
)
NAME = "<img src=x onerror=alert(7)>![p](https:evil.example)"  # of a file, so without a slash


@pytest.fixture(scope="module")
def file():
    """A comparison in whose every text somebody has written script."""
    made = compare("tiny-gpt2", prompt=EVIL, new_tokens=6, repeats=2)
    records = json.loads(json.dumps(made.records))
    started = records[0]
    started["model"] |= {"id": EVIL[:300], "title": EVIL[:300], "note": EVIL}
    started["environment"] = {key: EVIL[:200] if isinstance(value, str) and key != "dtype" else value
                              for key, value in started["environment"].items()}  # fmt: skip
    started["modes"] = [
        {**mode, "title": SHORT + str(i), "summary": EVIL[:300]} for i, mode in enumerate(started["modes"])
    ]
    started["prompt"]["pieces"] = [EVIL for _ in started["prompt"]["pieces"]]
    for record in records:
        for step in record.get("modes", {}).values() if record["t"] == "proof" else ():
            step |= {"text": EVIL, "piece": EVIL}
            step["layers"] = [{**group, "kind": SHORT[:20], "dtype": SHORT[:20]} for group in step["layers"]]
    document = {**made.document, "model": EVIL, "environment": started["environment"]}
    document["runs"] = [{**run, "text": EVIL, "cache_class": SHORT} for run in document["runs"]]
    return reading.to_json(records, document).encode()


FOREIGN = "img[src='x'], img[src*='evil'], a[href*='evil'], a[href^='javascript'], svg[onload], [onerror]"


@pytest.fixture
def watched(open_page, server):
    """One page after the other, of which every dialog, every foreign request and every foreign element is noted."""
    page, seen = open_page("/healthz"), []
    page.on("dialog", lambda dialog: (seen.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("request", lambda request: seen.append(request.url) if "evil" in request.url.split("?")[0] else None)

    def open_watched(path):
        assert page.locator(FOREIGN).count() == 0, page.url
        page.goto(server.url + path)
        return page

    yield open_watched
    assert page.locator(FOREIGN).count() == 0, page.url
    assert seen == []


def upload(page, data, name=NAME):
    page.locator("input[type=file]").first.set_input_files(
        files=[{"name": f"{name}.json", "mimeType": "application/json", "buffer": data}]
    )


def taken_in(page, data, name):
    """The id of a file's cached run, once it is kept."""
    before = page.url
    if not page.locator("input[type=file]").count():
        page.get_by_text("Open a file", exact=True).click()
    upload(page, data, name)
    page.wait_for_url(lambda url: "/compare?runs=" in url and url != before)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    page.get_by_text("Name, tag, delete").click()  # this browser's own
    return parse_qs(urlsplit(page.url).query)["runs"][0].split(",")[1]


def test_script_is_text_wherever_it_is_written(watched, file, chromium):
    live = watched("/live")
    open_more(live)
    upload(live, file)
    panel = live.get_by_test_id("kv-text-cached")
    expect(panel).to_contain_text(EVIL)
    expect(live.get_by_test_id("kv-environment")).to_contain_text(SHORT)
    expect(live.get_by_test_id("kv-status")).to_contain_text(SHORT)
    expect(live.get_by_test_id("kv-figures")).to_contain_text(f"{SHORT}0")
    expect(live.get_by_test_id("kv-chart").locator(".annotation-text").filter(has_text=SHORT).first).to_be_visible()
    live.get_by_test_id("kv-chart").locator(".nsewdrag").hover()
    live.get_by_test_id("kv-grid").hover()
    live.get_by_test_id("kv-race").click()

    one, two = (taken_in(watched("/compare"), file, f"{NAME}{i}") for i in (1, 2))
    kept = watched(f"/compare?runs={one},{two}")
    expect(kept.locator(".js-plotly-plot .legendtext").first).to_contain_text("<img src=x onerror=alert(7)>")
    kept.get_by_role("button", name="Axes, columns, pictures").click()
    kept.get_by_text("A | B").click()
    kept.keyboard.press("Escape")
    expect(kept.get_by_role("heading", name="A:")).to_contain_text("<img src=x onerror=alert(7)>")
    download = handed_on(kept, "HTML, opens from disk")
    assert download.suggested_filename.startswith("kvviz-") and "<" not in download.suggested_filename
    page_file = download.path().rename(download.path().with_suffix(".html"))

    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    memory = watched(f"/memory?models={pack({**config, '_name_or_path': NAME})},gpt2")
    expect(memory.locator(".st-key-m_headline")).to_contain_text("<img src=x onerror=alert(7)>")
    expect(memory.locator(".js-plotly-plot .legendtext").first).to_contain_text("<img src=x onerror=alert(7)>")

    sweep = watched(f"/sweep?sweep={quote(EVIL)}")
    expect(sweep.get_by_text("There is no such sweep here")).to_be_visible()

    context = chromium.new_context(offline=True)
    shared = context.new_page()
    dialogs = []
    shared.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    shared.goto(page_file.as_uri())
    expect(shared.locator("h1")).to_have_text(EVIL)
    shared.wait_for_timeout(300)
    assert dialogs == [] and shared.locator(FOREIGN).count() == 0
    context.close()
