"""Charts that Python made: drawn where they are seen, redrawn in place, and found again on the way back to a tab."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

CHARTS = ".kv-plot [role=figure]"
DRAWN = ".kv-plot .js-plotly-plot"


@pytest.fixture
def low(open_page):
    """A page on a low screen, whose charts are drawn only when they come near it: it is never idle."""
    page = open_page("/glossary")
    page.set_viewport_size({"width": 1280, "height": 300})
    page.add_init_script("window.requestIdleCallback = () => 0")
    page.goto(page.url.replace("/glossary", "/cost"))
    expect(page.locator(CHARTS)).to_have_count(5)
    return page


def test_a_chart_far_from_the_screen_is_drawn_once_somebody_comes_near(low):
    low.locator(CHARTS).first.scroll_into_view_if_needed()
    expect(low.locator(DRAWN).first).to_be_visible()
    low.wait_for_timeout(2_000)  # longer than an idle page takes to draw all
    far = low.locator(CHARTS).last
    assert "js-plotly-plot" not in (far.get_attribute("class") or "")
    far.evaluate("(node) => node.scrollIntoView()")
    expect(far.locator(".main-svg").first).to_be_visible()
    assert far.get_attribute("aria-label")


def test_an_idle_page_draws_them_all(open_page):
    page = open_page("/glossary")
    page.set_viewport_size({"width": 1280, "height": 300})
    page.goto(page.url.replace("/glossary", "/cost"))
    expect(page.locator(DRAWN)).to_have_count(5)


def test_another_value_is_drawn_into_the_same_chart(open_page):
    page = open_page("/cost")
    svg = page.locator(f"{DRAWN} .main-svg").first
    expect(svg).to_be_visible()
    svg.evaluate("(node) => { node.marked = true }")
    before = page.locator(DRAWN).first.evaluate("(chart) => chart._fullData[0].y.length")
    field = page.get_by_role("spinbutton", name="New tokens N")
    field.fill("77")
    field.press("Enter")
    now = f"document.querySelector('{DRAWN}')._fullData[0].y.length"
    page.wait_for_function(f"(before) => {now} !== before", arg=before)
    assert svg.evaluate("(node) => node.marked")


def test_who_comes_back_to_a_tab_finds_its_charts_as_they_were(open_page):
    page = open_page("/caches?part=Room+left+empty")
    chart = page.locator(DRAWN).first
    expect(chart.locator(".main-svg").first).to_be_visible()
    chart.evaluate("(node) => { node.marked = true }")
    page.get_by_role("radio", name="Layout").click()
    expect(page.locator(DRAWN)).to_have_count(0)
    page.get_by_role("radio", name="Room left empty").click()
    expect(chart.locator(".main-svg").first).to_be_visible()
    assert chart.evaluate("(node) => node.marked")


def test_what_a_click_needs_is_loaded_before_it(open_page):
    page = open_page("/lesson")
    page.wait_for_function(
        """() => {
             const loaded = performance.getEntriesByType("resource").map(({ name }) => name.split("/").at(-1))
             const has = (part) => loaded.some((name) => name.startsWith(part))
             return has("plot.js") && has("StreamlitSyntaxHighlighter")
           }"""
    )


@pytest.mark.parametrize(("path", "count"), [("/cost", 2), ("/sweep", 1), ("/roofline?part=The+roofline", 1)])
def test_a_chart_is_drawn_once_because_its_margins_have_room_for_what_stands_beside_its_axes(open_page, path, count):
    """Plotly widens margins that are too small, and draws the whole chart once more for that."""
    page = open_page(path)
    drawn = page.locator(DRAWN).filter(visible=True)
    expect(drawn.nth(count - 1).locator(".main-svg").first).to_be_visible()
    for number in range(count):
        given, taken = drawn.nth(number).evaluate("({ layout, _fullLayout }) => [layout.margin, _fullLayout._size]")
        assert [taken[side] for side in "lrtb"] == pytest.approx([given[side] for side in "lrtb"], abs=1)


@pytest.mark.parametrize(
    ("path", "colour"), [("/cost", "light"), ("/cost", "dark"), ("/live", "dark"), ("/mistakes", "light")]
)
def test_a_charts_buttons_can_be_read_and_none_sends_the_chart_elsewhere(open_page, path, colour):
    page = open_page(path)
    page.emulate_media(color_scheme=colour)
    chart = page.locator(".js-plotly-plot").filter(visible=True).first
    chart.hover()
    buttons = chart.locator(".modebar-btn")
    expect(buttons.first).to_be_visible()
    named = [button.get_attribute("data-title") for button in buttons.all()]
    assert len(named) >= 4 and not [name for name in named if "Share" in name or "Cloud" in name]
    ground = page.evaluate("() => getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    expect(chart.locator(".modebar-group").first).to_have_css("background-color", ground)
