"""Kept runs in a real browser: what the live page measured is found, laid over, zoomed, and handed on."""

import json

import pytest
from playwright.sync_api import expect

from tests.browser.test_live import choose, handed_on

pytestmark = pytest.mark.browser


def charts(page):
    return page.locator(".js-plotly-plot").first


@pytest.fixture
def comparison(measured):
    """The id of a comparison that was measured on the live page."""
    return measured("tiny-gpt2").split("=")[1]


def test_from_the_live_page_to_the_compare_page_and_onto_a_disk_and_back_as_a_run(comparison, open_page, chromium):
    page = open_page(f"/compare?runs={comparison}-uncached,{comparison}-cached")
    expect(charts(page)).to_be_visible()
    expect(page.get_by_text("Speed-ups are the baseline")).to_be_visible()
    page.reload()
    expect(charts(page)).to_be_visible()
    opens_from_disk_without_a_network(handed_on(page, "HTML, opens from disk").path(), chromium)
    zooming_one_chart_zooms_all(page)
    comes_back_as_a_run(page)


def zooming_one_chart_zooms_all(page):
    curves = page.locator(".js-plotly-plot").nth(1)  # the first are the passes
    page.get_by_role("radio", name="all four").click()
    expect(curves.locator(".nsewdrag")).to_have_count(4)
    box = curves.locator(".nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] / 2 + 2, steps=5)
    page.mouse.up()
    page.wait_for_timeout(500)
    ranges = curves.evaluate(
        "plot => ['xaxis', 'xaxis2', 'xaxis3', 'xaxis4'].map(name => plot._fullLayout[name].range.map(Math.round))"
    )
    assert ranges[0] == ranges[1] == ranges[2] == ranges[3]
    assert ranges[0][1] - ranges[0][0] < 10, "sixteen tokens were there before"


def opens_from_disk_without_a_network(file, chromium):
    path = file.rename(file.with_suffix(".html"))
    context = chromium.new_context(offline=True)
    alone = context.new_page()
    complaints = []
    alone.on("pageerror", lambda error: complaints.append(str(error)))
    alone.on("requestfailed", lambda request: complaints.append(request.url))
    alone.goto(path.as_uri())
    expect(alone.locator(".js-plotly-plot").first).to_be_visible()
    assert complaints == []
    context.close()


def comes_back_as_a_run(page):
    before = page.url
    content = handed_on(page, "JSON, opens here again").path().read_text(encoding="utf-8")
    assert json.loads(content)["kvviz"] == "comparison"
    page.get_by_text("Open a file", exact=True).click()
    page.locator('input[type="file"]').set_input_files(
        {"name": "again.json", "mimeType": "application/json", "buffer": content.encode()}
    )
    expect(page).not_to_have_url(before)
    expect(charts(page)).to_be_visible()


def test_a_sweep_fills_in_and_ends(open_page):
    page = open_page("/sweep")
    choose(page, "Four layers of 128", "Experiment")
    choose(page, "tiny-gpt2")
    page.get_by_role("button", name="More").click()
    passes = page.get_by_role("spinbutton", name="Passes of each point")
    passes.fill("2")
    passes.press("Enter")
    page.keyboard.press("Escape")
    page.wait_for_timeout(500)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Done", exact=True)).to_be_visible(timeout=120_000)
    expect(page.get_by_role("heading", name="Measured here")).to_be_visible()
    expect(charts(page)).to_be_visible()
